"""Evaluation of each task."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, cast

import numpy as np

from kerasformer.basics.command_options import EvaluationOptions
from kerasformer.basics.options import checked, documented
from kerasformer.basics.progress import CountProgress
from kerasformer.basics.tasks import without_languages
from kerasformer.errors import InputError
from kerasformer.pipelines import Example, Label, Pipeline, pipeline, similarity
from kerasformer.tokenization import first_tokens
from kerasformer.tools.evaluation import metrics
from kerasformer.tools.evaluation.baselines import majority
from kerasformer.tools.evaluation.choices import choices
from kerasformer.tools.evaluation.choosing import choose
from kerasformer.tools.evaluation.classes import Classes, ClassScores, entity_scores
from kerasformer.tools.evaluation.data import read_data
from kerasformer.tools.evaluation.glue import GlueTask, glue_task
from kerasformer.tools.evaluation.outcome import NO_CLASS, Outcome, correlation, of_classes
from kerasformer.tools.evaluation.perplexity import last_words, perplexity
from kerasformer.tools.evaluation.probes import probes
from kerasformer.tools.evaluation.text_evaluation import (
    PACKAGES,
    TEXT_TASKS,
    Evaluation,
    System,
    generated,
    references,
    score,
)

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
        Figures by name. text-classification: `accuracy`, `f1`, the mean over all classes, and `matthews`, the
        correlation of classes; for regression, `pearson` and `spearman`. sentence-similarity: `pearson` and `spearman`
        of the similarities of pairs. token-classification: `accuracy` of words and, for tags such as `B-PER`, `f1` of
        entities as in seqeval. question-answering: `exact_match` and `f1` of words. fill-mask: `accuracy`.
        summarization: `rouge1`, `rouge2`, `rougeL`, `rougeLsum`. translation: `bleu`, `chrf`. text2text-generation:
        those of summarization and translation. text-generation: `perplexity` of all tokens except the first of each
        text, and `bits_per_byte`; with `last_word`, `accuracy` and `perplexity` of last words. With choices,
        `accuracy` and, of a model that generates, `accuracy_normalized`. All figures are between 0 and 1, except
        perplexities, bits, and correlations, which can be negative.

    Raises:
        InputError: the task has no metric, labels are missing or unknown to the model, or an option is unknown or would
            be ignored for the task.
        MissingExtraError: `rouge-score` or `sacrebleu` is needed and not installed.
    """
    return outcome(source, data, labels, **options).figures


def outcome(
    source: Any,
    data: str | os.PathLike[str] | Sequence[Any],
    labels: Sequence[Any] | None = None,
    **options: Unpack[EvaluationOptions],
) -> Outcome:
    """Returns the figures of `evaluate` with the answer to each text and how wrong it is; arguments as there."""
    chosen = checked(EvaluationOptions, options, "an evaluation")
    pipe = source
    if not isinstance(source, Pipeline):
        pipe = pipeline(source, chosen.get("task"), num_threads=chosen.get("num_threads"))
    read = read_data(data, labels, chosen)
    refuse_ignored(pipe.task, chosen)
    check(pipe.task, read, chosen)
    return _measure(pipe.task, read, chosen)(pipe, read, chosen)


class TaskEvaluation(Evaluation):
    """Scores of models of one task on the same labelled texts."""

    def __init__(self, task: str, examples: Sequence[Example], options: EvaluationOptions | None = None) -> None:
        """Checks the task and the examples; see `check`.

        Args:
            task: Task of the models.
            examples: Texts with labels.
            options: Options of all evaluations, such as `{"glue": "cola"}`.
        """
        super().__init__(task, examples)
        self._options = options or EvaluationOptions()
        check(self.task, self.examples, self._options)

    def add_model(self, name: str, pipe: Pipeline, **options: Unpack[EvaluationOptions]) -> System:
        """Runs a model on the texts; see `evaluate`."""
        self.check_task(pipe)
        merged: EvaluationOptions = {**self._options, **options}
        found = outcome(pipe, self.examples, **merged)
        return self._add(System.of(name, found, engine=pipe.engine))

    def add_baselines(self, train: Sequence[Example] = ()) -> None:
        """Adds the baseline that needs no model: for classes, the most frequent one.

        Args:
            train: Training texts, whose most frequent class it is; by default that of the evaluated texts.
        """
        if self.task == "text-classification" and not self._is_scored():
            self._add(System.of("majority", majority(self.examples, train or self.examples, self._glue()), True))

    def add_probes(
        self,
        name: str,
        pipe: Any,
        train: Sequence[Example],
        *,
        batch_size: int = 8,
        progress: CountProgress | None = None,
    ) -> None:
        """Adds two baselines that are trained on the vectors of a frozen model; see `probes`.

        Args:
            name: Name of the model.
            pipe: Pipeline for sentence-similarity or feature-extraction, on any engine.
            train: Training texts with their classes.
            batch_size: Number of texts in one batch.
            progress: Called with the number of completed texts.

        Raises:
            InputError: the task does not predict a class, or there are no training texts.
            MissingExtraError: scikit-learn is not installed.
        """
        if self.task != "text-classification" or self._is_scored():
            raise InputError(f"Vectors classify texts: a baseline of text-classification. Received: {self.task}")
        found = probes(pipe, train, self.examples, self._glue(), batch_size=batch_size, progress=progress)
        for kind, result in found.items():
            self._add(System.of(f"{kind}: {name}", result, True, pipe.engine))

    def _glue(self) -> GlueTask | None:
        name = self._options.get("glue")
        return glue_task(name) if name else None

    def _is_scored(self) -> bool:
        """Returns whether labels are no single classes: numbers, or lists of classes."""
        glue = self._glue()
        if glue is not None:
            return not glue.classes
        by_model = any(one.confusion is None and not one.is_baseline for one in self.systems)
        return by_model or any(isinstance(example.label, list | tuple) for example in self.examples)


