"""Vectors of a word are the hidden states of `transformers`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kerasformer as kf
from kerasformer.errors import InputError
from tests.tools.interpretability import references

TEXTS = ("The sea was calm.", "A calm (sea), and a Sea of ice.")


@pytest.mark.parametrize("name", [pytest.param("classes", marks=pytest.mark.jax_release), "next"])
def test_vectors_are_the_hidden_states_of_pytorch(name):
    reference, model = references.pair(name)
    result = kf.contextual("sea", TEXTS, model)
    assert result.texts == (TEXTS[0], TEXTS[1], TEXTS[1])
    for index, (read, positions) in enumerate(zip(result.reads, result.positions, strict=True)):
        assert "".join(read.source_of(place) for place in positions).strip().lower() == "sea"
        inputs = {key: torch.as_tensor(array) for key, array in read.inputs.items()}
        with torch.no_grad():
            states = reference(**inputs, output_hidden_states=True).hidden_states
        expected = np.stack([state[0, positions].mean(0).numpy() for state in states])
        assert np.abs(result.vectors[:, index] - expected).max() < 1e-5 * np.abs(expected).max()


def test_similarities_are_cosines(tmp_path):
    result = kf.contextual("sea", TEXTS, references.pair("classes")[1])
    cosines = result.similarities()
    assert cosines.shape == (3, 3, 3) and np.allclose(np.diagonal(cosines, axis1=1, axis2=2), 1, atol=1e-5)
    first, second = result.vectors[1, 0], result.vectors[1, 2]
    assert cosines[1, 0, 2] == pytest.approx(first @ second / np.linalg.norm(first) / np.linalg.norm(second), rel=1e-5)
    result.picture(tmp_path / "words.png", layer=1)
    with pytest.raises(InputError, match="layer must be"):
        result.picture(tmp_path / "words.png", layer=3)


@pytest.mark.parametrize("word", ["ice", "se", ""])
def test_a_text_without_the_word_is_named(word):
    with pytest.raises(InputError, match="must contain the word"):
        kf.contextual(word, TEXTS, references.pair("classes")[1])


def test_a_word_of_a_script_without_spaces_is_found_within_a_text():
    _, model = references.pair("classes")
    result = kf.contextual("海", ["我爱海洋。", "海 海"], model)
    assert result.texts == ("我爱海洋。", "海 海", "海 海")
    with pytest.raises(InputError, match="must contain the word"):
        kf.contextual("바다", ["푸른바다"], model)  # Korean has spaces


def test_the_default_model_separates_two_meanings():
    result = kf.contextual(
        "flies", ["time flies like an arrow", "fruit flies like a banana", "The flies ate a banana."]
    )
    last = result.similarities()[-1]
    assert last[1, 2] > last[0, 2]  # two insects are closer than an insect and a verb
