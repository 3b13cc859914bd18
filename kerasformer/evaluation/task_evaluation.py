"""Evaluation of each task."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import numpy as np

from kerasformer.command_options import EvaluationOptions
from kerasformer.decoding.likelihood import losses
from kerasformer.errors import InputError
from kerasformer.evaluation import metrics
from kerasformer.evaluation.examples import Example, read_data
from kerasformer.evaluation.text_evaluation import (
    PACKAGES,
    TEXT_TASKS,
    Evaluation,
    System,
    generated,
    references,
    score,
)
from kerasformer.options import checked, documented
from kerasformer.pipelines import Pipeline, pipeline
from kerasformer.tasks import of_prefix

Text = TypeVar("Text")
Answer = TypeVar("Answer")


@documented(EvaluationOptions)
def evaluate(
    source: Any,
    data: str | os.PathLike[str] | Sequence[Any],
    labels: Sequence[Any] | None = None,
    **options: Unpack[EvaluationOptions],
) -> dict[str, float]:
    """Runs a model on labelled texts and computes the metrics of its task.

        evaluate("out", "dev.tsv")
        evaluate(model, ["A warm film.", "A bad one."], ["positive", "negative"])

    Args:
        source: Pipeline on any engine, or a source of `kerasformer.pipeline`.
        data: File of labelled texts, see `read_examples`; or texts, or `Example`s. Texts that exceed the maximum length
            of the model are truncated.
        labels: Label of each text, unless `data` contains them.
        options: See `EvaluationOptions`.

    Returns:
        Figures by name. text-classification: `accuracy` and `f1`, the mean over all classes. token-classification:
        `accuracy` of words and, for tags such as `B-PER`, `f1` of entities. question-answering: `exact_match` and `f1`
        of words. fill-mask: `accuracy`. summarization: `rouge1`, `rouge2`, `rougeL`, `rougeLsum`. translation: `bleu`,
        `chrf`. text2text-generation: those of summarization and translation. text-generation: `perplexity` of all
        tokens except the first of each text. All figures except perplexity are between 0 and 1.

    Raises:
        InputError: the task has no metric, labels are missing or unknown to the model, or an option is unknown or would
            be ignored for the task.
        MissingExtraError: `rouge-score` or `sacrebleu` is needed and not installed.
    """
    chosen = cast(EvaluationOptions, checked(EvaluationOptions, options, "an evaluation"))
    pipe = source
    if not isinstance(source, Pipeline):
        pipe = pipeline(source, chosen.get("task"), num_threads=chosen.get("num_threads"))
    read = read_data(data, labels, chosen)
    refuse_ignored(pipe.task, chosen)
    check(pipe.task, read)
    answers = _MEASURES[of_prefix(pipe.task)](pipe, read, chosen)
    return {name: float(value) for name, value in answers.items()}


class TaskEvaluation(Evaluation):
    """Scores of models of one task on the same labelled texts."""

    def __init__(self, task: str, examples: Sequence[Example]) -> None:
        """Checks the task and the examples; see `check`."""
        super().__init__(task, examples)
        check(self.task, self.examples)

    def add_model(self, name: str, pipe: Pipeline, **options: Unpack[EvaluationOptions]) -> System:
        """Runs a model on the texts; see `evaluate`."""
        self.check_task(pipe)
        self.systems.append(System(name, False, evaluate(pipe, self.examples, **options), engine=pipe.engine))
        return self.systems[-1]


def refuse_ignored(task: str, options: Mapping[str, object]) -> None:
    """Refuses options of generated texts for other tasks.

    Raises:
        InputError: an option would be ignored.
    """
    ignored = [name for name in ("settings", "references", "bleu_tokenizer") if options.get(name)]
    if ignored and of_prefix(task) not in TEXT_TASKS:
        raise InputError(f"{', '.join(ignored)}: only for summarization and translation. Received: the task {task}")


def check(task: str, examples: Sequence[Example]) -> None:
    """Checks that a task can be evaluated on these examples.

    Raises:
        InputError: the task has no metric, or a label is missing.
        MissingExtraError: the package of its metric is not installed.
    """
    task = of_prefix(task)
    if task not in _MEASURES:
        raise InputError(f"There is no metric for {task}. Expected one of {', '.join(_MEASURES)}")
    missing = [number for number, example in enumerate(examples, 1) if example.label is None]
    if missing and task != "text-generation":
        raise InputError(f"{task} needs a label for each text. Received: text {missing[0]} of {len(examples)} has none")
    metrics.check_packages(*PACKAGES.get(task, ()))
    if task in PACKAGES:
        references(examples)


def _answers(
    answer: Callable[[Sequence[Text]], Sequence[Answer]], examples: Sequence[Text], options: EvaluationOptions
) -> list[Answer]:
    """Returns the answers to all examples, computed in batches."""
    answers: list[Answer] = []
    size, progress = options["batch_size"], options.get("progress")
    for start in range(0, len(examples), size):
        answers += answer(examples[start : start + size])
        if progress is not None:
            progress(len(answers), len(examples))
    return answers


def _text_classification(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    if pipe.info.problem_type == "regression":
        raise InputError("There is no metric for regression. Expected: a classification model")
    known = _Classes(pipe.info.labels)

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        pairs = [(example.text, example.pair) for example in part]
        answers: Sequence[Any] = pipe(pairs, top_k=None, truncation=True)
        return answers

    ranked = _answers(answer, examples, options)
    if pipe.info.problem_type == "multi_label_classification":
        received = [{known.find(one["label"]) for one in row if one["score"] > 0.5} for row in ranked]
        expected = [{known.find(label) for label in _listed(example.label)} for example in examples]
        same = np.mean([a == b for a, b in zip(received, expected, strict=True)])
        return {"accuracy": float(same), "f1": metrics.labels_f1(received, expected)}
    best = [known.find(row[0]["label"]) for row in ranked]
    right = [known.find(example.label) for example in examples]
    return {"accuracy": metrics.accuracy(best, right), "f1": metrics.macro_f1(best, right)}


class _Classes:
    """Classes of a model, found by name or id."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._ids = {label.lower(): index for index, label in enumerate(labels)}

    def find(self, label: object) -> int:
        """Returns the id of a class.

        Raises:
            InputError: the model has no such class.
        """
        index = self._ids.get(str(label).strip().lower())
        if index is None and str(label).strip().isdigit():
            index = int(str(label))
        if index is None or index >= len(self._labels):
            raise InputError(
                f"A label must be one of {', '.join(self._labels)}, or its id. Received: {label!r:.80}. If that is a "
                "text, specify the columns of texts and labels"
            )
        return index


