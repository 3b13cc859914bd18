"""Vectors of tokens: those of sentence-transformers, PyLate and BGE-M3, bundles of them, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder

import kerasformer as kf
from kerasformer.errors import (
    CapacityError,
    CheckpointError,
    ExportError,
    InputError,
    KerasformerError,
    UnsupportedConfigError,
)
from kerasformer.tokenization.truncation import TruncationWarning
from tests import shared
from tests.core.pipelines.retrieval_folders import (
    MULTI_VECTOR,
    UnifiedModel,
    write_colbert,
    write_multi_vector,
    write_pylate,
    write_unified,
)
from tests.core.pipelines.sentence_folders import change
from tests.tiny_text import CORPUS

TEXTS = ["Rain.", CORPUS[7], CORPUS[10], CORPUS[3]]
QUERIES = ["Rain and the sea", "a warm evening!"]
EXACT = 1e-5
TASK = "multi-vector-similarity"
KINDS = ("dense", "sparse", "multi_vector")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that returns the folder and the reference of a kind."""
    made: dict[str, tuple[Path, Any]] = {}
    writers = {"pylate": write_pylate, "bge-m3": write_unified, "colbert": write_colbert}

    def make(kind: str = "bert") -> tuple[Path, Any]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("vectors") / kind
            write = writers.get(kind)
            made[kind] = folder, write_multi_vector(folder, kind) if write is None else write(folder)
        return made[kind]

    return make


def assert_close(pipe: Any, theirs: MultiVectorEncoder, exact: float = EXACT) -> None:
    for encode, reference, texts in (
        (pipe.encode_query, theirs.encode_query, QUERIES),
        (pipe.encode_document, theirs.encode_document, TEXTS),
    ):
        for received, expected in zip(encode(texts, batch_size=2), reference(texts), strict=True):
            assert received["multi_vector"].shape == tuple(expected.shape)
            scale = float(expected.abs().max())
            assert np.abs(received["multi_vector"] - expected.numpy()).max() <= exact * scale
    similar = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)).numpy()
    assert pipe.similarity(QUERIES, TEXTS) == pytest.approx(similar, rel=exact)
    assert [hit["corpus_id"] for hit in pipe.rank(QUERIES[0], TEXTS)] == np.argsort(-similar[0]).tolist()


@pytest.mark.parametrize("kind", [*MULTI_VECTOR, "pylate", "colbert"])
def test_vectors_are_those_of_sentence_transformers(kind: str, written: Any, tmp_path: Path) -> None:
    folder, theirs = written(kind)
    model = kf.load(folder)
    pipe = kf.pipeline(model, "sentence-similarity")
    assert pipe.task == model.task == TASK and pipe.kinds == ("multi_vector",)
    assert_close(pipe, theirs)
    saved = model.save_pretrained(tmp_path / "saved")
    assert kf.load(saved).vectors == model.vectors
    assert_close(pipe, MultiVectorEncoder(str(saved), device="cpu"))


def test_pylate_without_expansion_and_with_attention(tmp_path: Path) -> None:
    plain = write_pylate(tmp_path / "plain", do_query_expansion=False, skiplist_words=None)
    pipe = kf.pipeline(tmp_path / "plain")
    assert_close(pipe, plain)
    assert pipe.embedding.query_length == 30 and "?" in pipe.embedding.skiplist
    unmasked = {"mask_punctuation": False, "attend_to_mask_tokens": True, "query_maxlen": None}
    of_colbert = write_colbert(tmp_path / "colbert", **unmasked)
    pipe = kf.pipeline(tmp_path / "colbert")
    assert pipe.embedding.expansion_length == 32 and not pipe.embedding.skiplist
    assert pipe.embedding.document_length == 60
    assert_close(pipe, of_colbert)
    write_colbert(tmp_path / "distances", similarity="l2")
    with pytest.raises(UnsupportedConfigError, match="similarity='cosine'.*Received: similarity='l2'"):
        kf.load(tmp_path / "distances")
    attending = write_pylate(tmp_path / "attending", attend_to_expansion_tokens=True)
    pipe = kf.pipeline(tmp_path / "attending")
    assert "expansion_mask" not in pipe.info.input_names
    assert_close(pipe, attending)