_ONLY_FOR = {
    **dict.fromkeys(("settings", "references", "bleu_tokenizer"), TEXT_TASKS),
    **dict.fromkeys(("stride", "last_word"), ("text-generation",)),
    "template": ("text-generation", "text2text-generation"),
    "choices": ("text-generation", "text2text-generation", "text-classification", "text-ranking"),
}
"""Tasks of the options that only some tasks have."""
_GLUE_TASKS = ("text-classification", "sentence-similarity", "text-generation", "text2text-generation")


def refuse_ignored(task: str, options: Mapping[str, object]) -> None:
    """Refuses options of other tasks.

    Raises:
        InputError: an option would be ignored.
    """
    name = without_languages(task)
    for option, tasks in _ONLY_FOR.items():
        if options.get(option) and name not in tasks:
            only = "summarization and translation" if tasks == TEXT_TASKS else ", ".join(tasks)
            raise InputError(f"{option}: only for {only}. Received: the task {task}")
    if options.get("glue") and name not in _GLUE_TASKS:
        raise InputError(f"glue: only for {', '.join(_GLUE_TASKS)}. Received: the task {task}")
    measures = [each for each in ("stride", "last_word", "choices") if options.get(each)]
    if len(measures) > 1:
        raise InputError(f"Only one of stride, last_word and choices is used. Received: {', '.join(measures)}")


def check(task: str, examples: Sequence[Example], options: EvaluationOptions | None = None) -> None:
    """Checks that a task can be evaluated on these examples.

    Raises:
        InputError: the task has no metric, or a label is missing.
        MissingExtraError: the package of its metric is not installed.
    """
    name = without_languages(task)
    measure = _measure(name, examples, options or {})
    missing = [number for number, example in enumerate(examples, 1) if example.label is None]
    if missing and measure not in (perplexity, last_words):
        where = examples[missing[0] - 1].location
        raise InputError(
            f"{name} needs a label for each text. Received: text {missing[0]} of {len(examples)} has none"
            + (f" ({where})" if where else "")
        )
    if measure is _text_to_text:
        metrics.check_packages(*PACKAGES[name])
        references(examples)


def is_classified(task: str, examples: Sequence[Example], options: EvaluationOptions) -> bool:
    """Whether a model from text to text answers by classes, scores or choices rather than by texts with references."""
    return _measure(task, examples, options) in (choices, _text_to_class)


def _measure(task: str, examples: Sequence[Example], options: EvaluationOptions) -> Measure:
    """Returns what measures a task: for decoders, it depends on the texts and the options."""
    name = without_languages(task)
    chooses = name in _ONLY_FOR["choices"] and (options.get("choices") or any(one.choices for one in examples))
    usual = perplexity if name == "text-generation" else _MEASURES.get(name)
    glue = options.get("glue")
    if glue and name == "text2text-generation":
        return _text_to_class
    if glue and glue_task(glue).needs_text_to_text:
        raise InputError(f"glue={glue}: only for text2text-generation, in T5's form. Received: the task {task}")
    measure = last_words if options.get("last_word") else choices if chooses else usual
    for option, owner, needs in (("stride", perplexity, "texts"), ("template", choices, "choices")):
        if options.get(option) and measure is not owner:
            raise InputError(f"{option} is for {needs} alone. Received: {option}={options.get(option)!r}")
    if measure is not None:
        return measure
    if name == "text-ranking":
        raise InputError("text-ranking needs choices for each text, of which the label is the best. Received: none")
    raise InputError(f"There is no metric for {name}. Expected one of {', '.join([*_MEASURES, 'text-generation'])}")


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


