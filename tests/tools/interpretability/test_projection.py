"""Projections are those of scikit-learn, of the hidden states of `transformers`."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from sklearn import decomposition

import kerasformer as kf
from kerasformer.errors import InputError, MissingExtraError
from kerasformer.tools.interpretability.projection import pca
from tests.tools.interpretability import references

TEXTS = ["The sea was calm.", "A ship came in.", "The old man and the grey sea went home.", "Sea."]


@pytest.mark.parametrize(("name", "pooling"), [("classes", "mean"), ("next", "first"), ("next", "last")])
def test_vectors_are_pooled_states_of_pytorch(name, pooling):
    reference, model = references.pair(name)
    result = kf.projection(model, TEXTS, layer=1, pooling=pooling)
    for text, vector in zip(TEXTS, result.vectors, strict=True):
        ids = torch.as_tensor(model.tokenizer([text]).input_ids)
        with torch.no_grad():
            state = reference(ids, output_hidden_states=True).hidden_states[1][0].numpy()
        expected = {"mean": state.mean(0), "first": state[0], "last": state[-1]}[pooling]
        assert np.abs(vector - expected).max() < 1e-5 * np.abs(expected).max()


def test_points_are_those_of_scikit_learn():
    vectors = np.random.default_rng(1).normal(size=(20, 7)) * np.array([5, 3, 1, 1, 1, 1, 1])
    points, shares = pca(vectors.astype(np.float32))
    expected = decomposition.PCA(2).fit(vectors)
    np.testing.assert_allclose(np.abs(points), np.abs(expected.transform(vectors)), atol=1e-4)
    np.testing.assert_allclose(shares, expected.explained_variance_ratio_, rtol=1e-5)


def test_equal_vectors_have_a_picture(tmp_path):
    result = kf.projection(np.ones((4, 1), np.float32), TEXTS)
    assert not result.points.any() and result.points.shape == (4, 2) and not result.shares.any()
    result.picture(tmp_path / "points.png")


def test_neighbours_are_the_most_similar(tmp_path):
    vectors = np.array([[1, 0], [2, 0.1], [0, 3], [0.1, 1]], np.float32)
    result = kf.projection(vectors, TEXTS, ["a", "a", "b", "$b$"])
    (first, second) = result.nearest(0, 2)
    assert (first.index, first.label, second.index) == (1, "a", 3) and first.text == TEXTS[1]
    assert first.similarity == pytest.approx(2 / np.hypot(2, 0.1)) and len(result.nearest(0, 99)) == 3
    assert result.agreement(1) == 0.5
    for option in ({"layer": 0}, {"pooling": "mean"}):
        with pytest.raises(InputError, match="layer and pooling would have no effect"):
            kf.projection(vectors, TEXTS, **option)
    result.picture(tmp_path / "points.png", "Title", dark=True)
    with pytest.raises(InputError, match="index must be"):
        result.nearest(4)


def test_umap_where_it_is_installed(monkeypatch):
    vectors = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match="pip install umap-learn"):
        kf.projection(vectors, TEXTS, method="umap")

    class Umap:
        def __init__(self, **settings):
            assert settings["n_neighbors"] == 3 and settings["random_state"] == 7

        def fit_transform(self, vectors):
            return vectors[:, :2]

    monkeypatch.setitem(sys.modules, "umap", type("umap", (), {"UMAP": Umap}))
    result = kf.projection(vectors, TEXTS, method="umap", seed=7)
    assert np.array_equal(result.points, vectors[:, :2]) and result.shares is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts": TEXTS[:2]}, "texts must be"),
        ({"model": np.zeros((2, 3))}, r"Finite vectors \(4, E\)"),
        ({"model": "summarizer-t5"}, "encoder or a decoder"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(InputError, match=message):
        kf.projection(**{"model": references.pair("classes")[1], "texts": TEXTS, **options})
