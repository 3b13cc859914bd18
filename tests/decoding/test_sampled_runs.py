"""Whole runs that draw: how often sequences come out, against the products of the model's own probabilities."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kerasformer.decoding import GenerationConfig, generate
from tests.decoding.engines import Toy
from tests.decoding.models import torch, transformers

VOCAB = 6
COUNT = 4000
IDS, MASK = np.array([[3, 1, 4], [2, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]])

WARPERS = {
    "temperature": lambda value: transformers.TemperatureLogitsWarper(value),
    "top_k": lambda value: transformers.TopKLogitsWarper(value),
    "top_p": lambda value: transformers.TopPLogitsWarper(value),
    "min_p": lambda value: transformers.MinPLogitsWarper(value),
}


def probabilities(engine: Toy, row: np.ndarray, cuts: dict[str, Any]) -> np.ndarray:
    """What `transformers` draws from after the tokens of a row, `(V,)`."""
    logits = torch.tensor(np.asarray(engine.of(row), np.float32))[None]
    for name, value in cuts.items():
        logits = WARPERS[name](value)(None, logits)
    return logits.softmax(dim=-1)[0].double().numpy()


def check(found: list[Any], expected: dict[Any, float]) -> None:
    """Chi-square: that results are drawn as often as expected; seeds are fixed, so that this is no gamble."""
    counted = collections.Counter(found)
    wanted = {key: share * len(found) for key, share in expected.items() if share > 0}
    assert set(counted) <= set(wanted)
    often = [key for key in wanted if wanted[key] >= 5]
    rare = [key for key in wanted if wanted[key] < 5]  # one class, for chi-square wants some of each
    observed = [counted[key] for key in often] + [sum(counted[key] for key in rare)] * bool(rare)
    theory = [wanted[key] for key in often] + [sum(wanted[key] for key in rare)] * bool(rare)
    assert len(often) > 2
    assert stats.chisquare(observed, np.array(theory) * sum(observed) / sum(theory)).pvalue > 0.01


@pytest.mark.parametrize(
    "cuts", [{}, {"temperature": 1.7, "top_k": 4}, {"temperature": 1.2, "top_p": 0.9}, {"min_p": 0.2}], ids=str
)
def test_two_tokens(cuts: dict[str, Any]) -> None:
    """Ragged prompts, several samples of each; `p(a, b) = p(a) p(b | a)`."""
    engine = Toy(VOCAB)
    config = GenerationConfig(
        max_new_tokens=2, do_sample=True, num_return_sequences=COUNT, eos_token_id=5, seed=1, **cuts
    )
    output = generate(engine, IDS, MASK, config)
    assert len(output.sequences) == 2 * COUNT
    for prompt, (row, mask) in enumerate(zip(IDS, MASK, strict=True)):
        said = row[mask == 1]
        first = probabilities(engine, said, cuts)
        expected = {(5,): first[5]}
        for a, b in itertools.product(range(VOCAB - 1), range(VOCAB)):
            expected[a, b] = first[a] * probabilities(engine, np.append(said, a), cuts)[b]
        check([tuple(s.tolist()) for s in output.sequences[prompt * COUNT : (prompt + 1) * COUNT]], expected)


def test_beams_draw_without_replacement() -> None:
    """The first two of the drawn continuations: `p(a) p(b) / (1 - p(a))`, in either order."""
    engine, row = Toy(VOCAB), np.array([3, 1])
    config = GenerationConfig(max_new_tokens=1, do_sample=True, num_beams=2, num_return_sequences=2, seed=3)
    output = generate(engine, np.repeat(row[None], COUNT, axis=0), config=config)
    p = probabilities(engine, row, {})
    expected = {
        frozenset((a, b)): p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b]))
        for a, b in itertools.combinations(range(6), 2)
    }
    tokens = [int(sequence[0]) for sequence in output.sequences]
    check([frozenset(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)], expected)
    assert output.sequence_scores is not None
    np.testing.assert_allclose(output.sequence_scores, np.log(p)[tokens], rtol=1e-5)
