"""What each task measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.evaluation import metrics
from kerasformer.evaluation.examples import Example
from kerasformer.fidelity.perplexity import losses
from kerasformer.pipelines import Pipeline
from kerasformer.progress import CountProgress
from kerasformer.tasks import of_prefix

_BATCH = 8


def evaluate(pipe: Pipeline, examples: Sequence[Example], progress: CountProgress | None = None) -> dict[str, float]:
    """Runs texts through a pipeline and compares its answers with the right ones.

    Args:
        pipe: On any engine.
        examples: The texts; texts that are too long are cut.
        progress: Is told how far it is.

    Returns:
        text-classification: `accuracy`, and `f1`, the mean of all classes. token-classification: `accuracy` of words
        and, for tags such as `B-PER`, `f1` of whole entities. question-answering: `exact_match` and `f1` of words.
        fill-mask: `accuracy`. summarization: `rouge1`, `rouge2`, `rougeL`, `rougeLsum`. translation: `bleu`, `chrf`.
        text2text-generation: all of these. text-generation: `perplexity` of the texts, each by itself, its first
        token not counted. Shares are from 0 to 1, BLEU and chrF too.

    Raises:
        InputError: a task without metric, or labels that are missing or not the model's.
        MissingExtraError: `rouge-score` or `sacrebleu` is needed and not installed.
    """
    check(pipe.task, examples)
    answers = _MEASURES[of_prefix(pipe.task)](pipe, examples, progress or _silent)
    return {name: float(value) for name, value in answers.items()}


def check(task: str, examples: Sequence[Example]) -> None:
    """Says whether a task can be measured on these examples.

    Raises:
        InputError: a task without metric, or a text without the label that it needs.
        MissingExtraError: the package of its metric is not installed.
    """
    task = of_prefix(task)
    if task not in _MEASURES:
        raise InputError(f"There is no metric for {task}. Expected one of {', '.join(_MEASURES)}")
    missing = [place for place, example in enumerate(examples, 1) if example.label is None]
    if missing and task != "text-generation":
        raise InputError(f"{task} is measured with labels. Received: text {missing[0]} of {len(examples)} has none")
    metrics.check_packages(*_PACKAGES.get(task, ()))


def _silent(done: int, total: int) -> None:
    """Tells nobody."""


def _answers(
    ask: Callable[[Sequence[Example]], Sequence[Any]], examples: Sequence[Example], tell: CountProgress
) -> list[Any]:
    """Answers to all examples, some at a time."""
    answers: list[Any] = []
    for start in range(0, len(examples), _BATCH):
        answers += ask(examples[start : start + _BATCH])
        tell(len(answers), len(examples))
    return answers


def _text_classification(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    if pipe.info.problem_type == "regression":
        raise InputError("There is no metric for regression. Expected a model that chooses among classes")
    known = _Classes(pipe.info.labels)

    def ask(part: Sequence[Example]) -> Sequence[Any]:
        pairs = [(example.text, example.pair) for example in part]
        answers: Sequence[Any] = pipe(pairs, top_k=None, truncation=True)
        return answers

    ranked = _answers(ask, examples, tell)
    if pipe.info.problem_type == "multi_label_classification":
        received = [{known.find(one["label"]) for one in row if one["score"] > 0.5} for row in ranked]
        expected = [{known.find(label) for label in _listed(example.label)} for example in examples]
        same = np.mean([a == b for a, b in zip(received, expected, strict=True)])
        return {"accuracy": float(same), "f1": metrics.labels_f1(received, expected)}
    best = [known.find(row[0]["label"]) for row in ranked]
    right = [known.find(example.label) for example in examples]
    return {"accuracy": metrics.accuracy(best, right), "f1": metrics.macro_f1(best, right)}


class _Classes:
    """Finds classes by name or id."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._ids = {label.lower(): place for place, label in enumerate(labels)}

    def find(self, label: Any) -> int:
        """The id of a class.

        Raises:
            InputError: the model has no such class.
        """
        place = self._ids.get(str(label).strip().lower())
        if place is None and str(label).strip().isdigit():
            place = int(label)
        if place is None or place >= len(self._labels):
            raise InputError(
                f"A label must be one of {', '.join(self._labels)}, or its id. Received: {label!r:.80}. If that is the "
                "text, say which column is which"
            )
        return place


