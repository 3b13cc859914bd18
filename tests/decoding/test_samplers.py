from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerasformer.decoding import GenerationConfig
from kerasformer.decoding.distribution import log_softmax, softmax
from kerasformer.decoding.samplers import Greedy, sampler_of, sampling_of
from kerasformer.errors import GenerationError

# One row per cut, and some together: the arguments, and the classes of transformers with theirs in the order of use.
CUTS: dict[str, tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "temperature": ({"temperature": 0.6}, [("Temperature", {"temperature": 0.6})]),
    "top_k": ({"top_k": 7}, [("TopK", {"top_k": 7})]),
    "top_k of too few for beams": ({"top_k": 1}, [("TopK", {"top_k": 1})]),
    "top_k of all": ({"top_k": 1000}, [("TopK", {"top_k": 1000})]),
    "top_p": ({"top_p": 0.8}, [("TopP", {"top_p": 0.8})]),
    "top_p of nothing": ({"top_p": 0.0, "do_sample": True}, [("TopP", {"top_p": 0.0})]),
    "top_p of nearly all": ({"top_p": 0.9999}, [("TopP", {"top_p": 0.9999})]),
    "min_p": ({"min_p": 0.1}, [("MinP", {"min_p": 0.1})]),
    "typical_p": ({"typical_p": 0.7}, [("Typical", {"mass": 0.7})]),
    "epsilon_cutoff": ({"epsilon_cutoff": 0.01}, [("Epsilon", {"epsilon": 0.01})]),
    "eta_cutoff": ({"eta_cutoff": 0.02}, [("Eta", {"epsilon": 0.02})]),
    "three": (
        {"top_p": 0.9, "top_k": 20, "temperature": 1.4},
        [("Temperature", {"temperature": 1.4}), ("TopK", {"top_k": 20}), ("TopP", {"top_p": 0.9})],
    ),
    "all": (
        {"temperature": 1.5, "top_k": 200, "top_p": 0.95, "min_p": 0.001, "typical_p": 0.9, "epsilon_cutoff": 0.002,
         "eta_cutoff": 0.003},
        [("Temperature", {"temperature": 1.5}), ("TopK", {"top_k": 200}), ("TopP", {"top_p": 0.95}),
         ("MinP", {"min_p": 0.001}), ("Typical", {"mass": 0.9}), ("Epsilon", {"epsilon": 0.002}),
         ("Eta", {"epsilon": 0.003})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_the_filtered_distribution_is_that_of_transformers(name: str, beams: int, spread: float) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    arguments, theirs = CUTS[name]
    logits = np.random.default_rng(5).normal(scale=spread, size=(4, 700)).astype(np.float32)
    config = GenerationConfig(**arguments, num_beams=beams, eos_token_id=(1, 2))
    expected = torch.tensor(logits)
    for kind, parameters in theirs:
        extra = {} if kind == "Temperature" or beams == 1 else {"min_tokens_to_keep": 3}
        expected = getattr(transformers, f"{kind}LogitsWarper")(**parameters, **extra)(None, expected)
    expected = expected.softmax(dim=-1).numpy()
    np.testing.assert_allclose(softmax(sampling_of(config).filtered(logits)), expected, atol=1e-6)
    assert (expected > 0).sum() < expected.size or name in ("temperature", "top_k of all", "top_p of nearly all")


def test_top_p_looks_beyond_its_first_partition() -> None:
    logits = np.zeros((1, 6000), np.float32) + np.linspace(0, 1e-3, 6000, dtype=np.float32)
    kept = np.isfinite(sampling_of(GenerationConfig(top_p=0.9)).filtered(logits)).sum()
    assert 5390 <= kept <= 5405


def test_top_k_keeps_ties() -> None:
    logits = np.array([[3, 2, 2, 2, 1], [5, 4, 3, 2, 1]], np.float32)
    kept = np.isfinite(sampling_of(GenerationConfig(top_k=2)).filtered(logits))
    assert kept.tolist() == [[True, True, True, True, False], [True, True, False, False, False]]


def test_top_1_is_greedy() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    drawn = sampler_of(GenerationConfig(top_k=1))(logits, np.linspace(0, 0.999, 50))
    assert drawn.tolist() == Greedy()(logits, np.zeros(50)).tolist()


def test_frequencies_follow_the_distribution() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.15, 0.07, 0.03]], np.float32))
    config = GenerationConfig(top_k=4, temperature=0.8)
    expected = softmax(sampling_of(config).filtered(logits))[0]
    count = 20_000
    drawn = sampler_of(config)(np.repeat(logits, count, axis=0), np.random.default_rng(1).random(count))
    seen = np.bincount(drawn, minlength=5)
    assert seen[4] == 0
    chi_square = ((seen[:4] - count * expected[:4]) ** 2 / (count * expected[:4])).sum()
    assert chi_square < 11.34  # 1 % of a chi-square distribution with 3 degrees of freedom


def test_a_draw_is_the_inverse_of_the_cumulative_distribution() -> None:
    logits = np.log(np.array([[0.2, 0.3, 0.5]] * 5, np.float32))
    uniform = np.array([0.0, 0.19, 0.21, 0.49, 1 - 2**-53])
    assert sampler_of(GenerationConfig(do_sample=True))(logits, uniform).tolist() == [0, 0, 1, 1, 2]


def test_what_is_forbidden_is_never_drawn() -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf]] * 2, np.float32)
    assert sampler_of(GenerationConfig(do_sample=True))(logits, np.array([0.0, 1 - 2**-53])).tolist() == [1, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_without_a_choice_are_refused(bad: float) -> None:
    logits = np.full((2, 4), bad, np.float32)
    logits[0] = 0
    with pytest.raises(GenerationError, match="no token can be chosen"):
        sampler_of(GenerationConfig(top_p=0.5))(logits, np.zeros(2))
    if np.isnan(bad):
        with pytest.raises(GenerationError, match="Received: nan"):
            Greedy()(logits, np.zeros(2))


def test_log_softmax() -> None:
    logits = np.array([[1000.0, 0.0, -np.inf]], np.float32)
    np.testing.assert_allclose(log_softmax(logits), [[0, -1000, -np.inf]])
