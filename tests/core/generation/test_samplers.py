from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from kerasformer.engines.distribution import log_softmax, softmax
from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig
from kerasformer.generation.samplers import Greedy, sampler_of, sampling_of

# One row per filter, and some combinations: the settings, and the classes of transformers with their arguments.
FILTERS: dict[str, tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "temperature": ({"temperature": 0.6}, [("Temperature", {"temperature": 0.6})]),
    "top_k": ({"top_k": 7}, [("TopK", {"top_k": 7})]),
    "top_k below the minimum of beams": ({"top_k": 1}, [("TopK", {"top_k": 1})]),
    "top_k of all": ({"top_k": 1000}, [("TopK", {"top_k": 1000})]),
    "top_p": ({"top_p": 0.8}, [("TopP", {"top_p": 0.8})]),
    "top_p of nothing": ({"top_p": 0.0, "do_sample": True}, [("TopP", {"top_p": 0.0})]),
    "top_p of nearly all": ({"top_p": 0.9999}, [("TopP", {"top_p": 0.9999})]),
    "top_p of half": ({"top_p": 0.5}, [("TopP", {"top_p": 0.5})]),
    "min_p": ({"min_p": 0.1}, [("MinP", {"min_p": 0.1})]),
    "min_p of nothing": ({"min_p": 0.0}, [("MinP", {"min_p": 0.0})]),
    "top_h": ({"top_h": 0.4}, [("TopH", {"top_h": 0.4})]),
    "top_h of nothing": ({"top_h": 0.001}, [("TopH", {"top_h": 0.001})]),
    "renormalize_logits": ({"renormalize_logits": True, "top_k": 9}, [("TopK", {"top_k": 9}), ("", {})]),
    "typical_p": ({"typical_p": 0.7}, [("Typical", {"mass": 0.7})]),
    "epsilon_cutoff": ({"epsilon_cutoff": 0.01}, [("Epsilon", {"epsilon": 0.01})]),
    "eta_cutoff": ({"eta_cutoff": 0.02}, [("Eta", {"epsilon": 0.02})]),
    "three": (
        {"top_p": 0.9, "top_k": 20, "temperature": 1.4},
        [("Temperature", {"temperature": 1.4}), ("TopK", {"top_k": 20}), ("TopP", {"top_p": 0.9})],
    ),
    "all": (
        {"temperature": 1.5, "top_h": 0.95, "top_k": 200, "top_p": 0.95, "min_p": 0.001, "typical_p": 0.9,
         "epsilon_cutoff": 0.002, "eta_cutoff": 0.003},
        [("Temperature", {"temperature": 1.5}), ("TopH", {"top_h": 0.95}), ("TopK", {"top_k": 200}),
         ("TopP", {"top_p": 0.95}), ("MinP", {"min_p": 0.001}), ("Typical", {"mass": 0.9}),
         ("Epsilon", {"epsilon": 0.002}), ("Eta", {"epsilon": 0.003})],
    ),
}  # fmt: skip


VOCAB = 50_257


def _peaked(random: np.random.Generator) -> np.ndarray:
    """Returns logits like those of a language model: 1 to 3000 likely tokens far above the others."""
    logits = random.normal(-8, 2, size=(4, VOCAB)).astype(np.float32)
    for row, likely in zip(logits, (1, 20, 300, 3000), strict=True):
        row[random.choice(VOCAB, likely, replace=False)] += 12 - np.log(np.arange(1, likely + 1))
    return logits


def _forbidden(random: np.random.Generator) -> np.ndarray:
    """Returns logits with forbidden tokens, up to all but one."""
    logits = random.normal(size=(4, 700)).astype(np.float32)
    for row, count in zip(logits, (1, 300, 600, 699), strict=True):
        row[random.choice(700, count, replace=False)] = -np.inf
    return logits


LOGITS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "flat": lambda random: random.normal(scale=0.5, size=(4, 700)).astype(np.float32),
    "steep": lambda random: random.normal(scale=3, size=(4, 700)).astype(np.float32),
    "ties": lambda random: random.normal(scale=3, size=(4, 700)).round().astype(np.float32),
    "confident": lambda random: random.normal(size=(4, 700)).astype(np.float32) * np.float32(40),
    "forbidden": _forbidden,
    "one token": lambda random: random.normal(size=(4, 1)).astype(np.float32),
    "like GPT-2's": _peaked,
}


def _theirs(kind: str, parameters: dict[str, Any], beams: int) -> Any:
    if not kind:
        return transformers.LogitNormalization()
    extra = {} if kind in ("Temperature", "TopH") or beams == 1 else {"min_tokens_to_keep": 3}
    return getattr(transformers.generation.logits_process, f"{kind}LogitsWarper")(**parameters, **extra)


