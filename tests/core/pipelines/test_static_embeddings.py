"""Static embeddings, as folders of model2vec and sentence-transformers and as a table without a runtime."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer as Backend

import kerasformer as kf
from kerasformer import bundle
from kerasformer.engines import verify
from kerasformer.engines.token_table import TableForward
from kerasformer.errors import BundleError, CheckpointError, ExportError, InputError, KerasformerError
from kerasformer.export import export
from kerasformer.tokenization.truncation import TruncationWarning
from tests import tiny_text
from tests.extras import need

RANDOM = np.random.default_rng(0)
SIZE, CLUSTERS, TRUNCATED = 33, 9, 8
TEXTS = [*tiny_text.CORPUS[:4], "", "☃", "Rain ☃ rain", " ".join(tiny_text.CORPUS)]
"""With unknown tokens, none, and nothing else."""
EXACT = 1e-6


def backend() -> Backend:
    """Returns a tokenizer that adds special tokens, pads and truncates, none of which counts in a table."""
    copy = Backend.from_str(tiny_text.wordpiece().backend.to_str())
    copy.enable_truncation(TRUNCATED)
    copy.enable_padding(length=12)
    return copy


TABLE = RANDOM.normal(size=(backend().get_vocab_size(), SIZE)).astype("float32")
WEIGHTS = RANDOM.uniform(0.1, 1, len(TABLE)).astype("float32")
MAPPING = RANDOM.integers(0, CLUSTERS, len(TABLE))
MODEL2VEC: dict[str, tuple[dict[str, np.ndarray], bool]] = {
    "plain": ({"embeddings": TABLE}, True),
    "float16": ({"embeddings": TABLE.astype("float16")}, False),
    "int8": ({"embeddings": (30 * TABLE).astype("int8")}, True),
    "quantized vocabulary": ({"embeddings": TABLE[:CLUSTERS], "mapping": MAPPING, "weights": WEIGHTS}, False),
}
"""Tensors, and whether embeddings are normalized."""


def write_model2vec(folder: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    backend().save(str(folder / "tokenizer.json"))
    content = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "apply_pca": 256,
        "max_length": 512,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def means(tensors: dict[str, np.ndarray], normalize: bool) -> np.ndarray:
    """Returns the embeddings of the texts by their definition."""
    tokenizer, rows = backend(), tensors["embeddings"].astype("float32")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows = rows[tensors["mapping"]] if "mapping" in tensors else rows
    rows = rows * tensors["weights"][:, None] if "weights" in tensors else rows
    unknown, result = tokenizer.token_to_id("[UNK]"), np.zeros((len(TEXTS), SIZE), "float32")
    for index, text in enumerate(TEXTS):
        ids = [each for each in tokenizer.encode(text, add_special_tokens=False).ids if each != unknown]
        if ids:
            result[index] = rows[ids].mean(axis=0)
    return result / np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12) if normalize else result


@pytest.mark.parametrize("name", MODEL2VEC)
def test_folders_of_model2vec(name, tmp_path):
    tensors, normalize = MODEL2VEC[name]
    folder = write_model2vec(tmp_path / "model", tensors, normalize=normalize)
    expected, scale = means(tensors, normalize), max(1, np.abs(tensors["embeddings"]).max())
    pipe = kf.pipeline(folder)
    assert pipe.task == "sentence-similarity" and pipe.embedding.normalized is normalize
    np.testing.assert_allclose(pipe.encode(TEXTS), expected, atol=EXACT * scale)
    assert not pipe.encode("").any()


def test_model2vec_itself(tmp_path):
    model2vec = need("model2vec")
    for name, (tensors, normalize) in MODEL2VEC.items():
        folder = write_model2vec(tmp_path / name, tensors, normalize=normalize)
        model = kf.load(folder)
        saved = model.save_pretrained(tmp_path / f"{name} saved")
        for each in (folder, saved):
            reference, pipe = model2vec.StaticModel.from_pretrained(each), kf.pipeline(each)
            # The reference averages a table of float16 in float16.
            tolerance = 1e-2 if name == "float16" else EXACT * max(1, np.abs(tensors["embeddings"]).max())
            assert np.abs(pipe.encode(TEXTS) - reference.encode(TEXTS, max_length=None)).max() <= tolerance
            with warnings.catch_warnings(action="ignore", category=TruncationWarning):
                received = pipe.encode(TEXTS, truncation=True, chunk_length=9)
            assert np.abs(received - reference.encode(TEXTS, max_length=9)).max() <= tolerance


@pytest.mark.parametrize("layout", ["root", "subfolder", "normalized"])
def test_folders_of_sentence_transformers(layout, tmp_path):
    folder = tmp_path / "model"
    modules = [StaticEmbedding(backend(), embedding_weights=TABLE), *([Normalize()] if layout == "normalized" else [])]
    prompts = {"query": "rain: "}
    reference = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, similarity_fn_name="dot")
    reference.save(str(folder))
    if layout == "subfolder":  # of earlier versions
        (part := folder / "0_StaticEmbedding").mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            shutil.move(folder / name, part / name)
        entry = {"idx": 0, "name": "0", "path": part.name, "type": "sentence_transformers.models.StaticEmbedding"}
        (folder / "modules.json").write_text(json.dumps([entry]), encoding="utf-8")
    pipe = kf.pipeline(folder)
    with warnings.catch_warnings(action="ignore", category=TruncationWarning):
        received = pipe.encode(TEXTS, truncation=True, chunk_length=TRUNCATED)
    np.testing.assert_allclose(received, reference.encode(TEXTS), atol=EXACT)
    np.testing.assert_allclose(pipe.encode_query("A film"), reference.encode_query("A film"), atol=EXACT)
    assert pipe.embedding.similarity == "dot"
    saved = SentenceTransformer(str(kf.load(folder).save_pretrained(tmp_path / "saved")), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), pipe.encode(TEXTS), atol=EXACT)  # the whole of each text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": TABLE[:-1]}, f"Expected: {len(TABLE)} rows. Received: {len(TABLE) - 1}"),
        ({"embeddings": None, "weights": WEIGHTS}, "must have the tensor embeddings or embedding.weight.*: weights"),
        ({"embeddings": TABLE[0]}, "must be a matrix"),
        ({"embeddings": TABLE[: CLUSTERS - 1], "mapping": MAPPING}, "from 0 to 7. Received: .*, from 0 to 8"),
        ({"embeddings": TABLE[:CLUSTERS], "mapping": MAPPING[1:]}, f"Received: {len(TABLE) - 1}"),
        ({"weights": WEIGHTS[1:]}, "weights must have a number for each token"),
        ({"embeddings": np.where(TABLE > 2, np.nan, TABLE)}, "NaN or infinity"),
    ],
    ids=["another tokenizer", "no table", "no matrix", "mapping", "mapping of others", "weights", "not finite"],
)  # fmt: skip
def test_folders_that_are_damaged(changes, message, tmp_path):
    tensors = {name: value for name, value in {"embeddings": TABLE, **changes}.items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        kf.load(write_model2vec(tmp_path / "model", tensors))


def test_what_a_table_cannot_do(tmp_path):
    folder = write_model2vec(tmp_path / "model", {"embeddings": TABLE}, normalize=True)
    with pytest.raises(
        InputError, match="model2vec has no such task. Expected one of feature-extraction, sentence-sim"
    ):
        kf.pipeline(folder, "text-classification")
    for options, message in (
        ({"quantize": "fp16"}, "format='table' supports quantize='none', 'int8', 'int4'. Received: 'fp16'"),
        ({"calibration": ["A film"]}, "format='table' has none. Remove calibration"),
        ({"lengths": [8]}, "lengths are only for format='tflite'"),
    ):
        with pytest.raises(KerasformerError, match=message):
            export(folder, tmp_path / "bundle", "table", **options)
    with pytest.raises(ExportError, match="Received: bert, which has layers"):
        export(kf.load("sentiment-bert"), tmp_path / "bundle", "table")
    modules = [{"path": "", "type": "sentence_transformers.models.StaticEmbedding"}, {"path": "1", "type": "a.Other"}]
    (folder / "config.json").unlink()
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(KerasformerError, match="only Normalize is supported. Received: a.Other"):
        kf.load(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "modules.json").write_text(json.dumps(modules[:1]), encoding="utf-8")
    with pytest.raises(KerasformerError, match="tokenizer.json is missing"):
        kf.load(folder)


BYTES = {"none": 4 * SIZE, "int8": SIZE + 4, "int4": (SIZE + 1) // 2 + 4}
"""Bytes of a row with its scale."""
COSINES = {"none": 1 - 1e-6, "int8": 0.9999, "int4": 0.99}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tables")
    folder = write_model2vec(root / "model", {"embeddings": TABLE}, normalize=True)
    return {name: export(folder, root / name, "table", name).path for name in BYTES}


@pytest.mark.parametrize("recipe", BYTES)
def test_a_bundle_needs_no_runtime(recipe, bundles):
    pipe, expected = kf.pipeline(bundles[recipe]), means({"embeddings": TABLE}, True)
    assert isinstance(pipe.model, TableForward) and pipe.engine == "numpy"
    received = pipe.encode(TEXTS)
    assert received[4:6].any() == 0 and not expected[4:6].any()
    rest = [index for index, row in enumerate(expected) if row.any()]
    assert ((received * expected).sum(axis=1)[rest] >= COSINES[recipe]).all()
    size = (bundles[recipe] / "table.safetensors").stat().st_size
    assert 0 <= size - BYTES[recipe] * len(TABLE) < 400
    fidelity = verify(pipe.model, bundle.read(bundles[recipe]), bundle.read_references(bundles[recipe])).fidelity
    assert fidelity.cosine >= COSINES[recipe]
    card = (bundles[recipe] / "README.md").read_text(encoding="utf-8")
    assert "It needs no runtime" in card and "TextModel.open(folder, Table())" in card
    assert pipe.encode("").shape == (SIZE,) and not pipe.encode("").any()


def test_bundles_of_token_vectors_and_of_runtimes(tmp_path):
    folder = write_model2vec(tmp_path / "model", {"embeddings": TABLE}, normalize=True)
    of_tokens = kf.pipeline(export(folder, tmp_path / "tokens", "table", task="feature-extraction"))
    first = of_tokens("A film")
    assert first.shape == (len(of_tokens.tokenizer.encode("A film")), SIZE) and of_tokens("").shape == (0, SIZE)
    pooled = of_tokens(["A film", ""], pooling="mean")
    np.testing.assert_allclose(pooled, [first.mean(axis=0), np.zeros(SIZE)], atol=EXACT)
    in_onnx = kf.pipeline(export(folder, tmp_path / "onnx", "onnx"))
    np.testing.assert_allclose(in_onnx.encode(TEXTS), means({"embeddings": TABLE}, True), atol=EXACT)


def test_a_table_that_is_not_that_of_the_manifest(bundles, tmp_path):
    manifest = bundle.read(bundles["int8"])
    (tmp_path / "table.safetensors").write_bytes((bundles["none"] / "table.safetensors").read_bytes())
    assert TableForward(tmp_path, manifest)  # the file says how it is stored
    save_file({"embeddings": TABLE[1:]}, tmp_path / "table.safetensors")
    with pytest.raises(BundleError, match=f"Expected: .*{len(TABLE)}, {SIZE}.*Received: .*{len(TABLE) - 1}, {SIZE}"):
        TableForward(tmp_path, manifest)
    (tmp_path / "table.safetensors").write_bytes(b"\x10")
    with pytest.raises(CheckpointError, match="must be a safetensors file"):
        TableForward(tmp_path, manifest)
