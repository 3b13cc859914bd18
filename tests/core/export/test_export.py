"""Whole exports: bundles of small models in every format and recipe, used like users would use them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import safetensors.numpy

import kerasformer as kf
from kerasformer import bundle, errors
from kerasformer.basics.tasks import PRETRAINING
from kerasformer.bundle.architectures import find
from kerasformer.bundle.manifest import _digest
from kerasformer.engines import ENGINES
from kerasformer.engines.fidelity.comparison import compare
from kerasformer.engines.fidelity.verification import verify
from kerasformer.errors import (
    BundleError,
    CapacityError,
    CheckpointError,
    ExportError,
    ExportMismatchError,
    InputError,
    TokenizerError,
)
from kerasformer.export import builder as artifact
from kerasformer.export import child_process as child
from kerasformer.export import reference_texts as texts
from kerasformer.export.formats.onnx import rounding as onnx_rounding
from kerasformer.export.formats.tflite import storage as tflite_storage
from kerasformer.tokenization.truncation import TruncationWarning
from tests.core.export.other_backend import exported_on_jax
from tests.core.export.text_models import CAPACITY, OTHERS, ROWS, shared_bundle, shared_model, size_options
from tests.core.pipelines.agreement import assert_same
from tests.core.zoo.cases import OPERATORS, RELATIVES
from tests.grids import grid, repeats
from tests.keras_pipelines import keras_pipeline
from tests.margins import check_tokens

TEXTS = ["Rain is expected.", "The museum is closed on Mondays", "What a waste!", "A clumsy, cold film."]
GENERATING = [name for name, row in ROWS.items() if "generation" in row.task]
FORMATS = ["tflite", "onnx"]
IN_FLOAT32 = [*FORMATS, "saved-model"]

# Inputs of each task's pipeline: texts of unequal length, more than one batch.
CALLS: dict[str, Callable[..., Any]] = {
    "text-classification": lambda pipe: pipe(TEXTS, top_k=None, batch_size=3),
    "token-classification": lambda pipe: [
        pipe(TEXTS, aggregation_strategy=way, batch_size=3, ignore_labels=()) for way in ("none", "first")
    ],
    "question-answering": lambda pipe: pipe(
        question=["Who plays?", "When?"], context=[texts.READING[0], TEXTS[1]], top_k=3, doc_stride=4
    ),
    "fill-mask": lambda pipe: pipe(
        [
            text.replace("[MASK]", pipe.tokenizer.mask_token)
            for text in ("The [MASK] is closed.", "What [MASK] is [MASK]?")
        ],
        top_k=3,
    ),
    "feature-extraction": lambda pipe: [
        pipe(TEXTS, pooling="mean", normalize=True).ravel().tolist(),
        [states.ravel().tolist() for states in pipe(TEXTS[:2])],
    ],
    "sentence-similarity": lambda pipe: [
        pipe.encode(TEXTS, batch_size=3).ravel().tolist(),
        pipe.encode_query(TEXTS[0], truncate_dim=9).tolist(),
        pipe.similarity(TEXTS[0], TEXTS)[0].tolist(),
    ],
    # Sums of many products, up to 78.
    "sparse-similarity": lambda pipe: (pipe.similarity(TEXTS[:2], TEXTS) / 100).ravel().tolist(),
    "multi-vector-similarity": lambda pipe: (pipe.similarity(TEXTS[:2], TEXTS) / 100).ravel().tolist(),
    "text-generation": lambda pipe: [
        pipe(TEXTS, max_new_tokens=8, batch_size=3),
        pipe(TEXTS[:2], max_new_tokens=6, num_beams=3, num_return_sequences=2, return_full_text=False),
        "".join(pipe.stream(TEXTS[0], max_new_tokens=8)),
        pipe(TEXTS[1], max_new_tokens=8, temperature=0.8, seed=5),
    ],
    "text2text-generation": lambda pipe, batch_size=3: [
        pipe(TEXTS, max_new_tokens=8, batch_size=batch_size),
        pipe(TEXTS[:2], max_new_tokens=6, num_beams=3, num_return_sequences=2, batch_size=batch_size),
        "".join(pipe.stream(TEXTS[0], max_new_tokens=8)),
    ],
}


def call(name: str, pipe: Any) -> Any:
    """Returns the answers of a pipeline, text by text if those of the model depend on the batch (BigBird-Pegasus)."""
    alone = getattr(shared_model(name).backbone, "batch_dependent", False)
    return CALLS[pipe.task](pipe, **({"batch_size": 1} if alone else {}))


@pytest.fixture(scope="module")
def answers() -> Callable[[str], Any]:
    """Returns a function from the name of a row to the answers of Keras."""
    made: dict[str, Any] = {}

    def answer(name: str) -> Any:
        if name not in made:
            made[name] = call(name, keras_pipeline(shared_model(name)))
        return made[name]

    return answer


TRIO = ("bert-text-classification", "gpt2-text-generation", "t5-text2text-generation")
"""An encoder, a decoder and an encoder-decoder, which run without marks in both formats, in float32 and in int8."""
FIRST = list({row.model_type: name for name, row in reversed(ROWS.items()) if row.model_type not in RELATIVES}.values())
"""One row of each architecture with layers of its own."""
EXPORTS = [("tflite", "int8"), ("onnx", "none"), ("tflite", "none"), ("onnx", "int8")]
CHOSEN = {
    (name, *EXPORTS[number % len(EXPORTS)])
    for number, name in enumerate(name for name in FIRST if ROWS[name].model_type not in OPERATORS)
}
"""What CI exports: each architecture with operators of its own once, in all formats and recipes in turn."""
FOUR_BITS = {(name, format, "int4") for name in TRIO for format in FORMATS}
"""What CI exports in four bits, for a recipe sees matrices and not architectures."""
SAVED_MODELS = {"gpt2-text-generation", "t5-text2text-generation", "bert-sentence-similarity"}
"""Plain SavedModels that CI runs here; tests/foreign/test_saved_model.py runs all layers before a release."""


def before_a_release(name: str, format: str, quantize: str = "none") -> bool:
    """Whether a bundle waits for a release, since CI exports its parts in other combinations."""
    if format == "saved-model":
        return name not in SAVED_MODELS
    return (name, format, quantize) not in CHOSEN | FOUR_BITS


def always(name: str, format: str, quantize: str = "none") -> bool:
    """Whether a bundle is also exported without marks."""
    return name in TRIO and format in FORMATS and quantize in ("none", "int8")


FLOAT32 = grid(ROWS, IN_FLOAT32, always=always, release=before_a_release)


@pytest.mark.bundles(quantize="none")
@pytest.mark.parametrize(("name", "format"), FLOAT32)
def test_f32_answers_are_those_of_keras(name, format, answers):
    folder = shared_bundle(name, format)
    figures = bundle.read(folder).fidelity
    assert figures["max_error"] <= 1e-4
    assert figures["agreement"] == 1.0 and figures["answers"] >= 32
    assert figures["generated"] == (1.0 if name in GENERATING else None)
    pipe = kf.pipeline(folder)
    assert (pipe.task, pipe.engine) == (ROWS[name].task, ENGINES[format])
    assert_same(call(name, pipe), answers(name))


HEADS = [(row.task, find(row.model_type).branch) for row in (*ROWS.values(), *OTHERS.values())]
"""The head of each row, on an encoder, a decoder or both; the layers are those of the rows of the architecture."""
REPEATED_HEADS = {name for name, repeated in zip((*ROWS, *OTHERS), repeats(zip(HEADS)), strict=True) if repeated}


@pytest.mark.bundles(format=FORMATS, quantize="none")
@pytest.mark.parametrize(
    "name",
    grid(OTHERS, always=("albert-question-answering", "llama-text-classification"), release=REPEATED_HEADS),
)
@pytest.mark.grid
def test_every_other_head(name, tmp_path):
    model = OTHERS[name].model()
    expected = CALLS[model.task](keras_pipeline(model)) if model.task in CALLS else None
    for format in FORMATS:
        # As long as the model's texts, which Keras and the file then read in the same chunks.
        lengths = (min(model.max_length or 96, 96),)
        folder = kf.export.export(model, tmp_path / format, format, **size_options(model, format, lengths, 64))
        assert bundle.read(folder).fidelity["max_error"] <= 1e-4
        if expected is not None:
            assert_same(CALLS[model.task](kf.pipeline(folder)), expected)
    assert expected is not None or model.task in PRETRAINING


# Embeddings have the matrices of their encoder; one row tests their gate, since random weights give no cosine to judge.
QUANTIZED = [name for name in ROWS if not name.endswith("sentence-similarity")]
IN_EIGHT_OR_FOUR_BITS = grid(QUANTIZED, FORMATS, ["int8", "int4"], always=always, release=before_a_release)


@pytest.mark.bundles()
@pytest.mark.parametrize(
    ("name", "format", "quantize"),
    [
        *IN_EIGHT_OR_FOUR_BITS,
        *grid(
            ["gpt2-text-generation"],
            FORMATS,
            ["int4_channel"],
            always=(),
            others="release",
        ),
        *grid(["llama-text-generation"], FORMATS, ["int4_mixed"], always=()),
        pytest.param("bert-sentence-similarity", "tflite", "int8", marks=pytest.mark.grid),
    ],
)
def test_a_quantized_bundle_is_small_and_faithful(name, format, quantize):
    folder, model = shared_bundle(name, format, quantize), shared_model(name)
    manifest, recipe = bundle.read(folder), ROWS[name].recipe(quantize)
    assert manifest.recipe["name"] == quantize
    assert manifest.fidelity["max_error"] <= recipe.tolerance
    assert manifest.fidelity["agreement"] >= recipe.min_agreement
    assert manifest.fidelity["max_error"] > 1e-4, "nothing was quantized"
    assert model_bytes(folder) < 0.8 * 4 * model.count_params(), "with the graph, a large part of these small files"
    if "classification" in name:  # otherwise agreement would be meaningless
        indices = bundle.read_references(folder)["output.logits.indices"][..., 0]
        assert len(np.unique(indices)) > 1
    pipe = kf.pipeline(folder)
    if always(name, format, quantize):  # the export compared every bundle like this
        again = compare(pipe.model, bundle.read_references(folder))
        assert again.agreement == manifest.fidelity["agreement"]
        assert again.max_error == pytest.approx(manifest.fidelity["max_error"], rel=1e-3)
        CALLS[model.task](pipe)
    # Each token is the best one of Keras, but for the measured effect of rounding; 4-bit random weights have near ties.
    if model.generates and quantize == "int8":
        greedy = {"do_sample": False, "max_new_tokens": 8}
        outputs = [pipe(text, return_dict_in_generate=True, **greedy) for text in TEXTS]
        prompts = [model.tokenizer.encode(text) for text in TEXTS]
        check_tokens(model, folder, prompts, [output.sequences[0].tolist() for output in outputs], 8, greedy)


def model_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx"))


# Content of a bundle.


@pytest.mark.parametrize("format", grid(IN_FLOAT32, always=FORMATS))
def test_a_bundle_is_complete(format):
    folder, model = shared_bundle("t5-text2text-generation", format), shared_model("t5-text2text-generation")
    manifest = bundle.read(folder)
    assert {"config.json", "generation_config.json", "tokenizer.json", "references.npz", "README.md"} <= set(
        manifest.files
    )
    assert set(manifest.files) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {"kerasformer.json"}
    assert (manifest.capacity, manifest.encoder_capacity, manifest.info.max_length) == (CAPACITY, 64, 64)
    assert manifest.info.decoder_start_token_id == 0 and manifest.info.eos_token_id == (1,)
    assert {"kerasformer", "keras", "tensorflow"} <= set(manifest.versions)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [model.architecture] and config["d_kv"] == 24


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("format", FORMATS)
def test_signatures_of_earlier_versions_are_ignored(format, version, tmp_path):
    """Bundles for vocabulary shortlists had steps that return states, and a function that reads a list of ids."""
    original = shared_bundle("t5-text2text-generation", format)
    folder = shutil.copytree(original, tmp_path / "out")
    content = json.loads((folder / bundle.MANIFEST).read_text())
    step = next(each for each in content["signatures"].values() if each["role"] == "decode")
    caches = {name: info for name, info in step["outputs"].items() if name != "logits"}
    states = {"shape": [1, 1, 64], "dtype": "float32", "kind": "output_states"}
    ids = {"shape": [256], "dtype": "int32", "kind": "ids"}
    rows = {"shape": [256, 64], "dtype": "float32", "kind": "output_row"}
    lookup = {"inputs": {"input_ids": ids}, "outputs": {"output_rows": rows}, "rows": None, "tokens": None}
    content["signatures"] |= {
        "states": {**step, "role": "states", "outputs": {"output_states": states, **caches}},
        "output_rows": {**step, **lookup, "role": "output_rows"},
    }
    if version == 1:
        for signature in content["signatures"].values():
            for side in ("inputs", "outputs"):
                infos = signature[side].items()
                signature[side] = {name: {key: info[key] for key in ("shape", "dtype")} for name, info in infos}
            signature["role"] = None
    content["format_version"] = version
    del content["manifest_sha256"]
    content["manifest_sha256"] = _digest(content)
    (folder / bundle.MANIFEST).write_text(json.dumps(content))
    bundles = [kf.pipeline(each) for each in (original, folder)]
    expected, actual = (pipe(TEXTS, max_new_tokens=6, num_beams=2) for pipe in bundles)
    assert actual == expected
    manifest = bundle.read(folder)
    found = verify(bundles[1].model, manifest, bundle.read_references(folder))
    assert not found.failed(manifest.promise)


def test_texts_of_the_user(tmp_path):
    model = shared_model("bert-feature-extraction")
    own = ["Rain.", "Rain, rain and wind from the sea, and then the end."]
    folder = kf.export.export(model, tmp_path / "own", "tflite", lengths=(8,), texts=own)
    references = bundle.read_references(folder)
    rows = [
        ids[mask > 0].tolist()
        for ids, mask in zip(references["input.input_ids"], references["input.attention_mask"], strict=True)
    ]
    assert rows == [model.tokenizer.encode(text)[:8] for text in own]
    assert len(rows[0]) < len(rows[1]) == 8


def test_a_model_without_tokenizer(tmp_path):
    model = ROWS["bert-text-classification"].model()
    model.tokenizer = None
    folder = kf.export.export(model, tmp_path / "bare", "onnx")
    assert bundle.read(folder).fidelity["answers"] == len(texts.READING)
    with pytest.raises(TokenizerError):
        kf.pipeline(folder)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["bert-text-classification", "t5-text2text-generation"])
def test_texts_longer_than_the_bundle(name, format):
    pipe = kf.pipeline(shared_bundle(name, format), num_threads=1)
    long = " ".join(texts.READING[:6])
    with pytest.warns(TruncationWarning):
        cut = pipe([TEXTS[0], long], truncation=True)
    if name in GENERATING:
        with pytest.raises(CapacityError, match="at most 64 tokens"):
            pipe([TEXTS[0], long])
    else:  # read in overlapping segments
        whole = pipe([TEXTS[0], long])
        assert whole[0] == cut[0] and whole[1]["score"] != cut[1]["score"]


# Refusals.


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.grid
def test_a_wrong_scale_is_refused_and_nothing_is_written(format, tmp_path, monkeypatch):
    """Stores one matrix of the model with a quarter of the right scale."""
    corrupted = []

    def wrong_content(matrix: np.ndarray, form: Any, scale: Any = None) -> Any:
        if scale is not None and matrix.shape == (288, 72) and not corrupted:
            corrupted.append(matrix.shape)
            scale = 4 * scale
        return content(matrix, form, scale)

    def wrong_quantize(matrix: np.ndarray, pairs: bool) -> Any:
        levels, scales = quantize(matrix, pairs)
        if matrix.shape == (288, 72) and not corrupted:
            corrupted.append(matrix.shape)
            levels = levels // 4
        return levels, scales

    content, quantize = tflite_storage.content, onnx_rounding.in_channels
    monkeypatch.setattr(tflite_storage, "content", wrong_content)
    monkeypatch.setattr(onnx_rounding, "in_channels", wrong_quantize)
    with pytest.raises(ExportMismatchError, match=r"agreement .* of \d+ answers; .*largest error 0\.\d+ of the scale"):
        kf.export.export(shared_model("gpt2-text-classification"), tmp_path / "out", format, "int8")
    assert corrupted == [(288, 72)]
    assert not list(tmp_path.iterdir())


def test_damaged_shards_are_named_and_nothing_is_written(tmp_path, monkeypatch):
    """Whether a file is incomplete from the start, or changes after it was loaded."""
    source = shared_model("gpt2-text-classification").save_pretrained(tmp_path / "source")
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    files = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(tensors)}
    for file in set(files.values()):
        safetensors.numpy.save_file({n: tensor for n, tensor in tensors.items() if files[n] == file}, source / file)
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    shard = source / "model-1.safetensors"
    complete = shard.read_bytes()
    write = artifact.BundleBuilder.write

    def truncate_and_write(builder: artifact.BundleBuilder, recipe: Any) -> int:
        shard.write_bytes(complete[:-100])
        return write(builder, recipe)

    shard.write_bytes(complete[:-100])
    with pytest.raises(CheckpointError, match=f"{shard} is not a complete safetensors file.*Download or copy it again"):
        kf.export.export(source, tmp_path / "out", "onnx", "int8")
    shard.write_bytes(complete)
    monkeypatch.setattr(artifact.BundleBuilder, "write", truncate_and_write)
    with pytest.raises(CheckpointError, match=f"{shard} was changed after it was opened. Expected: .* values of"):
        kf.export.export(source, tmp_path / "out", "onnx", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_the_destination(tmp_path, monkeypatch):
    model = shared_model("gpt2-text-classification")
    folder = shutil.copytree(shared_bundle("gpt2-text-classification", "onnx"), tmp_path / "out")
    before = bundle.checksums(folder)
    with pytest.raises(BundleError, match="overwrite"):
        kf.export.export(model, folder, "onnx")
    with monkeypatch.context() as broken, pytest.raises(ExportMismatchError):
        broken.setattr(artifact, "verify", _refuse)
        kf.export.export(model, folder, "onnx", overwrite=True)
    assert bundle.checksums(folder) == before
    kf.export.export(model, folder, "onnx", "int8", overwrite=True)
    assert bundle.read(folder).recipe["name"] == "int8"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear friend")
    with pytest.raises(BundleError):
        kf.export.export(model, other, "onnx", overwrite=True)
    assert [path.name for path in other.iterdir()] == ["letter.txt"]


def _refuse(*arguments: Any, **options: Any) -> None:
    raise ExportMismatchError("refused")


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    (
        "bert-text-classification",
        {"format": "coreml"},
        ExportError,
        "tflite, onnx, saved-model, table, litert, saved_model. Received: 'coreml'",
    ),
    (
        "bert-text-classification",
        {"quantize": "int3"},
        ExportError,
        "int4_distilled, int4_channel, stored, int8_trained, int4_trained. Received: 'int3'",
    ),
    ("bert-text-classification", {"task": "fill-mask"}, InputError, "is text-classification. Received: task="),
    ("bert-text-classification", {"progress": 3}, InputError, "progress must be .*a function"),
    ("bert-text-classification", {"quantize": ["int8"]}, ExportError, r"Unknown .*recipe.*Received: \['int8'\]"),
    ("t5-text2text-generation", {"capacity": 10**9}, InputError, "capacity must be an integer from 1 to 65536"),
    ("bert-text-classification", {"lengths": (16, 65)}, InputError, r"between 1 and 64. Received: \[16, 65\]"),
    ("bert-text-classification", {"texts": []}, InputError, "list of at least one text"),
    ("gpt2-text-generation", {"capacity": 97}, InputError, "between 2 and 96. Received: capacity=97"),
    ("gpt2-text-generation", {"task": "summarization"}, InputError, "is text-generation"),
]


@pytest.mark.parametrize(("name", "options", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_invalid_options(name, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kf.export.export(shared_model(name), tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_invalid_models(tmp_path):
    for source in (keras.Sequential([keras.layers.Dense(2)]), 3):
        with pytest.raises(ExportError, match=f"Received: {type(source).__name__}"):
            kf.export.export(source, tmp_path / "out")
    with pytest.raises(errors.SourceError):
        kf.export.export(tmp_path / "nothing", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", grid(IN_FLOAT32, always=FORMATS))
def test_a_changed_bundle_is_refused(format, tmp_path):
    folder = shutil.copytree(shared_bundle("gpt2-text-generation", format), tmp_path / "changed")
    manifest = bundle.read(folder)
    for name in ("tokenizer.json", manifest.signatures[next(iter(manifest.signatures))].file):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
        with pytest.raises(BundleError, match=f"{name} must have sha256"):
            kf.pipeline(folder)
        (folder / name).write_bytes(content)
    assert kf.pipeline(folder)(TEXTS[0], max_new_tokens=2)
    (folder / "README.md").unlink()
    with pytest.raises(BundleError, match=r"README\.md is missing"):
        kf.pipeline(folder)


def test_the_wrong_task_for_a_bundle():
    with pytest.raises(InputError, match="for text-generation"):
        kf.pipeline(shared_bundle("gpt2-text-generation", "onnx"), "summarization")
    assert kf.pipeline(shared_bundle("t5-text2text-generation", "onnx"), "translation").task == "translation"


# Keras on another backend: a child process does the export.


@pytest.mark.grid
def test_export_under_another_backend():
    manifest = bundle.read(exported_on_jax("tflite"))
    assert set(manifest.signatures) == {"forward_16", "forward_32"}
    # Only the two texts; the one that is made up for the longer signature is not compared.
    assert (manifest.recipe["name"], manifest.fidelity["answers"]) == ("int8", 2)
    assert manifest.info.max_length == 32


def test_a_childs_error_keeps_its_type():
    log = "Traceback …\n  raise\nkerasformer.errors.ExportMismatchError: The file differs. Received: 3\n"
    error = child._child_error(log)
    assert type(error) is ExportMismatchError and str(error) == "The file differs. Received: 3"
    assert "Killed" in str(child._child_error("Killed\n")) and type(child._child_error("Killed")) is ExportError
