"""What a caller of `load` asks of a model's head: classes, their names, a new beginning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from kerasformer.arguments import TEXT, check, integer, one_of, optional, sequence
from kerasformer.errors import InputError
from kerasformer.models.config import Config, ProblemType, numbered_labels
from kerasformer.models.config_types import MOST_LABELS
from kerasformer.models.weight_table import NewHead


@dataclass(frozen=True)
class HeadRequest:
    """Arguments of `load` for a classifier, and for a head that starts untrained.

    Attributes:
        num_labels: Classes.
        id2label: Their names by number.
        labels: Their names in order.
        problem_type: What the scores of the classes mean, in Hugging Face's words.
        new_head: The head starts untrained, whatever the source holds.
    """

    num_labels: int | None = None
    id2label: Mapping[int, str] | None = None
    labels: Iterable[str] | None = None
    problem_type: str | None = None
    new_head: bool = False

    @property
    def new(self) -> NewHead:
        """Whether the head starts untrained."""
        if self.new_head:
            return NewHead.ALWAYS
        asked = (self.num_labels, self.id2label, self.labels)
        return NewHead.NEVER if asked == (None, None, None) else NewHead.WHERE_NONE_FITS

    def applied(self, config: Config, task: str, has_labels: bool) -> Config:
        """The configuration with the classes that were asked for; names that are there are kept if none are given.

        Raises:
            InputError: arguments that contradict each other, or a task that has no classes.
        """
        given = {"num_labels": self.num_labels, "id2label": self.id2label, "labels": self.labels}
        names = [name for name, value in {**given, "problem_type": self.problem_type}.items() if value is not None]
        if names and not has_labels:
            raise InputError(f"{' and '.join(names)} asks for a classification head, and {task} has none.")
        kind = check("problem_type", self.problem_type, optional(one_of(*get_args(ProblemType))))
        changes: dict[str, Any] = {"id2label": self._named(config.num_labels), "problem_type": kind}
        return replace(config, **{name: value for name, value in changes.items() if value is not None})

    def _named(self, present: int) -> dict[int, str] | None:
        """Names of the classes; `None` if those of the source are right."""
        if self.labels is not None and self.id2label is not None:
            raise InputError("labels and id2label both name the classes. Expected one of them. Received: both")
        check("num_labels", self.num_labels, optional(integer(1, MOST_LABELS)))
        if self.labels is not None:
            return self._checked(_numbered(self.labels))
        if self.id2label is not None:
            return self._checked(self.id2label)
        return None if self.num_labels in (None, present) else numbered_labels(self.num_labels or 0)

    def _checked(self, labels: Any) -> dict[int, str]:
        fits = isinstance(labels, Mapping) and labels and set(labels) == set(range(len(labels)))
        if not fits or self.num_labels not in (None, len(labels)):
            raise InputError(
                "id2label must name the classes 0, 1, 2 …, as many as num_labels. "
                f"Received: num_labels={self.num_labels}, id2label={labels!r}"
            )
        names = check("labels", [labels[index] for index in range(len(labels))], sequence(TEXT))
        if len(set(names)) < len(names):
            raise InputError(f"Each class must have a name of its own. Received: {labels!r}")
        return dict(enumerate(names))


def _numbered(labels: Any) -> dict[int, str]:
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise InputError(f"labels must be a list of the classes' names. Received: {labels!r}")
    return dict(enumerate(labels))
