"""Single inputs, lists, arrays and iterables, for every task and engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import kerasformer as kf
from kerasformer.basics.tasks import ALIASES
from kerasformer.errors import InputError, TokenizerError
from kerasformer.pipelines import PIPELINES, pipeline
from tests.core.pipelines.agreement import assert_same
from tests.tiny_text import CORPUS

pytestmark = pytest.mark.grid

QUESTIONS = [{"question": "Who?", "context": text} for text in (CORPUS[4], CORPUS[7], CORPUS[0])]
TEXTS = [CORPUS[4], CORPUS[7], "Rain."]
# name of a checkpoint: inputs, arguments
TASKS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "classes": (TEXTS, {"top_k": 2}),
    "entities": (TEXTS, {"ignore_labels": ()}),
    "gaps": ([f"{text[:20]} [MASK]." for text in TEXTS], {}),
    "vectors": (TEXTS, {"pooling": "mean"}),
    "answers": (QUESTIONS, {}),
    "story": (TEXTS, {"max_new_tokens": 3}),
    "rewrite": (TEXTS, {"max_new_tokens": 3}),
}


@pytest.mark.parametrize("name", TASKS)
def test_results_have_the_form_of_the_inputs(checkpoint, name, capsys):
    pipe = pipeline(checkpoint(name))
    rows, arguments = TASKS[name]
    expected = pipe(rows, **arguments)
    capsys.readouterr()  # output of transformers while it writes the checkpoint
    assert_same(pipe(np.array(rows), **arguments), expected)
    read: list[Any] = []

    def lazily() -> Iterator[Any]:
        for row in rows:
            read.append(row)
            yield row

    results = pipe(lazily(), batch_size=1, **arguments)
    assert isinstance(results, Iterator) and not read
    first = list(islice(results, 1))
    assert len(read) == 1
    assert_same([*first, *results], list(expected))
    assert pipe([], **arguments) == [] and list(pipe(iter([]), **arguments)) == []
    assert not capsys.readouterr().err, "nothing is shown that was not asked for"
    assert_same(pipe(rows, progress=True, **arguments), expected)
    assert_same(list(pipe(iter(rows), progress=True, **arguments)), list(expected))
    shown = capsys.readouterr().err
    assert pipe.task in shown and "3/3" in shown
    with pytest.raises(InputError, match="^progress must be True or False"):
        pipe(rows, progress="yes", **arguments)
    for wrong in (5, None, b"text", [5], [None], np.array([1.0])):
        with pytest.raises(InputError, match="was expected"):
            pipe(wrong, **arguments)
    with pytest.raises(InputError, match="was expected.*Received: 5"):
        list(pipe(iter([rows[0], 5]), **arguments))


def test_ways_to_specify_a_model_and_a_task(checkpoint, tmp_path, monkeypatch):
    folder = checkpoint("classes")
    model = kf.zoo.load(folder)
    expected = kf.pipeline(model, "text-classification")("Rain.")
    for arguments in (
        {"task": "sentiment-analysis", "source": model},
        {"source": model, "tokenizer": folder},
        {"source": model, "tokenizer": kf.Tokenizer.load(folder)},
    ):
        assert kf.pipeline(**arguments)("Rain.") == expected
    assert kf.pipeline(str(folder))("Rain.") == expected
    assert kf.zoo.load(checkpoint("entities"), task="ner").task == "token-classification"
    assert set(ALIASES.values()) <= set(PIPELINES)
    for arguments, message in [
        ({"source": "text-generation", "task": str(folder)}, "Unknown task.*The source comes first: pipeline"),
        ({"source": "ner"}, "Received: the task 'ner' alone"),
        ({"source": folder, "task": "sentiment-analisys"}, "Unknown task. Expected one of .*sentiment-analysis"),
        ({"source": folder, "task": 5}, "Unknown task"),
        ({"source": model, "task": "ner"}, "This source is for text-classification"),
        ({"source": model, "tokenizer": 5}, "tokenizer must be a Tokenizer"),
        ({"source": model, "thread": 2}, "Unknown option of a pipeline.*Received: thread"),
    ]:
        with pytest.raises(InputError, match=message):
            kf.pipeline(**arguments)
    monkeypatch.setattr(model, "tokenizer", None)
    with pytest.raises(TokenizerError, match="no tokenizer.*Pass tokenizer="):
        kf.pipeline(model)
