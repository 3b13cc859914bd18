"""Evaluation of several models on the same texts, beside their baselines; that of generated texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kerasformer.basics.progress import CountProgress
from kerasformer.basics.tasks import without_languages
from kerasformer.errors import InputError
from kerasformer.pipelines import Example
from kerasformer.tools.evaluation import metrics
from kerasformer.tools.evaluation.baselines import BASELINES, tldr
from kerasformer.tools.evaluation.batches import in_batches
from kerasformer.tools.evaluation.classes import ClassScores, ConfusionMatrix
from kerasformer.tools.evaluation.metrics import TextScores
from kerasformer.tools.evaluation.outcome import Outcome
from kerasformer.tools.evaluation.sentences import sentences

_SUMMARIZATION, _TRANSLATION = "summarization", "translation"
PACKAGES = {
    _SUMMARIZATION: ("rouge_score",),
    _TRANSLATION: ("sacrebleu",),
    "text2text-generation": ("rouge_score", "sacrebleu"),
}
"""Packages that the metrics of each task need."""
TEXT_TASKS = tuple(PACKAGES)
"""Tasks that generate a text from another."""


@dataclass(frozen=True)
class System:
    """A model or a baseline with its scores.

    Attributes:
        name: Name of the model or of the baseline.
        is_baseline: Whether this is a baseline.
        figures: Scores by metric, between 0 and 1.
        texts: Answer to each example, as a text.
        settings: Settings that the model was called with.
        engine: Engine of the model; empty for a baseline without one.
        losses: How wrong each answer is, see `Outcome`; none for baselines.
        expected: What is expected of each answer, unless it is a reference.
        confusion: Counts of the classes, for classifiers with one class for each text.
        classes: Scores of each class or type of entity.
    """

    name: str
    is_baseline: bool
    figures: dict[str, float]
    texts: tuple[str, ...] = ()
    settings: dict[str, object] = field(default_factory=dict)
    engine: str = ""
    losses: tuple[float, ...] = ()
    expected: tuple[str, ...] = ()
    confusion: ConfusionMatrix | None = None
    classes: tuple[ClassScores, ...] = ()

    @classmethod
    def of(cls, name: str, found: Outcome, is_baseline: bool = False, engine: str = "") -> System:
        """Returns a model or a baseline with its outcome."""
        return cls(
            name,
            is_baseline,
            found.figures,
            found.answers,
            engine=engine,
            losses=found.losses,
            expected=found.expected,
            confusion=found.confusion,
            classes=found.classes,
        )


class Evaluation:
    """Scores of several models on the same texts.

    Attributes:
        task: Task of the models.
        examples: Texts with labels or references.
        systems: Models and baselines in the order in which they were added.
        signatures: Package, version and settings of each metric that depends on them.
    """

    def __init__(self, task: str, examples: Sequence[Example]) -> None:
        self.task, self.examples = without_languages(task), list(examples)
        self.systems: list[System] = []
        self.signatures: dict[str, str] = {}

    def check_task(self, pipe: Any) -> None:
        """Checks that a pipeline has the task.

        Raises:
            InputError: it has another task.
        """
        if without_languages(pipe.task) != self.task:
            raise InputError(f"A model for {self.task} was expected. Received: a model for {pipe.task}")

    def to_dict(self) -> dict[str, object]:
        """Returns the scores of all systems, and the signatures of the metrics, for JSON."""
        systems = [
            {"name": each.name, "baseline": each.is_baseline, "engine": each.engine or None}
            | ({} if each.is_baseline else {"settings": each.settings})
            | each.figures
            | ({"classes": [vars(one) for one in each.classes]} if each.classes else {})
            | ({"confusion": each.confusion.counts.tolist()} if each.confusion is not None else {})
            for each in self.systems
        ]
        return {
            "task": self.task,
            "texts": len(self.examples),
            "systems": systems,
            "signatures": self.signatures,
        }

    def expected(self) -> list[list[str]]:
        """Returns what is expected for each text: one or more texts, or none."""
        known = next((system.expected for system in self.systems if system.expected), ())
        if known:
            return [[text] for text in known]
        return [[] if example.label is None else [str(example.label)] for example in self.examples]

    def rows(self) -> list[dict[str, object]]:
        """Returns each text with what is expected and the answer of each system, for JSON."""
        return [
            {
                "text": example.text,
                "references": expected,
                "generated": {system.name: system.texts[index] for system in self.systems},
            }
            for index, (example, expected) in enumerate(zip(self.examples, self.expected(), strict=True))
        ]

    def losses(self, system: System) -> list[float]:
        """Returns how wrong each answer is; see `Outcome.losses`."""
        return list(system.losses)

    def errors(self, system: System, count: int) -> list[dict[str, object]]:
        """Returns the texts that a model answered worst, those of the highest loss first; see `losses`.

        Args:
            system: One of `systems`.
            count: Maximum number of texts. Those with a loss of 0 are left out.

        Returns:
            `{"text", "expected", "received", "loss"}` of each.
        """
        expected, losses = self.expected(), self.losses(system)
        worst = sorted(range(len(losses)), key=lambda index: -losses[index])[:count]
        return [
            {
                "text": self.examples[index].text,
                "expected": " | ".join(expected[index]),
                "received": system.texts[index],
                "loss": losses[index],
            }
            for index in worst
            if losses[index] > 0
        ]

    def _add(self, system: System) -> System:
        self.systems.append(system)
        return system


class TextEvaluation(Evaluation):
    """Scores of models and baselines that summarize or translate the same texts.

        evaluation = TextEvaluation("summarization", read_examples("test.jsonl"))
        evaluation.add_model("out", kf.pipeline("out", "summarization"), {"num_beams": 4})
        evaluation.add_baselines()

    Models of other tasks have no baselines; see `TaskEvaluation`.
    """

    def __init__(self, task: str, examples: Sequence[Example], bleu_tokenizer: str | None = None) -> None:
        """Checks the references and that the packages of the metrics are installed.

        Args:
            task: Task of the models; `"translation_en_to_de"` selects their prefix for these languages.
            examples: Texts, the labels of which are one or more references.
            bleu_tokenizer: Tokenizer of BLEU, see `metrics.bleu_and_chrf`.

        Raises:
            InputError: the task does not generate a text from another, or a reference is missing or not a text.
            MissingExtraError: `rouge-score` or `sacrebleu` is needed and not installed.
        """
        super().__init__(task, examples)
        if self.task not in TEXT_TASKS:
            raise InputError(
                f"Generated texts are evaluated for {_SUMMARIZATION} and {_TRANSLATION}. Received: task={task!r}"
            )
        metrics.check_packages(*PACKAGES[self.task])
        if bleu_tokenizer is not None and self.task == _SUMMARIZATION:
            raise InputError(f"bleu_tokenizer is for {_TRANSLATION}. Received: task={task!r}")
        self._bleu_tokenizer = bleu_tokenizer
        self._expected = references(examples)
        # Errors of the metrics are raised now rather than after the models have run.
        if self.task == _SUMMARIZATION:
            metrics.check_latin(self._expected)
        else:
            metrics.bleu_and_chrf([""], self._expected[:1], bleu_tokenizer)

    def add_model(
        self,
        name: str,
        pipe: Any,
        settings: Mapping[str, object] | None = None,
        *,
        batch_size: int = 8,
        progress: CountProgress | None = None,
    ) -> System:
        """Runs a model on the texts.

        Args:
            name: Name of the model.
            pipe: Pipeline of the task, on any engine.
            settings: Arguments of the pipeline, such as `{"num_beams": 4}`.
            batch_size: Number of texts in one batch.
            progress: Called with the number of completed texts.
        """
        self.check_task(pipe)
        settings = dict(settings or {})
        sources = [example.text for example in self.examples]
        texts = generated(pipe, sources, settings, batch_size, progress)
        return self._add(System(name, False, {}, tuple(texts), settings, pipe.engine))

    def add_baselines(self) -> None:
        """Adds the baselines without a model: lead-3 for summarization, a copy of the source for translation."""
        for name, baseline in BASELINES.get(self.task, {}).items():
            self._add(System(name, True, {}, tuple(baseline(example.text) for example in self.examples)))

    def add_tldr(self, name: str, pipe: Any, *, batch_size: int = 8, progress: CountProgress | None = None) -> System:
        """Adds the baseline of a decoder that continues each text after "TL;DR:", see `baselines.tldr`.

        Args:
            name: Name of the decoder.
            pipe: Pipeline for text-generation, on any engine.
            batch_size: Number of texts in one batch.
            progress: Called with the number of completed texts.
        """
        if self.task != _SUMMARIZATION:
            raise InputError(f"TL;DR: is a baseline of {_SUMMARIZATION}. Received: task={self.task!r}")
        sources = [example.text for example in self.examples]
        texts = tldr(pipe, sources, batch_size=batch_size, progress=progress)
        return self._add(System(f"TL;DR: {name}", True, {}, tuple(texts), {}, pipe.engine))

    def expected(self) -> list[list[str]]:
        """Returns the references of each text."""
        return self._expected

    def losses(self, system: System) -> list[float]:
        """Returns how far each text is from its references: 1 minus ROUGE-L of a summary, or chrF of another text."""
        each = metrics.rouge_l_each if self.task == _SUMMARIZATION else metrics.chrf_each
        return [1 - one for one in each(system.texts, self._expected)]

    def _add(self, system: System) -> System:
        scores = score(self.task, system.texts, self._expected, self._bleu_tokenizer)
        self.signatures = scores.signatures
        return super()._add(replace(system, figures=scores.figures))


def references(examples: Sequence[Example]) -> list[list[str]]:
    """Returns the references of each example.

    Raises:
        InputError: a text has no reference, or one that is not a text.
    """
    expected = []
    for number, example in enumerate(examples, 1):
        label = example.label
        row = list(label) if isinstance(label, list | tuple) else [label]
        row = [reference for reference in row if reference != ""]
        if not row or not all(isinstance(reference, str) and reference.strip() for reference in row):
            received = "none" if label in (None, "", [], ()) else repr(label)
            raise InputError(
                "Each text needs a reference, which is a text, or a list of them. "
                f"Received: {received:.80} for text {number} of {len(examples)}"
            )
        expected.append(row)
    return expected


def generated(
    pipe: Any,
    texts: Sequence[str],
    settings: Mapping[str, object] | None = None,
    batch_size: int = 8,
    progress: CountProgress | None = None,
) -> list[str]:
    """Returns the text that a pipeline generates for each text.

    Args:
        pipe: Pipeline for summarization, translation or text2text-generation.
        texts: Input texts; those that exceed the model's maximum length are truncated, unless the settings contain
            `split` or `truncation`.
        settings: Arguments of the pipeline, such as `{"num_beams": 4}`.
        batch_size: Number of texts in one batch.
        progress: Called with the number of completed texts.

    Raises:
        InputError: with these settings, the pipeline does not return one text for each.
    """
    settings = dict(settings or {})
    settings.setdefault("truncation", "split" not in settings)
    if reserved := {"inputs", "batch_size", "progress"}.intersection(settings):
        raise InputError(f"Settings of the model were expected. Received: {', '.join(sorted(reserved))}")

    def write(part: Sequence[str]) -> list[str]:
        rows = pipe(list(part), batch_size=len(part), **settings)
        if not all(isinstance(row, Mapping) for row in rows):
            raise InputError(
                "One generated text was expected for each text. Received: several, or results of another kind. Set "
                "num_return_sequences=1, and remove settings that change the kind of the result"
            )
        return [next(value for key, value in row.items() if key.endswith("_text")) for row in rows]

    return in_batches(texts, write, batch_size, progress)


def score(
    task: str, received: Sequence[str], expected: Sequence[Sequence[str]], bleu_tokenizer: str | None = None
) -> TextScores:
    """Computes the metrics of a task: ROUGE of summaries, BLEU and chrF of translations, all of them of other texts.

    For `rougeLsum`, each line is a sentence; a text in one line is split into sentences.

    Args:
        task: `"summarization"`, `"translation"` or `"text2text-generation"`.
        received: Generated texts.
        expected: References of each text.
        bleu_tokenizer: Tokenizer of BLEU, see `metrics.bleu_and_chrf`.
    """
    scores = TextScores({}, {})
    if task == _SUMMARIZATION or (task != _TRANSLATION and metrics.is_latin(expected)):
        lines = [_in_lines(text) for text in received]
        scores |= metrics.rouge(lines, [[_in_lines(text) for text in row] for row in expected])
    if task != _SUMMARIZATION:
        scores |= metrics.bleu_and_chrf(received, expected, bleu_tokenizer)
    return scores


def _in_lines(text: str) -> str:
    """Returns a text with one sentence per line; one that has several lines is unchanged."""
    return text if "\n" in text.strip() else "\n".join(sentences(text))