def _text_classification(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    def answer(part: Sequence[Example]) -> Sequence[Any]:
        pairs = [(example.text, example.pair) for example in part]
        answers: Sequence[Any] = pipe(pairs, top_k=None, truncation=True)
        return answers

    if pipe.info.problem_type == "regression":
        expected = _numbers(examples)
        values = [row[0]["score"] for row in _answers(answer, examples, options)]
        return correlation(values, expected, [(a - b) ** 2 for a, b in zip(values, expected, strict=True)])
    name = options.get("glue")
    glue = glue_task(name) if name else None
    if glue is not None and not glue.classes:
        raise InputError(f"{name} has scores. Expected: a regression model. Received: a classifier")
    known = Classes(pipe.info.labels, glue)
    if len(known.labels) == 1 and pipe.info.problem_type != "multi_label_classification":
        raise InputError(
            "A classifier with one class always answers it, so that its accuracy means nothing. Expected: texts with "
            "choices, which it ranks, or problem_type 'regression' in config.json for labels that are numbers. "
            f"Received: the class {known.labels[0]!r}"
        )
    ranked = _answers(answer, examples, options)
    scores = [{known.find(one["label"]): one["score"] for one in row} for row in ranked]
    if pipe.info.problem_type == "multi_label_classification":
        return _independent_classes(known, scores, examples)
    best = [known.find(row[0]["label"]) for row in ranked]
    right = [known.find(example.label, example) for example in examples]
    likelihood = [row[index] for row, index in zip(scores, right, strict=True)]
    return of_classes(known, best, right, [-float(np.log(max(one, _TINY))) for one in likelihood])


_TINY = float(np.finfo(np.float32).tiny)


def _independent_classes(known: Classes, scores: Sequence[Mapping[int, float]], examples: Sequence[Example]) -> Outcome:
    received = [{index for index, score in row.items() if score > 0.5} for row in scores]
    expected = [{known.find(label, example) for label in _listed(example.label)} for example in examples]
    same = np.mean([a == b for a, b in zip(received, expected, strict=True)])
    losses = [
        -sum(np.log(max(score if index in right else 1 - score, _TINY)) for index, score in row.items())
        for row, right in zip(scores, expected, strict=True)
    ]
    return Outcome(
        {"accuracy": float(same), "f1": metrics.labels_f1(received, expected)},
        tuple(", ".join(known.labels[index] for index in sorted(row)) for row in received),
        tuple(map(float, losses)),
        tuple(", ".join(known.labels[index] for index in sorted(row)) for row in expected),
    )


def _numbers(examples: Sequence[Example]) -> list[float]:
    """Returns the labels as numbers.

    Raises:
        InputError: a label is not a number.
    """
    numbers = []
    for number, example in enumerate(examples, 1):
        try:
            numbers.append(float(example.label))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"A number was expected as the label of each text. Received: {example.label!r:.80} "
                f"({example.location or f'text {number}'})"
            ) from error
    return numbers