def compare_unified(pipe: Any, theirs: UnifiedModel, exact: float = EXACT) -> None:
    for text, received in zip(TEXTS, pipe.encode(TEXTS, batch_size=3), strict=True):
        dense, lexical, vectors = theirs.vectors(text)
        assert np.abs(received["dense"] - dense.numpy()).max() <= exact
        assert received["sparse"] == pytest.approx(lexical, rel=exact, abs=exact)
        assert received["multi_vector"].shape == vectors.shape
        assert np.abs(received["multi_vector"] - vectors.numpy()).max() <= exact
    scores = [[theirs.scores(query, text) for text in TEXTS] for query in QUERIES]
    for weights in (
        {"dense": 1},
        {"sparse": 2},
        {"multi_vector": 1.0},
        {"dense": 0.4, "sparse": 0.2, "multi_vector": 0.4},
        None,
    ):
        used = weights or dict.fromkeys(KINDS, 1)
        total = sum(used.values())
        expected = [[sum(w * each[kind] for kind, w in used.items()) / total for each in row] for row in scores]
        assert pipe.similarity(QUERIES, TEXTS, weights=weights) == pytest.approx(
            np.array(expected), rel=10 * exact, abs=exact
        )


def test_vectors_and_scores_of_bge_m3(written: Any, tmp_path: Path) -> None:
    folder, theirs = written("bge-m3")
    assert kf.pipeline(folder).task == "sentence-similarity"  # the dense vectors alone
    model = kf.load(folder, TASK)
    pipe = kf.pipeline(model)
    assert pipe.kinds == KINDS
    compare_unified(pipe, theirs)
    dense = kf.pipeline(folder).encode(TEXTS)
    assert np.abs(np.stack([each["dense"] for each in pipe(TEXTS)]) - dense).max() < EXACT
    best = pipe.rank(QUERIES[0], TEXTS, weights={"sparse": 1}, top_k=2)
    assert [each["score"] for each in best] == pytest.approx(
        sorted(pipe.similarity(QUERIES[:1], TEXTS, {"sparse": 1})[0])[::-1][:2]
    )
    saved = model.save_pretrained(tmp_path / "saved")
    assert kf.load(saved, TASK).vectors == model.vectors
    compare_unified(kf.pipeline(saved, TASK), UnifiedModel(saved))


def test_heads_of_bge_m3_hold_nothing_but_tensors(tmp_path: Path) -> None:
    write_unified(tmp_path / "model")
    torch.save({"weight": torch.nn.Linear(2, 2)}, tmp_path / "model" / "sparse_linear.pt")
    with pytest.raises(CheckpointError, match="contains more than weights, and code in checkpoints is never executed"):
        kf.load(tmp_path / "model", TASK)
    torch.save({"weight": torch.zeros(2, 24)}, tmp_path / "model" / "sparse_linear.pt")
    with pytest.raises(CheckpointError, match="sparse_linear.pt/bias"):
        kf.load(tmp_path / "model", TASK)