def _token_classification(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    known, labels = _Classes(pipe.info.labels), pipe.info.labels
    expected = []
    for number, example in enumerate(examples, 1):
        tags = [labels[known.find(tag)] for tag in _listed(example.label)]
        if len(tags) != len(example.words):
            raise InputError(
                "token-classification needs lists of words with a label for each word. "
                f"Received: {len(example.words)} words and {len(tags)} labels in text {number}"
            )
        expected.append(tags)

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        answers: Sequence[Any] = pipe([example.text for example in part], ignore_labels=(), truncation=True)
        return answers

    tokens = _answers(answer, examples, options)
    received = [_word_tags(example.words, row) for example, row in zip(examples, tokens, strict=True)]
    words = [[tag for row in rows for tag in row] for rows in (received, expected)]
    figures = {"accuracy": metrics.accuracy(words[0], words[1])}
    if any(label.startswith(("B-", "I-")) for label in labels):
        figures["f1"] = metrics.f1(*([metrics.entities(row) for row in rows] for rows in (received, expected)))
    return figures


def _word_tags(words: Sequence[str], tokens: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the label of each word's first token; `O` for words lost to truncation."""
    tags, start, index = [], 0, 0
    for word in words:
        while index < len(tokens) and tokens[index]["end"] <= start:
            index += 1
        tags.append(tokens[index]["entity"] if index < len(tokens) and tokens[index]["start"] <= start else "O")
        start += len(word) + 1
    return tags


def _question_answering(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    if any(example.question is None for example in examples):
        raise InputError("question-answering needs a question for each text. Received: a text without question")
    expected = [[right for right in _listed(example.label) if right] for example in examples]

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        questions, contexts = ([getattr(example, key) for example in part] for key in ("question", "text"))
        answers = pipe(question=questions, context=contexts, handle_impossible_answer=not all(expected))
        return [one["answer"] for one in answers]

    received = _answers(answer, examples, options)
    scores = [metrics.answer_scores(*pair) for pair in zip(received, expected, strict=True)]
    exact, overlap = np.mean(scores, axis=0)
    return {"exact_match": exact, "f1": overlap}


def _fill_mask(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    mask = pipe.tokenizer.mask_token or ""
    if any(example.text.count(mask) != 1 for example in examples):
        raise InputError(f"fill-mask needs texts with exactly one {mask}, whose label is the masked word")

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        return [row[0]["token_str"].strip() for row in pipe([example.text for example in part], top_k=1)]

    received = _answers(answer, examples, options)
    return {"accuracy": metrics.accuracy(received, [str(example.label).strip() for example in examples])}


def _text_to_text(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    expected = references(examples)
    received = generated(
        pipe,
        [example.text for example in examples],
        options.get("settings"),
        options["batch_size"],
        options.get("progress"),
    )
    return score(of_prefix(pipe.task), received, expected, options.get("bleu_tokenizer")).figures


def _perplexity(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> dict[str, float]:
    step = pipe.model
    rows = []
    for example in examples:
        ids = pipe.tokenizer.encode(example.text)
        # A text that exceeds the cache is split into independent chunks.
        chunks = [ids[start : start + step.capacity] for start in range(0, len(ids), step.capacity)]
        rows += [chunk for chunk in chunks if len(chunk) > 1]
    if not rows:
        raise InputError("Perplexity needs texts of at least two tokens. Received: none")
    rows.sort(key=len)
    text_losses = _answers(partial(losses, step), rows, options)
    return {"perplexity": float(np.exp(np.concatenate(text_losses).astype("float64").mean()))}


def _listed(label: object) -> list[Any]:
    return list(label) if isinstance(label, list | tuple) else [label]


_MEASURES: dict[str, Callable[[Any, Sequence[Example], EvaluationOptions], dict[str, float]]] = {
    "text-classification": _text_classification,
    "token-classification": _token_classification,
    "question-answering": _question_answering,
    "fill-mask": _fill_mask,
    "summarization": _text_to_text,
    "translation": _text_to_text,
    "text2text-generation": _text_to_text,
    "text-generation": _perplexity,
}
