from __future__ import annotations

import io

import numpy as np
import pytest
from sentence_transformers import util

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import InputError, SourceError
from kerasformer.pipelines import indexed_vectors
from tests.core.pipelines import retrieval_folders, sentence_folders
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
    with pytest.raises(InputError, match="with vectors of 64 instead of 32 entries"):
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


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Pipelines that compute other kinds of vectors."""
    folder = tmp_path_factory.mktemp("others")
    retrieval_folders.write_sparse(folder / "sparse", "bert")
    retrieval_folders.write_multi_vector(folder / "multi-vector", "bert")
    retrieval_folders.write_unified(folder / "bge-m3")
    task = {"bge-m3": "multi-vector-similarity"}
    return {path.name: kf.pipeline(path, task.get(path.name)) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("name", "weights"),
    [("sparse", None), ("multi-vector", None), ("bge-m3", None), ("bge-m3", {"dense": 1, "sparse": 0.3})],
)
def test_other_kinds_of_vectors_rank_as_their_pipeline(others, tmp_path, monkeypatch, name, weights):
    monkeypatch.setattr(indexed_vectors, "_BLOCK", 40)  # vectors of some texts
    pipe, queries = others[name], ["a rainy day", "the mountains"]
    index = kf.EmbeddingIndex.build(pipe, TEXTS)
    again = kf.EmbeddingIndex.load(index.save(tmp_path / "corpus.npz"), pipe)
    assert again.kinds == pipe.kinds and again.precision == "float32"
    of_scores = {} if weights is None else {"weights": weights}
    found = again.search(queries, top_k=5, **of_scores)
    assert found == index.search(pipe.encode_query(queries), top_k=5, **of_scores)
    for query, hits in zip(queries, found, strict=True):
        expected = pipe.rank(query, TEXTS, top_k=5, return_documents=True, **of_scores)
        largest = max(abs(each["score"]) for each in expected)
        scores = [[each["score"] for each in each_of] for each_of in (hits, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5 * largest)
        by_text = {each["corpus_id"]: each["score"] for each in pipe.rank(query, TEXTS, **of_scores)}
        assert all(abs(by_text[hit["corpus_id"]] - hit["score"]) <= 1e-5 * largest for hit in hits)
        assert [hit["text"] for hit in hits] == [TEXTS[hit["corpus_id"]] for hit in hits]
    alone = index.search(pipe.encode_query(queries[0]), top_k=2, **of_scores)
    assert [hit["corpus_id"] for hit in alone] == [hit["corpus_id"] for hit in found[0][:2]]


@pytest.mark.parametrize("name", ["multi-vector", "bge-m3"])
def test_vectors_of_tokens_in_int8(others, tmp_path, name):
    pipe = others[name]
    index = kf.EmbeddingIndex.build(pipe, TEXTS, precision="int8")
    found = kf.EmbeddingIndex.load(index.save(tmp_path / "corpus.npz"), pipe).search("a rainy day", top_k=len(TEXTS))
    exact = {hit["corpus_id"]: hit["score"] for hit in pipe.rank("a rainy day", TEXTS)}
    largest = max(map(abs, exact.values()))
    assert 0 < max(abs(hit["score"] - exact[hit["corpus_id"]]) for hit in found) < 0.01 * largest


def test_vectors_of_another_kind_are_refused(others, pipe, tmp_path):
    sparse, several = others["sparse"], others["bge-m3"]
    index = kf.EmbeddingIndex.build(sparse, TEXTS[:4])
    for queries in (np.ones(8, "float32"), [{"rain": "1"}]):
        with pytest.raises(InputError, match="A sparse vector must be a dictionary"):
            index.search(queries)
    path = index.save(tmp_path / "corpus.npz")
    with pytest.raises(InputError, match="has vectors of the kind sparse.*sentence-similarity, which computes dense"):
        kf.EmbeddingIndex.load(path, pipe)
    every = kf.EmbeddingIndex.build(several, TEXTS[:4])
    with pytest.raises(InputError, match="dictionaries with dense and sparse and multi_vector"):
        every.search({"dense": np.ones(8)})
    query = several.encode_query("Rain")
    with pytest.raises(InputError, match=r"must be \(T, \d+\), as those of the index. Received: shape \(2, 3\)"):
        every.search({**query, "multi_vector": np.ones((2, 3), "float32")})
    for made, precision, possible in ((sparse, "int8", "float32"), (several, "binary", "float32 or int8")):
        with pytest.raises(InputError, match=f"are stored as {possible}. Received: precision='{precision}'"):
            kf.EmbeddingIndex.build(made, TEXTS, precision=precision)
    with pytest.raises(InputError, match="positive weight, of the kinds sparse"):
        index.search("Rain", weights={"dense": 1})


@pytest.mark.parametrize("name", ["sparse", "multi-vector"])
def test_a_damaged_file_of_other_vectors(others, tmp_path, name):
    path = kf.EmbeddingIndex.build(others[name], TEXTS[:4]).save(tmp_path / "corpus.npz")
    with np.load(path) as archive:
        arrays = {each: archive[each] for each in archive.files}
    for key in {"weight_rows", "weight_ends", "token_sizes", "vector_counts", "token_vectors"} & set(arrays):
        np.savez(path, **{**arrays, key: arrays[key][:-1]})
        with pytest.raises(SourceError, match="is not a readable index"):
            kf.EmbeddingIndex.load(path, others[name])
