"""How often a model chooses the right one of several texts: by likelihood, or as a classifier with one class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.basics.command_options import EvaluationOptions
from kerasformer.basics.tasks import task_of_model
from kerasformer.errors import InputError
from kerasformer.pipelines import Example, softmax
from kerasformer.tools.evaluation.choosing import likelihoods, open_chooser
from kerasformer.tools.evaluation.outcome import Outcome
from kerasformer.tools.evaluation.perplexity import cut
from kerasformer.tools.evaluation.prompts import FewShotPrompt, prompt

_CLASSIFICATION = "text-classification"


@dataclass(frozen=True)
class Scores:
    """Scores of the choices of a text.

    Attributes:
        plain: Log-likelihoods or logits, float64 `(C,)`.
        by_length: Log-likelihoods divided by the number of bytes; `None` for a classifier.
    """

    plain: np.ndarray
    by_length: np.ndarray | None = None


def choices(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    """Computes how often the best choice of each text is the right one.

    A model that generates finds a choice likely, after the text or in its gap; `accuracy_normalized` divides the
    log-likelihood of a choice by its number of bytes. A classifier with one class scores pairs of the text and a
    choice, as `kerasformer.tools.training.MultipleChoice` trains it.

    Raises:
        InputError: a text has less than two choices, or its label is none of them; a classifier has several classes.
    """
    given = tuple(options.get("choices") or ())
    texts = [example.choices or given for example in examples]
    right = [_index(example, names) for example, names in zip(examples, texts, strict=True)]
    method = _by_pairs if task_of_model(pipe.task) == _CLASSIFICATION else _by_likelihood
    found = method(pipe, examples, texts, options)
    best = [int(scores.plain.argmax()) for scores in found]
    figures = {"accuracy": float(np.mean(np.equal(best, right)))}
    by_length = [int(scores.by_length.argmax()) for scores in found if scores.by_length is not None]
    if by_length:
        figures["accuracy_normalized"] = float(np.mean(np.equal(by_length, right)))
    tiny = np.finfo(float).tiny
    return Outcome(
        figures,
        tuple(names[index].strip() for names, index in zip(texts, best, strict=True)),
        tuple(-float(np.log(softmax(one.plain)[index] + tiny)) for one, index in zip(found, right, strict=True)),
        tuple(names[index].strip() for names, index in zip(texts, right, strict=True)),
    )


def _by_likelihood(
    pipe: Any, examples: Sequence[Example], texts: Sequence[Sequence[str]], options: EvaluationOptions
) -> list[Scores]:
    """Returns the likelihoods of the choices of each text."""
    reader, written = open_chooser(pipe), prompts(pipe, options)
    # A template says itself where the choice belongs.
    blank = {"blank": None} if options.get("template") is not None else {}
    parts = [
        reader.split(start, name, **blank)
        for example, names in zip(examples, texts, strict=True)
        for start in [written(example)]
        for name in names
    ]
    has_encoder = reader.step.is_encoder_decoder
    rows = [part.row if has_encoder else cut(part.row, reader.step.capacity) for part in parts]
    found = reader.continuations(rows, options["batch_size"], options.get("progress"))
    scores, start = [], 0
    for names in texts:
        end = start + len(names)
        scored, of_choices = [part.text for part in parts[start:end]], found[start:end]
        scores.append(Scores(likelihoods(scored, of_choices), likelihoods(scored, of_choices, "bytes")))
        start = end
    return scores


def _by_pairs(
    pipe: Any, examples: Sequence[Example], texts: Sequence[Sequence[str]], options: EvaluationOptions
) -> list[Scores]:
    """Returns the logits of a classifier for pairs of each text and its choices."""
    if len(pipe.info.labels) != 1:
        raise InputError(
            "Texts with choices need a classifier of pairs with one class, as MultipleChoice trains it, or a model "
            f"that generates. Received: a classifier with {len(pipe.info.labels)} classes"
        )
    pairs = [(example.text, name) for example, names in zip(examples, texts, strict=True) for name in names]
    answers: list[Any] = []
    size, progress = options["batch_size"], options.get("progress")
    for start in range(0, len(pairs), size):
        answers += pipe(pairs[start : start + size], top_k=None, truncation=True)
        if progress is not None:
            progress(len(answers), len(pairs))
    values = np.array([row[0]["score"] for row in answers], np.float64)
    if pipe.info.problem_type != "regression":  # otherwise, the scores are probabilities
        values = np.log(np.maximum(values, np.finfo(np.float32).tiny)) - np.log1p(-np.minimum(values, 1 - 2**-24))
    ends = np.cumsum([len(names) for names in texts])[:-1]
    return [Scores(row) for row in np.split(values, ends)]


def prompts(pipe: Any, options: EvaluationOptions) -> Callable[[Example], str]:
    """Returns the function from an example to its prompt: by default its text, with the question if it has one."""
    template = options.get("template")
    if template is None:
        before, after = (pipe.info.prefix, "") if pipe.info.is_encoder_decoder else ("", " ")
        return lambda example: before + " ".join(filter(None, (example.text.rstrip(), example.question))) + after
    written = template if callable(template) else prompt([], 0, template=str(template))
    return lambda example: str(written(example if isinstance(written, FewShotPrompt) else example.text))


def _index(example: Example, names: Sequence[str]) -> int:
    label, stripped = str(example.label).strip(), [name.strip() for name in names]
    if label in stripped:
        return stripped.index(label)
    if label.isdigit() and int(label) < len(names) and len(names) > 1:
        return int(label)
    raise InputError(
        "A label must be one of at least two choices, or its index. "
        f"Received: {example.label!r:.40} with {len(names)} choices for {example.text!r:.40}"
    )
