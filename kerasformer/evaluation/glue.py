"""The tasks of GLUE, and two of SuperGLUE, by name: their columns, classes and metrics, and T5's form of their texts.

References: Wang et al. 2018, arXiv:1804.07461, table 1; Wang et al. 2019, arXiv:1905.00537, table 1; for the texts and
answers of T5 Raffel et al. 2020, arXiv:1910.10683, section 2.4 and appendix D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches

from kerasformer.errors import InputError
from kerasformer.evaluation.columns import Columns


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        columns: Columns of its files: those of the published tables, and those of Hugging Face's datasets.
        form: Form of a text or a pair that T5 reads.
        metrics: Names of its metrics. `f1` is that of the second class, `macro_f1` the mean over all classes.
    """

    columns: Columns
    form: str
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their ids; none for a score."""
        return self.columns.classes

    def written(self, text: str, pair: str | None) -> str:
        """Returns a text or a pair in the form that T5 reads.

        Raises:
            InputError: the second text of a pair is missing.
        """
        if pair is None and "{pair}" in self.form:
            raise InputError(f"A pair of texts was expected, {self.form!r}. Received: {text!r:.80} alone")
        return self.form.format(text=text, pair=pair)

    def class_of(self, answer: str) -> int | None:
        """Returns the id of the class that a text names; `None` if it names none, which is a wrong answer."""
        names = [name.lower() for name in self.classes]
        name = answer.strip().lower()
        return names.index(name) if name in names else None

    @staticmethod
    def number_of(answer: str) -> float:
        """Returns the number that a text names, such as `"3.8"`; -1 if it names none, as T5's evaluation does."""
        try:
            value = float(answer.strip())
        except ValueError:
            return -1.0
        return value if math.isfinite(value) else -1.0


_ENTAILMENT = ("entailment", "not_entailment")


def _of(text: str, pair: str, label: str, classes: str = "") -> Columns:
    texts, labels, pairs = (tuple(each.split("|")) for each in (text, label, pair))
    return Columns(texts, labels, pairs, needs_label=True, classes=tuple(classes.split()))


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
    # SuperGLUE, in the form of Hugging Face's datasets.
    "boolq": GlueTask(_of("passage", "question", "label", "False True"), "boolq passage: {text} question: {pair}"),
    "cb": GlueTask(
        _of("premise", "hypothesis", "label", "entailment contradiction neutral"),
        "cb hypothesis: {pair} premise: {text}",
        ("accuracy", "macro_f1"),
    ),
}


def glue_task(name: str) -> GlueTask:
    """Returns a task of GLUE; upper and lower case and hyphens do not matter, as in `SST-2`.

    Raises:
        InputError: there is no such task.
    """
    key = name.lower().replace("-", "")
    if key not in GLUE:
        near = get_close_matches(key, GLUE, n=1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise InputError(f"glue must be one of {', '.join(GLUE)}. Received: glue={name!r}{hint}")
    return GLUE[key]