def _token_classification(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    known, labels = _Classes(pipe.info.labels), pipe.info.labels
    expected = []
    for place, example in enumerate(examples, 1):
        tags = [labels[known.find(tag)] for tag in _listed(example.label)]
        if len(tags) != len(example.words):
            raise InputError(
                "token-classification is measured on lists of words with a label for each. "
                f"Received: {len(example.words)} words and {len(tags)} labels in text {place}"
            )
        expected.append(tags)

    def ask(part: Sequence[Example]) -> Sequence[Any]:
        answers: Sequence[Any] = pipe([example.text for example in part], ignore_labels=(), truncation=True)
        return answers

    tokens = _answers(ask, examples, tell)
    received = [_word_tags(example.words, found) for example, found in zip(examples, tokens, strict=True)]
    words = [[tag for row in rows for tag in row] for rows in (received, expected)]
    figures = {"accuracy": metrics.accuracy(words[0], words[1])}
    if any(label.startswith(("B-", "I-")) for label in labels):
        figures["f1"] = metrics.f1(*([metrics.entities(row) for row in rows] for rows in (received, expected)))
    return figures


def _word_tags(words: Sequence[str], tokens: Sequence[dict[str, Any]]) -> list[str]:
    """The label of each word's first token; `O` for words that were cut off."""
    tags, start, place = [], 0, 0
    for word in words:
        while place < len(tokens) and tokens[place]["end"] <= start:
            place += 1
        tags.append(tokens[place]["entity"] if place < len(tokens) and tokens[place]["start"] <= start else "O")
        start += len(word) + 1
    return tags


def _question_answering(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    if any(example.question is None for example in examples):
        raise InputError("question-answering is measured on questions about texts. Received: a text without question")
    expected = [[answer for answer in _listed(example.label) if answer] for example in examples]

    def ask(part: Sequence[Example]) -> Sequence[Any]:
        questions, contexts = ([getattr(example, key) for example in part] for key in ("question", "text"))
        found = pipe(question=questions, context=contexts, handle_impossible_answer=not all(expected))
        return [one["answer"] for one in found]

    received = _answers(ask, examples, tell)
    scores = [metrics.answer_scores(*pair) for pair in zip(received, expected, strict=True)]
    exact, overlap = np.mean(scores, axis=0)
    return {"exact_match": exact, "f1": overlap}


def _fill_mask(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    mask = pipe.tokenizer.mask_token or ""
    if any(example.text.count(mask) != 1 for example in examples):
        raise InputError(f"fill-mask is measured on texts with one {mask}, whose label is the word for it")

    def ask(part: Sequence[Example]) -> Sequence[Any]:
        return [row[0]["token_str"].strip() for row in pipe([example.text for example in part], top_k=1)]

    received = _answers(ask, examples, tell)
    return {"accuracy": metrics.accuracy(received, [str(example.label).strip() for example in examples])}


def _writing(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    def ask(part: Sequence[Example]) -> Sequence[Any]:
        return [next(iter(row.values())) for row in pipe([example.text for example in part], truncation=True)]

    received = _answers(ask, examples, tell)
    expected = [list(map(str, _listed(example.label))) for example in examples]
    task = of_prefix(pipe.task)
    figures: dict[str, float] = {}
    if task != "translation":
        figures |= metrics.rouge(received, expected)
    if task != "summarization":
        figures |= metrics.bleu_and_chrf(received, expected)
    return figures


def _perplexity(pipe: Any, examples: Sequence[Example], tell: CountProgress) -> dict[str, float]:
    step = pipe.model
    rows = []
    for example in examples:
        ids = pipe.tokenizer.encode(example.text)
        # What is longer than the cache is read in pieces, each of which begins anew.
        pieces = [ids[start : start + step.capacity] for start in range(0, len(ids), step.capacity)]
        rows += [piece for piece in pieces if len(piece) > 1]
    if not rows:
        raise InputError("Perplexity needs texts of two tokens at least. Received: none")
    rows.sort(key=len)
    found: list[np.ndarray] = []
    for start in range(0, len(rows), _BATCH):
        found += losses(step, rows[start : start + _BATCH])
        tell(len(found), len(rows))
    return {"perplexity": float(np.exp(np.concatenate(found).astype("float64").mean()))}


def _listed(label: Any) -> list[Any]:
    return list(label) if isinstance(label, list | tuple) else [label]


_MEASURES: dict[str, Callable[[Any, Sequence[Example], CountProgress], dict[str, float]]] = {
    "text-classification": _text_classification,
    "token-classification": _token_classification,
    "question-answering": _question_answering,
    "fill-mask": _fill_mask,
    "summarization": _writing,
    "translation": _writing,
    "text2text-generation": _writing,
    "text-generation": _perplexity,
}

_PACKAGES = {
    "summarization": ("rouge_score",),
    "translation": ("sacrebleu",),
    "text2text-generation": ("rouge_score", "sacrebleu"),
}
"""What the metrics of a task need."""
