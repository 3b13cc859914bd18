from __future__ import annotations

import pytest
import transformers

from kerasformer.errors import InputError
from kerasformer.pipelines import pipeline
from tests.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

TEXTS = ["The waiter from Vienna, and Zoltan!", CORPUS[6], "Two engineers unbelievably forgives.", CORPUS[25]]
STRATEGIES = ["none", "simple", "first", "average", "max"]


@pytest.fixture(scope="module")
def pipes(checkpoint):
    folder = checkpoint("entities")
    return pipeline("token-classification", folder), transformers.pipeline("token-classification", str(folder))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ignored", [("O",), (), ("PER", "O", "B-LOC")])
def test_entities_equal_those_of_transformers(pipes, strategy, ignored):
    ours, theirs = pipes
    expected = theirs(TEXTS, aggregation_strategy=strategy, ignore_labels=list(ignored))
    received = ours(TEXTS, aggregation_strategy=strategy, ignore_labels=ignored)
    # They give tokens with their marks and in lower case; we give the text as it stands there.
    assert_same(received, expected, ignored=("word",))
    assert any(expected)
    for text, entities in zip(TEXTS, received, strict=True):
        assert all(entity["word"] == text[entity["start"] : entity["end"]] for entity in entities)


def test_strategies_differ(pipes):
    answers = [str(pipes[0](TEXTS, aggregation_strategy=strategy)) for strategy in STRATEGIES]
    assert len(set(answers)) == len(STRATEGIES)


@pytest.mark.parametrize("strategy", ["none", "average"])
def test_neighbours_in_a_batch_change_nothing(pipes, strategy):
    alone = [pipes[0](text, aggregation_strategy=strategy) for text in TEXTS]
    for size in (1, 2, 8):
        assert_same(pipes[0](TEXTS, aggregation_strategy=strategy, batch_size=size), alone)


def test_words_are_never_cut(pipes):
    for entity in pipes[0](TEXTS[2], aggregation_strategy="first", ignore_labels=()):
        around = f" {TEXTS[2]} "[entity["start"] : entity["end"] + 2]
        assert not (around[0].isalpha() and around[1].isalpha()), around
        assert not (around[-1].isalpha() and around[-2].isalpha()), around


def test_unknown_strategy(pipes):
    with pytest.raises(InputError, match="none, simple, first, average, max"):
        pipes[0]("Vienna", aggregation_strategy="last")
