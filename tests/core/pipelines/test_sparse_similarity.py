"""Sparse vectors of texts: those of sentence-transformers, bundles of them, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

import kerasformer as kf
from kerasformer.errors import CapacityError, ExportError, InputError, UnsupportedConfigError
from kerasformer.tokenization.truncation import TruncationWarning
from tests import shared
from tests.core.pipelines.retrieval_folders import SPARSE, write_sparse
from tests.core.pipelines.sentence_folders import change
from tests.tiny_text import CORPUS

TEXTS = [CORPUS[7], CORPUS[0], "Rain.", CORPUS[10], CORPUS[3]]
PROMPTS = {"query": "the query: ", "document": ""}
EXACT = 1e-5


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that returns the folder and the reference of a kind."""
    made: dict[str, tuple[Path, SparseEncoder]] = {}

    def make(kind: str = "bert") -> tuple[Path, SparseEncoder]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("sparse") / kind
            made[kind] = folder, write_sparse(folder, kind, prompts=PROMPTS if kind == "bert" else None)
        return made[kind]

    return make


def dense(pipe: Any, vectors: list[dict[str, float]]) -> np.ndarray:
    result = np.zeros((len(vectors), pipe.info.vocab_size), "float32")
    for row, vector in enumerate(vectors):
        assert list(vector.values()) == sorted(vector.values(), reverse=True)
        for token, weight in vector.items():
            result[row, pipe.tokenizer.token_to_id(token)] = weight
    return result


def assert_close(pipe: Any, theirs: SparseEncoder, texts: list[str] = TEXTS, exact: float = EXACT) -> None:
    expected = theirs.encode(texts, convert_to_sparse_tensor=False).numpy()
    received = dense(pipe, pipe.encode(texts, batch_size=2))
    assert (expected == 0).any() and np.abs(received - expected).max() <= exact * expected.max()
    pair = [encode(texts, convert_to_sparse_tensor=False) for encode in (theirs.encode_query, theirs.encode_document)]
    similar = (pair[0][:2] @ pair[1].T).numpy()
    assert theirs.similarity_fn_name == "dot"
    ranked = [pipe.rank(text, texts) for text in texts[:2]]
    for row, hits in zip(similar, ranked, strict=True):
        assert [hit["score"] for hit in hits] == pytest.approx(sorted(row, reverse=True), rel=exact)


@pytest.mark.parametrize("kind", SPARSE)
def test_vectors_are_those_of_sentence_transformers(kind: str, written: Any, tmp_path: Path) -> None:
    folder, theirs = written(kind)
    model = kf.load(folder)
    pipe = kf.pipeline(model, "sentence-similarity")
    assert pipe.task == model.task == "sparse-similarity" and model.max_length == 60
    assert_close(pipe, theirs)
    saved = model.save_pretrained(tmp_path / "saved")
    assert_close(kf.pipeline(saved), SparseEncoder(str(saved), device="cpu"))
    assert kf.load(saved).sparse == model.sparse


