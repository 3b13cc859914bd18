"""Frequencies of sampled sequences, compared with the product of the model's probabilities."""

from __future__ import annotations

import collections
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kerasformer.generation import GenerationConfig, generate
from kerasformer.generation.beams import beam_search
from kerasformer.generation.preparation import prepare
from tests.core.generation.engines import Toy
from tests.core.generation.models import torch, transformers

VOCAB = 6
COUNT = 4000
IDS, MASK = np.array([[3, 1, 4], [2, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]])

WARPERS = {
    "temperature": lambda value: transformers.TemperatureLogitsWarper(value),
    "top_k": lambda value: transformers.TopKLogitsWarper(value),
    "top_p": lambda value: transformers.TopPLogitsWarper(value),
    "min_p": lambda value: transformers.MinPLogitsWarper(value),
}


def probabilities(engine: Toy, row: np.ndarray, filters: dict[str, Any]) -> np.ndarray:
    """Returns the distribution `(V,)` that `transformers` samples from after the tokens of a row."""
    logits = torch.tensor(np.asarray(engine.of(row), np.float32))[None]
    for name, value in filters.items():
        logits = WARPERS[name](value)(None, logits)
    return logits.softmax(dim=-1)[0].double().numpy()


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


@pytest.mark.parametrize(
    "filters", [{}, {"temperature": 1.7, "top_k": 4}, {"temperature": 1.2, "top_p": 0.9}, {"min_p": 0.2}], ids=str
)
def test_two_tokens(filters: dict[str, Any]) -> None:
    """Several samples of ragged prompts: `p(a, b) = p(a) p(b | a)`."""
    engine = Toy(VOCAB)
    config = GenerationConfig(
        max_new_tokens=2, do_sample=True, num_return_sequences=COUNT, eos_token_id=5, seed=1, **filters
    )
    output = generate(engine, IDS, MASK, config)
    assert len(output.sequences) == 2 * COUNT
    for prompt, (row, mask) in enumerate(zip(IDS, MASK, strict=True)):
        tokens = row[mask == 1]
        first = probabilities(engine, tokens, filters)
        expected = {(5,): first[5]}
        for a, b in itertools.product(range(VOCAB - 1), range(VOCAB)):
            expected[a, b] = first[a] * probabilities(engine, np.append(tokens, a), filters)[b]
        check([tuple(s.tolist()) for s in output.sequences[prompt * COUNT : (prompt + 1) * COUNT]], expected)


def test_beams_sample_without_replacement() -> None:
    """The probability of two sampled continuations is `p(a) p(b) / (1 - p(a))`, in either order."""
    engine, row = Toy(VOCAB), np.array([3, 1])
    config = GenerationConfig(max_new_tokens=1, do_sample=True, num_beams=2, num_return_sequences=2)
    plan = prepare(engine, np.repeat(row[None], COUNT, axis=0), config=config)
    output = beam_search(replace(plan, seeds=tuple(range(COUNT))))
    p = probabilities(engine, row, {})
    expected = {
        frozenset((a, b)): p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b]))
        for a, b in itertools.combinations(range(6), 2)
    }
    tokens = [int(sequence[0]) for sequence in output.sequences]
    check([frozenset(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)], expected)
    assert output.sequence_scores is not None
    np.testing.assert_allclose(output.sequence_scores, np.log(p)[tokens], rtol=1e-5)