def _sentence_similarity(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    if any(example.pair is None for example in examples):
        raise InputError("sentence-similarity needs pairs of texts with a score. Received: a text without a second one")
    expected = _numbers(examples)

    def answer(part: Sequence[Example]) -> Sequence[float]:
        texts = [example.text for example in part], [str(example.pair) for example in part]
        first, second = (pipe.encode(each, truncation=True, batch_size=len(part)) for each in texts)
        kind = pipe.embedding.similarity
        return [float(similarity(a[None], b[None], kind)[0, 0]) for a, b in zip(first, second, strict=True)]

    values = _answers(answer, examples, options)
    ranks = [metrics.ranks(each) / len(expected) for each in (values, expected)]
    return correlation(values, expected, ((ranks[0] - ranks[1]) ** 2).tolist())


def _token_classification(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    known, labels = Classes(pipe.info.labels), pipe.info.labels
    expected = []
    for number, example in enumerate(examples, 1):
        tags = [labels[known.find(tag, example)] for tag in _listed(example.label)]
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
    classes: tuple[ClassScores, ...] = ()
    if any(label.startswith(("B-", "I-")) for label in labels):
        spans = [[metrics.entities(row, labels) for row in rows] for rows in (received, expected)]
        figures["f1"] = metrics.f1(*spans)
        classes = entity_scores(*spans)
    return Outcome(
        figures,
        tuple(map(" ".join, received)),
        tuple(1 - metrics.accuracy(*rows) for rows in zip(received, expected, strict=True)),
        tuple(map(" ".join, expected)),
        classes=classes,
    )


def _word_tags(words: Sequence[str], tokens: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the label of each word's first token; `O` for words lost to truncation, or without a token."""
    found = first_tokens(words, [(token["start"], token["end"]) for token in tokens])
    return ["O" if index is None else tokens[index]["entity"] for index in found]


def _question_answering(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    if any(example.question is None for example in examples):
        raise InputError("question-answering needs a question for each text. Received: a text without question")
    expected = [[right for right in _listed(example.label) if right] for example in examples]

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        questions, contexts = ([getattr(example, key) for example in part] for key in ("question", "text"))
        answers = pipe(question=questions, context=contexts, handle_impossible_answer=not all(expected))
        return [one["answer"] for one in answers]

    received = _answers(answer, examples, options)
    return _of_answers(received, expected)


def _of_answers(received: Sequence[str], expected: Sequence[Sequence[str]]) -> Outcome:
    """Returns the outcome of answers that are texts, each compared with the best of the right ones."""
    scores = [metrics.answer_scores(*pair) for pair in zip(received, expected, strict=True)]
    exact, overlap = np.mean(scores, axis=0)
    return Outcome(
        {"exact_match": float(exact), "f1": float(overlap)},
        tuple(received),
        tuple(1 - score for _, score in scores),
        tuple(" | ".join(map(str, row)) for row in expected),
    )


def _fill_mask(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    mask = pipe.tokenizer.mask_token or ""
    if any(example.text.count(mask) != 1 for example in examples):
        raise InputError(f"fill-mask needs texts with exactly one {mask}, whose label is the masked word")

    def answer(part: Sequence[Example]) -> Sequence[Any]:
        return [row[0]["token_str"].strip() for row in pipe([example.text for example in part], top_k=1)]

    received, expected = _answers(answer, examples, options), [str(example.label).strip() for example in examples]
    wrong = tuple(float(a != b) for a, b in zip(received, expected, strict=True))
    return Outcome({"accuracy": 1 - float(np.mean(wrong))}, tuple(received), wrong, tuple(expected))


def _text_to_text(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    expected = references(examples)
    received = generated(
        pipe,
        [example.text for example in examples],
        options.get("settings"),
        options["batch_size"],
        options.get("progress"),
    )
    figures = score(without_languages(pipe.task), received, expected, options.get("bleu_tokenizer")).figures
    return Outcome(figures, tuple(received))


def _text_to_class(pipe: Any, examples: Sequence[Example], options: EvaluationOptions) -> Outcome:
    """Evaluates a model that answers a task of GLUE by a text, as T5 does: see `GlueTask.kind`.

    With choices, which are the names of the classes in their order, the likeliest of them is the answer.
    """
    glue = glue_task(str(options.get("glue")))
    texts = [glue.written(example) for example in examples]
    given = options.get("choices")
    if given is not None and glue.kind == "phrase":
        raise InputError(f"The answer is a noun phrase of the text. Expected: no choices. Received: {', '.join(given)}")
    if given is not None and len(given) != len(glue.classes):
        raise InputError(
            f"choices must be names of the classes {', '.join(glue.classes) or '(the task has none)'}, in "
            f"their order. Received: {', '.join(given)}"
        )
    if given is not None:
        ranked = choose(pipe, texts, given, blank=None, batch_size=options["batch_size"])
        best = [row[0]["label"] for row in cast(list[list[Label]], ranked)]
        received: list[int | None] = [list(given).index(label) for label in best]
    else:
        settings = {"prefix": "", **(options.get("settings") or {})}  # that of the task is in the texts
        written = generated(pipe, texts, settings, options["batch_size"], options.get("progress"))
        if glue.kind == "text":
            return _of_answers(written, references(examples))
        if glue.kind == "number":
            values, expected = list(map(glue.number_of, written)), _numbers(examples)
            return correlation(values, expected, [(a - b) ** 2 for a, b in zip(values, expected, strict=True)])
        received = [glue.class_of(*pair) for pair in zip(written, examples, strict=True)]
    labels = (*glue.classes, NO_CLASS) if None in received else glue.classes
    known = Classes(labels, glue)
    right = [known.find(example.label, example) for example in examples]
    ids = [len(glue.classes) if index is None else index for index in received]
    groups = [example.group or (example.text, example.question) for example in examples]
    return of_classes(known, ids, right, [float(a != b) for a, b in zip(ids, right, strict=True)], groups)


def _listed(label: object) -> list[Any]:
    return list(label) if isinstance(label, list | tuple) else [label]


Measure = Callable[[Any, Sequence[Example], EvaluationOptions], Outcome]
_MEASURES: dict[str, Measure] = {
    "text-classification": _text_classification,
    "token-classification": _token_classification,
    "sentence-similarity": _sentence_similarity,
    "question-answering": _question_answering,
    "fill-mask": _fill_mask,
    "summarization": _text_to_text,
    "translation": _text_to_text,
    "text2text-generation": _text_to_text,
}
