"""Frequencies of sampled beams, compared with the probabilities of the model."""

from __future__ import annotations

import collections
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from kerasformer.engines.distribution import softmax
from kerasformer.generation import GenerationConfig
from kerasformer.generation.beams import beam_search
from kerasformer.generation.preparation import prepare
from tests.core.generation.engines import Toy

VOCAB = 6
COUNT = 4000


def check(samples: list[Any], probabilities: dict[Any, float]) -> None:
    """Checks frequencies with a chi-square test; seeds are fixed, so that the result is deterministic."""
    counts = collections.Counter(samples)
    expected = {key: share * len(samples) for key, share in probabilities.items() if share > 0}
    assert set(counts) <= set(expected)
    common = [key for key in expected if expected[key] >= 5]
    rare = [key for key in expected if expected[key] < 5]  # merged, as chi-square needs several samples per class
    observed = [counts[key] for key in common] + [sum(counts[key] for key in rare)] * bool(rare)
    theory = [expected[key] for key in common] + [sum(expected[key] for key in rare)] * bool(rare)
    assert len(common) > 2
    assert stats.chisquare(observed, np.array(theory) * sum(observed) / sum(theory)).pvalue > 0.01


def test_beams_sample_without_replacement() -> None:
    """The probability of two sampled continuations is `p(a) p(b) / (1 - p(a))`, in either order."""
    engine, row = Toy(VOCAB), np.array([3, 1])
    config = GenerationConfig(max_new_tokens=1, do_sample=True, num_beams=2, num_return_sequences=2)
    plan = prepare(engine, np.repeat(row[None], COUNT, axis=0), config=config)
    output = beam_search(replace(plan, seeds=tuple(range(COUNT))))
    p = softmax(np.asarray(engine.of(row), np.float64))
    expected = {
        frozenset((a, b)): p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b]))
        for a, b in itertools.combinations(range(6), 2)
    }
    tokens = [int(sequence[0]) for sequence in output.sequences]
    check([frozenset(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)], expected)
    assert output.sequence_scores is not None
    np.testing.assert_allclose(output.sequence_scores, np.log(p)[tokens], rtol=1e-5)