# Excluded: of the tokens that must remain for beams, ours keeps all ties with the last one, transformers only as many
# as required.
@pytest.mark.parametrize(
    ("name", "beams", "kind"),
    [case for case in itertools.product(FILTERS, (1, 3), LOGITS) if case != ("top_p of nothing", 3, "ties")],
)
def test_the_filtered_distribution_is_that_of_transformers(name: str, kind: str, beams: int) -> None:
    arguments, theirs = FILTERS[name]
    logits = LOGITS[kind](np.random.default_rng(5))
    config = GenerationConfig(**arguments, num_beams=beams, eos_token_id=(1, 2))
    expected = torch.tensor(logits)
    for each, parameters in theirs:
        expected = _theirs(each, parameters, beams)(None, expected)
    expected = expected.double().softmax(dim=-1).numpy()
    ours = softmax(sampling_of(config).filtered(logits).astype(np.float64))
    if kind == "ties":  # in transformers, it is undefined which of them are kept
        ours, expected = np.sort(ours), np.sort(expected)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_remaining_candidates_are_renormalized() -> None:
    logits = np.array([[3.0, 2.0, 1.0]], np.float32)
    filtered = sampling_of(GenerationConfig(top_k=2, renormalize_logits=True)).filtered(logits)
    np.testing.assert_allclose(np.exp(filtered).sum(), 1, rtol=1e-6)


def test_top_p_of_a_nearly_uniform_distribution() -> None:
    logits = np.zeros((1, 6000), np.float32) + np.linspace(0, 1e-3, 6000, dtype=np.float32)
    count = np.isfinite(sampling_of(GenerationConfig(top_p=0.9)).filtered(logits)).sum()
    assert 5390 <= count <= 5405


def test_a_uniform_choice_among_the_best() -> None:
    logits = np.array([[3, 9, 1, 4, -np.inf]], np.float32).repeat(300, axis=0)
    sampler = sampler_of(GenerationConfig(top_k=3, uniform=True, do_sample=True))
    counts = np.bincount(sampler(logits, np.arange(300) / 300), minlength=5)
    assert counts.tolist() == [100, 100, 0, 100, 0]
    assert np.isneginf(sampling_of(GenerationConfig(uniform=True)).filtered(logits)[:, 4]).all()  # still forbidden
    beams = GenerationConfig(top_k=3, uniform=True, do_sample=True, num_beams=2)
    chosen = np.exp(sampling_of(beams).filtered(logits[:1]))  # of which beam search adds up the logarithms
    np.testing.assert_allclose(chosen, [[1 / 3, 1 / 3, 0, 1 / 3, 0]], rtol=1e-6)


@pytest.mark.parametrize("name", FILTERS)
def test_frequencies_follow_the_distribution(name: str) -> None:
    config = GenerationConfig(**{"do_sample": True, **FILTERS[name][0]})
    logits = np.random.default_rng(3).normal(scale=2, size=(1, 600)).astype(np.float32)
    expected = softmax(sampling_of(config).filtered(logits))[0].astype(np.float64)
    count = 4000
    sampled = sampler_of(config)(np.repeat(logits, count, axis=0), np.random.default_rng(1).random(count))
    counts = np.bincount(sampled, minlength=600)
    assert not counts[expected == 0].any()
    common = expected * count >= 5  # the others are merged, as chi-square needs several samples per class
    classes = [np.append(each[common], each[~common].sum()) for each in (counts, expected * count / expected.sum())]
    observed, theory = (each[classes[1] > 0] for each in classes)
    assert chi_square_tail(((observed - theory) ** 2 / theory).sum(), len(theory) - 1) > 0.001


def chi_square_tail(value: float, degrees: int) -> float:
    """Returns the probability of at least `value` with a chi-square distribution; Wilson and Hilferty 1931."""
    if degrees == 0:
        return 1.0
    spread = 2 / (9 * degrees)
    return math.erfc(((value / degrees) ** (1 / 3) - 1 + spread) / math.sqrt(2 * spread)) / 2


def test_sampling_inverts_the_cumulative_distribution() -> None:
    logits = np.log(np.array([[0.2, 0.3, 0.5]] * 5, np.float32))
    uniform = np.array([0.0, 0.19, 0.21, 0.49, 1 - 2**-53])
    assert sampler_of(GenerationConfig(do_sample=True))(logits, uniform).tolist() == [0, 0, 1, 1, 2]


def test_forbidden_tokens_are_never_sampled() -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf]] * 2, np.float32)
    assert sampler_of(GenerationConfig(do_sample=True))(logits, np.array([0.0, 1 - 2**-53])).tolist() == [1, 1]


def test_temperature_with_the_lowest_float32() -> None:
    logits = np.array([[np.finfo(np.float32).min, 0.0]], np.float32)  # as after `remove_invalid_values`
    assert sampler_of(GenerationConfig(temperature=0.5))(logits, np.zeros(1)).tolist() == [1]


def test_temperature_with_the_greatest_float32() -> None:
    logits = np.array([[0.0, np.finfo(np.float32).max, 0.0]], np.float32)
    assert sampler_of(GenerationConfig(temperature=0.5))(logits, np.array([0.9])).tolist() == [1]


def test_top_k_keeps_tokens_that_the_temperature_makes_equally_probable() -> None:
    logits = np.linspace(-9, 0, 5000, dtype=np.float32)
    logits[[7, 3000]] = 8, np.nextafter(np.float32(8), np.float32(7))
    temperature = next(
        each for each in np.linspace(1.1, 1.9, 99, dtype=np.float32) if np.ptp(logits[[7, 3000]] / each) == 0
    )
    filtered = sampling_of(GenerationConfig(temperature=float(temperature), top_k=1)).filtered(logits[None])
    assert np.isfinite(filtered[0]).nonzero()[0].tolist() == [7, 3000]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_without_a_finite_maximum_raise(bad: float) -> None:
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
