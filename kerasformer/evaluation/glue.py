"""The tasks of GLUE by name: their columns, classes and metrics.

Reference: Wang et al. 2018, arXiv:1804.07461, table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from kerasformer.errors import InputError
from kerasformer.evaluation.columns import Columns


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        columns: Columns of its files: those of the published tables, and those of Hugging Face's datasets.
        metrics: Names of its metrics. `f1` is that of the second class.
    """

    columns: Columns
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their ids; none for a score."""
        return self.columns.classes


_ENTAILMENT = ("entailment", "not_entailment")


def _of(text: str, pair: str, label: str, classes: str = "") -> Columns:
    texts, labels, pairs = (tuple(each.split("|")) for each in (text, label, pair))
    return Columns(texts, labels, pairs, needs_label=True, classes=tuple(classes.split()))


GLUE = {
    # The published table has no header: source, label, mark of the author, sentence.
    "cola": GlueTask(_of("sentence|4", "", "label|2", "unacceptable acceptable"), ("matthews",)),
    "sst2": GlueTask(_of("sentence", "", "label", "negative positive")),
    "mrpc": GlueTask(
        _of("sentence1|#1 String", "sentence2|#2 String", "label|Quality", "not_equivalent equivalent"),
        ("accuracy", "f1"),
    ),
    "stsb": GlueTask(_of("sentence1", "sentence2", "score|label"), ("pearson", "spearman")),
    "qqp": GlueTask(_of("question1", "question2", "is_duplicate|label", "not_duplicate duplicate"), ("accuracy", "f1")),
    "mnli": GlueTask(
        _of("premise|sentence1", "hypothesis|sentence2", "gold_label|label", "entailment neutral contradiction")
    ),
    "qnli": GlueTask(_of("question", "sentence", "label", " ".join(_ENTAILMENT))),
    "rte": GlueTask(_of("sentence1", "sentence2", "label", " ".join(_ENTAILMENT))),
    "wnli": GlueTask(_of("sentence1", "sentence2", "label", "not_entailment entailment")),
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