def test_options(written: Any, tmp_path: Path) -> None:
    folder, theirs = written()
    pipe = kf.pipeline(folder, "sentence-similarity")
    whole = pipe.encode(TEXTS[0])
    assert pipe(TEXTS[0], max_active_dims=5) == dict(list(whole.items())[:5])
    assert np.allclose(dense(pipe, list(pipe(iter(TEXTS)))), dense(pipe, pipe(TEXTS)), atol=1e-5)
    assert pipe.encode_query("Rain") == pipe.encode("Rain", prompt_name="query") == pipe.encode("the query: Rain")
    assert pipe.similarity(whole, TEXTS) == pytest.approx(pipe.similarity(TEXTS[0], pipe(TEXTS)), rel=1e-5)
    # A long text has the largest weight of each token in its chunks.
    long = " ".join(CORPUS[:12])
    parts = dense(pipe, [pipe.encode(long), pipe.encode(long, chunk_length=12)])
    with pytest.warns(TruncationWarning):
        start = dense(pipe, [pipe.encode(long, truncation=True)])[0]
    assert (parts[0] >= start - 1e-5).all() and (parts[0] > start + 1e-3).any()
    limited = tmp_path / "limited"
    kf.load(folder).save_pretrained(limited)
    change(limited, "config_sentence_transformers.json", max_active_dims=7)
    assert len(kf.pipeline(limited)("Rain")) == 7


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "dense": ({"normalize": True}, "Received: normalize, an option of dense embeddings"),
    "unknown": ({"limit": 3}, "Sparse vectors have the options .*Received: limit$"),
    "prompt": ({"prompt_name": "other"}, "no prompt of this name"),
    "number": ({"max_active_dims": 0}, "max_active_dims must be"),
    "text": ({"texts": 3}, "A text or a list of them was expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str, written: Any) -> None:
    arguments, message = BAD[name]
    with pytest.raises(InputError, match=message):
        kf.pipeline(written()[0]).encode(**{"texts": TEXTS[0], **arguments})


def test_models_and_vectors_of_other_kinds(written: Any) -> None:
    folder, _ = written()
    pipe = kf.pipeline(folder)
    for vectors in (np.ones((2, 3)), [[1.0, 2.0]], {"rain": "1"}):
        with pytest.raises(InputError, match="A sparse vector must be a dictionary"):
            pipe.similarity("Rain", vectors)
    with pytest.raises(InputError, match="This source is for sparse-similarity"):
        kf.pipeline(kf.load(folder), "fill-mask")
    with pytest.raises(InputError, match="sparse-similarity needs a masked language model"):
        kf.pipeline(kf.load(folder, "fill-mask"), "sparse-similarity")
    summing = kf.pipeline(written("distilbert")[0])
    with pytest.raises(CapacityError, match="maximum length"):
        summing(" ".join(CORPUS))
    with pytest.raises(InputError, match="not split into chunks"):
        summing("Rain", chunk_length=9)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "pooling": ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "only pooling_strategy='max' or 'sum'"),
    "activation": ("1_SpladePooling/config.json", {"activation_function": "gelu"}, "only activation_function="),
    "size": ("1_SpladePooling/config.json", {"embedding_dimension": 3}, "Received: embedding_dimension=3"),
    "similarity": ("config_sentence_transformers.json", {"similarity_fn_name": "cosine"}, "similarity_fn_name='dot'"),
    "task": ("sentence_bert_config.json", {"transformer_task": "feature-extraction"}, "transformer_task='fill-mask'"),
    "expansion": ("sentence_bert_config.json", {"query_expansion": {"length": 9}}, "query_expansion=None"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_not_implemented_are_refused(name: str, written: Any, tmp_path: Path) -> None:
    file, changes, message = REFUSED[name]
    kf.load(written()[0]).save_pretrained(tmp_path / "model")
    change(tmp_path / "model", file, **changes)
    with pytest.raises(UnsupportedConfigError, match=message):
        kf.load(tmp_path / "model")


def test_other_modules_are_refused(written: Any, tmp_path: Path) -> None:
    kf.load(written()[0]).save_pretrained(tmp_path / "model")
    modules = '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.router.Router"}]'
    (tmp_path / "model" / "modules.json").write_text(modules)
    with pytest.raises(UnsupportedConfigError, match="unsupported modules for sparse vectors.*Received: Router"):
        kf.load(tmp_path / "model")


@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_bundles_have_the_vectors_of_sentence_transformers(format: str, written: Any) -> None:
    folder, theirs = written()
    bundle = shared.exported(kf.load(folder), format, "none")
    assert_close(kf.pipeline(bundle, "sentence-similarity"), theirs)
    small = kf.pipeline(shared.exported(kf.load(folder), format, "int8"))
    order = [hit["corpus_id"] for hit in small.rank(TEXTS[0], TEXTS)]
    assert order == [hit["corpus_id"] for hit in kf.pipeline(folder).rank(TEXTS[0], TEXTS)]


def test_exports_that_are_refused(written: Any, tmp_path: Path) -> None:
    model = kf.load(written()[0])
    for target in ("mediapipe", "optimum", "transformers.js"):
        with pytest.raises((ExportError, InputError), match="sparse-similarity|BertSparseSimilarity"):
            model.export(tmp_path / "bundle", target=target)
