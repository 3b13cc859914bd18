from __future__ import annotations

import io

import numpy as np
import pytest
from sentence_transformers import util

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import InputError, SourceError
from tests.core.pipelines import sentence_folders
from tests.tiny_text import CORPUS

TEXTS = [*CORPUS, "Größe und Maß 🚂", ""]
QUERIES = [CORPUS[3], "a rainy day in the mountains"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences") / "model"
    sentence_folders.write(folder, prompts={"query": "the query: ", "passage": "text: "})
    return folder


@pytest.fixture(scope="module")
def pipe(folder):
    return kf.pipeline(folder)


@pytest.mark.parametrize("truncate_dim", [None, 12])
def test_search_is_that_of_sentence_transformers(pipe, truncate_dim):
    index = kf.EmbeddingIndex.build(pipe, TEXTS, truncate_dim=truncate_dim)
    assert len(index) == len(TEXTS) and index.precision == "float32"
    queries, documents = (
        encode(texts, truncate_dim=truncate_dim)
        for encode, texts in ((pipe.encode_query, QUERIES), (pipe.encode_document, TEXTS))
    )
    expected = util.semantic_search(queries, documents, top_k=5)
    received = index.search(QUERIES, top_k=5)
    for hits, rows in zip(received, expected, strict=True):
        assert [hit["corpus_id"] for hit in hits] == [row["corpus_id"] for row in rows]
        assert [hit["score"] for hit in hits] == pytest.approx([row["score"] for row in rows], abs=1e-5)
        assert [hit["text"] for hit in hits] == [TEXTS[row["corpus_id"]] for row in rows]
    for query in (QUERIES[0], queries[0]):
        alone = index.search(query, top_k=2)
        assert [hit["corpus_id"] for hit in alone] == [hit["corpus_id"] for hit in received[0][:2]]
    assert len(index.search(QUERIES[0], top_k=1000)) == len(TEXTS)


@pytest.mark.parametrize(
    ("precision", "rescore", "size", "error"),
    # An error of sums of 32 terms in another order, or of rounding.
    [("float32", True, 128, 2e-6), ("int8", True, 32, 0.01), ("binary", True, 36, 0.01), ("binary", False, 4, 0.6)],
)
def test_a_saved_index(pipe, tmp_path, precision, rescore, size, error):
    index = kf.EmbeddingIndex.build(pipe, TEXTS, precision=precision, rescore=rescore)
    path = index.save(tmp_path / "corpus.npz")
    again = kf.EmbeddingIndex.load(path, pipe)
    assert again.texts == TEXTS and again.precision == precision
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name in ("vectors", "codes", "bits")}
    assert sum(array.nbytes for array in arrays.values()) == size * len(TEXTS)
    exact = pipe.similarity(pipe.encode_query(QUERIES[1]), pipe.encode_document(TEXTS))[0]
    found = again.search(QUERIES[1], top_k=8)
    assert found == index.search(QUERIES[1], top_k=8)
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)
    assert all(abs(hit["score"] - exact[hit["corpus_id"]]) <= error for hit in found)
    best = set(np.argsort(-exact)[:8].tolist())
    if rescore:
        assert len(best & {hit["corpus_id"] for hit in found}) >= (7 if precision != "binary" else 3)
        return
    signs = np.where(pipe.encode_document(TEXTS) > 0, 1, -1) / np.sqrt(32)
    expected = signs @ pipe.encode_query(QUERIES[1])
    everything = again.search(QUERIES[1], top_k=len(TEXTS))
    assert [hit["score"] for hit in everything] == pytest.approx(np.sort(expected)[::-1].tolist(), abs=1e-5)


def test_more_candidates_find_more_of_the_best(pipe):
    index = kf.EmbeddingIndex.build(pipe, TEXTS, precision="binary")
    exact = kf.EmbeddingIndex.build(pipe, TEXTS, precision="int8")
    everything = index.search(QUERIES, top_k=5, oversampling=len(TEXTS))
    assert everything == exact.search(QUERIES, top_k=5)


def test_another_model_is_refused(pipe, folder, tmp_path):
    path = kf.EmbeddingIndex.build(pipe, TEXTS[:4]).save(tmp_path / "corpus.npz")
    model = zoo.load(folder)
    for variable in model.trainable_variables:
        if "tokens/embeddings" in variable.path or "output/kernel" in variable.path:
            variable.assign(-variable)
    with pytest.raises(InputError, match=r"built with another model, BertPooledFeatures.*a similarity of -?0\.\d{3}"):
        kf.EmbeddingIndex.load(path, kf.pipeline(model))
    wide = zoo.load(folder, sentence=zoo.SentenceSettings(("mean", "cls"), ("normalize",)), task="sentence-similarity")
    with pytest.raises(InputError, match="with 64 entries, and embeddings of 32 entries"):
        kf.EmbeddingIndex.load(path, kf.pipeline(wide))


def test_a_damaged_file(pipe, tmp_path):
    path = kf.EmbeddingIndex.build(pipe, TEXTS[:4], precision="int8").save(tmp_path / "corpus.npz")
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, value in (
        ("codes", arrays["codes"][:2]),
        ("text_sizes", arrays["text_sizes"] + 1),
        ("ranges", None),
        ("description", np.array("{")),
        ("description", np.array([{}])),
    ):
        changed = {key: array for key, array in {**arrays, name: value}.items() if array is not None}
        np.savez(path, **changed)
        with pytest.raises(SourceError, match="is not a readable index|is not valid JSON"):
            kf.EmbeddingIndex.load(path, pipe)
    np.savez(path, **{**arrays, "description": np.array('{"format_version": 9, "model": ""}')})
    with pytest.raises(SourceError, match="Expected: format version 1. Received: 9"):
        kf.EmbeddingIndex.load(path, pipe)
    path.write_bytes(io.BytesIO(b"no index").getvalue())
    with pytest.raises(SourceError, match="is not a readable index"):
        kf.EmbeddingIndex.load(path, pipe)
    with pytest.raises(SourceError, match="is not a readable index"):
        kf.EmbeddingIndex.load(tmp_path / "absent.npz", pipe)


def test_arguments(pipe, tmp_path, checkpoint):
    index = kf.EmbeddingIndex.build(pipe, "One text.")
    with pytest.raises(InputError, match="end with .npz. Received: 'corpus.npy'"):
        index.save(tmp_path / "corpus.npy")
    with pytest.raises(InputError, match="at least one text"):
        kf.EmbeddingIndex.build(pipe, [])
    with pytest.raises(InputError, match="pipe must be a pipeline for sentence-similarity"):
        kf.EmbeddingIndex.build(kf.pipeline(checkpoint("vectors")), TEXTS)
    with pytest.raises(InputError, match=r"32 entries. Received: shape \(5,\)"):
        index.search(np.ones(5, "float32"))
    with pytest.raises(InputError, match="top_k must be an integer of at least 1"):
        index.search("text", top_k=0)