BAD: dict[str, tuple[dict[str, Any], type[KerasformerError], str]] = {
    "dense option": ({"normalize": True}, InputError, "Vectors of tokens have the options .*Received: normalize"),
    "kind": ({"text_type": "passage"}, InputError, "text_type must be"),
    "prompt": ({"prompt_name": "other"}, InputError, "no prompt of this name"),
    "text": ({"texts": 3}, InputError, "A text or a list of them was expected"),
    "document": ({"texts": "rain " * 80}, CapacityError, "A document is too long. Expected: at most 60 tokens"),
    "query": (
        {"texts": "rain " * 40, "text_type": "query"},
        CapacityError,
        "A query is too long. Expected: at most 30",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str, written: Any) -> None:
    arguments, error, message = BAD[name]
    with pytest.raises(error, match=message):
        kf.pipeline(written()[0]).encode(**{"texts": TEXTS[0], **arguments})


def test_long_texts_are_truncated_on_request(written: Any) -> None:
    folder, theirs = written()
    pipe, text = kf.pipeline(folder), " ".join(CORPUS)
    with pytest.warns(TruncationWarning):
        received = pipe.encode_query(text, truncation=True)["multi_vector"]
    assert np.abs(received - theirs.encode_query(text).numpy()).max() < EXACT
    assert [each["multi_vector"].shape for each in pipe(iter(TEXTS))] == [x["multi_vector"].shape for x in pipe(TEXTS)]


def test_models_and_vectors_of_other_kinds(written: Any) -> None:
    pipe = kf.pipeline(written()[0])
    for vectors in (np.ones((2, 3)), [{"rain": 1.5}], [[1.0]]):
        with pytest.raises(InputError, match="dictionaries with multi_vector"):
            pipe.similarity("Rain", vectors)
    for weights in ({"dense": 1.0}, {"multi_vector": 0}, {}):
        with pytest.raises(InputError, match="at least one positive weight, of the kinds multi_vector"):
            pipe.similarity("Rain", "Sea", weights=weights)
    with pytest.raises(InputError, match="weights"):
        pipe.similarity("Rain", "Sea", weights={"colbert": 1})
    with pytest.raises(InputError, match="This source is for multi-vector-similarity"):
        kf.pipeline(kf.load(written()[0]), "fill-mask")


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "similarity": ("config_sentence_transformers.json", {"similarity_fn_name": "xtr"}, "similarity_fn_name must be"),
    "residual": ("1_Dense/config.json", {"use_residual": True}, "only use_residual=False"),
    "of texts": ("1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "only module_input_name="),
    "images": ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "only keep_only_token_ids=None"),
    "queries": ("2_MultiVectorMask/config.json", {"skiplist_tasks": ["query"]}, "only skiplist_tasks="),
    "expansion": ("sentence_bert_config.json", {"query_expansion": {"strategy": "all", "length": 9}}, "strategy"),
    "unknown": ("sentence_bert_config.json", {"query_expansion": {"strategy": "min"}}, "has or lacks length"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_not_implemented_are_refused(name: str, written: Any, tmp_path: Path) -> None:
    file, changes, message = REFUSED[name]
    kf.load(written()[0]).save_pretrained(tmp_path / "model")
    change(tmp_path / "model", file, **changes)
    with pytest.raises(UnsupportedConfigError, match=message):
        kf.load(tmp_path / "model")


@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_bundles_have_the_vectors_of_sentence_transformers(format: str, written: Any) -> None:
    folder, theirs = written()
    assert_close(kf.pipeline(shared.exported(kf.load(folder), format, "none"), "sentence-similarity"), theirs)
    small = kf.pipeline(shared.exported(kf.load(folder), format, "int8"))
    order = [hit["corpus_id"] for hit in kf.pipeline(folder).rank(QUERIES[0], TEXTS)]
    assert [hit["corpus_id"] for hit in small.rank(QUERIES[0], TEXTS)] == order


@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_bundles_have_the_vectors_of_bge_m3(format: str, written: Any) -> None:
    folder, theirs = written("bge-m3")
    compare_unified(kf.pipeline(shared.exported(kf.load(folder, TASK), format, "none")), theirs)
    small = kf.pipeline(shared.exported(kf.load(folder, TASK), format, "int8"))
    order = [hit["corpus_id"] for hit in kf.pipeline(folder, TASK).rank(QUERIES[0], TEXTS)]
    assert [hit["corpus_id"] for hit in small.rank(QUERIES[0], TEXTS)] == order


def test_exports_that_are_refused(written: Any, tmp_path: Path) -> None:
    model = kf.load(written()[0])
    with pytest.raises(InputError, match="tokenizer is not for models of vectors of tokens"):
        model.export(tmp_path / "bundle", "litert", tokenizer="in-graph")
    for target in ("mediapipe", "optimum", "transformers.js"):
        with pytest.raises((ExportError, InputError), match="multi-vector-similarity|BertMultiVectorSimilarity"):
            model.export(tmp_path / "bundle", target=target)
