"""The tasks of GLUE and SuperGLUE by name: their columns, classes and metrics, and T5's form of their texts.

References: Wang et al. 2018, arXiv:1804.07461, table 1; Wang et al. 2019, arXiv:1905.00537, table 1; for the texts and
answers of T5 Raffel et al. 2020, arXiv:1910.10683, section 2.4 and appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from kerasformer.errors import InputError
from kerasformer.pipelines import Columns, Example
from kerasformer.tools.evaluation import superglue


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE or SuperGLUE.

    Attributes:
        columns: Columns of its files: those of the published ones, and those of Hugging Face's datasets.
        form: Form of a text that T5 reads, with the attributes of an `Example`; `entities` are all its choices.
        metrics: Names of its metrics. `f1` is that of the second class, `macro_f1` the mean over all classes,
            `exact_match` the share of questions of which all answers are right; for answers that are texts, the two are
            those of SQuAD.
        kind: What an answer is: the name of a class, a number, a noun phrase that is the pair or is not, or a text.
        clean: Function of a text in its form.
        also: Other names of the classes that models write, in the order of `classes`.
    """

    columns: Columns
    form: str
    metrics: tuple[str, ...] = ("accuracy",)
    kind: Literal["class", "number", "phrase", "text"] = "class"
    clean: Callable[[str], str] = str
    also: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their ids; none for a score."""
        return self.columns.classes

    @property
    def needs_text_to_text(self) -> bool:
        """Whether only a model from text to text reads the task, for a text and a pair are not all of it."""
        return self.columns.parts is not None

    def written(self, example: Example) -> str:
        """Returns an example in the form that T5 reads.

        Raises:
            InputError: a part of it is missing, such as the second text of a pair.
        """
        has = {"pair": example.pair, "question": example.question, "choices[1]": example.choices[1:]}
        has["entities"] = example.choices
        for name, value in has.items():
            if not value and (f"{{{name}}}" in self.form or (name == "pair" and self.kind == "phrase")):
                what = "A pair of texts" if name == "pair" else f"A text with {name.partition('[')[0]}"
                where = f" ({example.location})" if example.location else ""
                raise InputError(f"{what} was expected, {self.form!r}. Received: {example.text!r:.80} alone{where}")
        parts = {"text": example.text, "pair": example.pair, "question": example.question, "choices": example.choices}
        return self.clean(self.form.format(**parts, entities=", ".join(example.choices)))

    def class_of(self, answer: str, example: Example) -> int | None:
        """Returns the id of the class that a text names; `None` if it names none, which is a wrong answer."""
        if self.kind == "phrase":
            return superglue.is_phrase(answer, str(example.pair))
        name = answer.strip().lower()
        for names in (self.classes, self.also):
            if name in (lower := [each.lower() for each in names]):
                return lower.index(name)
        return None

    @staticmethod
    def number_of(answer: str) -> float:
        """Returns the number that a text names, such as `"3.8"`; -1 if it names none, as T5's evaluation does."""
        try:
            value = float(answer.strip())
        except ValueError:
            return -1.0
        return value if math.isfinite(value) else -1.0

    def targets(self, example: Example) -> list[str]:
        """Returns the texts that T5 learns to write for an example, each of them for itself.

        A number is rounded to the next fifth. Of noun phrases, those that are not the answer are not learnt.

        Raises:
            InputError: the label is none of the task.
        """
        label = self.columns.class_of(example.label, example.location)
        if self.kind == "number":
            try:
                return [f"{round(float(label) * 5) / 5:.1f}"]  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError) as error:
                where = f" ({example.location})" if example.location else ""
                raise InputError(f"A number was expected as the label. Received: {label!r:.80}{where}") from error
        if self.kind == "phrase":
            return [str(example.pair)] if str(label) == self.classes[1] else []
        return [str(each) for each in (label if isinstance(label, list | tuple) else [label])]


_ENTAILMENT = ("entailment", "not_entailment")


def _of(text: str, pair: str, label: str, classes: str = "") -> Columns:
    texts, labels, pairs = (tuple(each.split("|")) for each in (text, label, pair))
    return Columns(texts, labels, pairs, needs_label=True, classes=tuple(classes.split()))


def _parts(parts: Callable[[superglue.Row], list[superglue.Row]], *classes: str) -> Columns:
    return Columns(("text",), ("label",), ("pair",), needs_label=True, classes=classes, parts=parts)


GLUE = {
    # The published table has no header: source, label, mark of the author, sentence.
    "cola": GlueTask(
        _of("sentence|4", "", "label|2", "unacceptable acceptable"), "cola sentence: {text}", ("matthews",)
    ),
    "sst2": GlueTask(_of("sentence", "", "label", "negative positive"), "sst2 sentence: {text}"),
    "mrpc": GlueTask(
        _of("sentence1|#1 String", "sentence2|#2 String", "label|Quality", "not_equivalent equivalent"),
        "mrpc sentence1: {text} sentence2: {pair}",
        ("accuracy", "f1"),
    ),
    "stsb": GlueTask(
        _of("sentence1", "sentence2", "score|label"),
        "stsb sentence1: {text} sentence2: {pair}",
        ("pearson", "spearman"),
        "number",
    ),
    "qqp": GlueTask(
        _of("question1", "question2", "is_duplicate|label", "not_duplicate duplicate"),
        "qqp question1: {text} question2: {pair}",
        ("accuracy", "f1"),
    ),
    "mnli": GlueTask(
        _of("premise|sentence1", "hypothesis|sentence2", "gold_label|label", "entailment neutral contradiction"),
        "mnli hypothesis: {pair} premise: {text}",
    ),
    "qnli": GlueTask(
        _of("question", "sentence", "label", " ".join(_ENTAILMENT)), "qnli question: {text} sentence: {pair}"
    ),
    "rte": GlueTask(
        _of("sentence1", "sentence2", "label", " ".join(_ENTAILMENT)), "rte sentence1: {text} sentence2: {pair}"
    ),
    "wnli": GlueTask(
        _of("sentence1", "sentence2", "label", "not_entailment entailment"), "wnli sentence1: {text} sentence2: {pair}"
    ),
    # SuperGLUE.
    "boolq": GlueTask(_of("passage", "question", "label", "False True"), "boolq passage: {text} question: {pair}"),
    "cb": GlueTask(
        _of("premise", "hypothesis", "label", "entailment contradiction neutral"),
        "cb hypothesis: {pair} premise: {text}",
        ("accuracy", "macro_f1"),
    ),
    "superglue_rte": GlueTask(
        _of("premise", "hypothesis", "label", " ".join(_ENTAILMENT)), "rte hypothesis: {pair} premise: {text}"
    ),
    "copa": GlueTask(
        _parts(superglue.copa, "choice1", "choice2"),
        "copa choice1: {choices[0]} choice2: {choices[1]} premise: {text} question: {question}",
        also=superglue.TRUTH,  # in the paper's example
    ),
    "multirc": GlueTask(
        _parts(superglue.multirc, *superglue.TRUTH),
        "multirc question: {question} answer: {pair} paragraph: {text}",
        ("f1", "exact_match"),
        clean=superglue.without_tags,
    ),
    "record": GlueTask(
        _parts(superglue.record),
        "record query: {question} entities: {entities} passage: {text}",
        ("f1", "exact_match"),
        "text",
        clean=superglue.with_highlights,
    ),
    # The paper's example also has the part of speech, which the published data and preprocessor do not have.
    "wic": GlueTask(
        _parts(superglue.wic, *superglue.TRUTH), "wic sentence1: {text} sentence2: {pair} word: {question}"
    ),
    "wsc": GlueTask(_parts(superglue.wsc, *superglue.TRUTH), "wsc: {text}", kind="phrase"),
}


def glue_task(name: str) -> GlueTask:
    """Returns a task of GLUE or SuperGLUE; upper and lower case and hyphens do not matter, as in `SST-2`.

    Raises:
        InputError: there is no such task.
    """
    tasks = {known.replace("_", ""): task for known, task in GLUE.items()}
    key = name.lower().replace("-", "").replace("_", "")
    if key not in tasks:
        near = get_close_matches(key, GLUE, n=1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise InputError(f"glue must be one of {', '.join(GLUE)}. Received: glue={name!r}{hint}")
    return tasks[key]
