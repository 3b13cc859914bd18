"""Settings of a model's head that callers of `load` request: classes, labels, a new head."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import keras

from kerasformer.basics.arguments import TEXT, Arguments, check, integer, one_of, optional, sequence
from kerasformer.errors import InputError
from kerasformer.models.config import Config, ProblemType, numbered_labels
from kerasformer.models.config_types import MOST_LABELS
from kerasformer.models.sentence_settings import SentenceSettings
from kerasformer.models.weights import NewHead

logger = logging.getLogger("kerasformer")


@dataclass(frozen=True)
class HeadRequest:
    """Arguments of `load` for the head of a model.

    Attributes:
        num_labels: Number of classes.
        id2label: Names of the classes by id.
        labels: Names of the classes in order.
        problem_type: Type of the classification problem, as in Hugging Face's configurations.
        new_head: Whether the head is untrained even if the checkpoint has one.
        sentence: How the embeddings of sentences are computed.
    """

    num_labels: int | None = None
    id2label: Mapping[int, str] | None = None
    labels: Iterable[str] | None = None
    problem_type: str | None = None
    new_head: bool = False
    sentence: SentenceSettings | None = None

    @property
    def new(self) -> NewHead:
        """Condition under which the head starts untrained."""
        if self.new_head:
            return NewHead.ALWAYS
        requested = (self.num_labels, self.id2label, self.labels)
        return NewHead.NEVER if requested == (None, None, None) else NewHead.WHERE_NONE_FITS

    def applied(self, config: Config, task: str, has_labels: bool) -> Config:
        """Returns the configuration with the requested classes; without a request, labels are unchanged.

        Raises:
            InputError: contradictory arguments, or a task without classes.
        """
        passed = {"num_labels": self.num_labels, "id2label": self.id2label, "labels": self.labels}
        names = [name for name, value in {**passed, "problem_type": self.problem_type}.items() if value is not None]
        if names and not has_labels:
            raise InputError(
                f"{' and '.join(names)} can be set only for classification heads. Received: a model for {task}"
            )
        kind = check("problem_type", self.problem_type, optional(one_of(*get_args(ProblemType))))
        changes: Arguments = {"id2label": self._named(config.num_labels), "problem_type": kind}
        return replace(config, **{name: value for name, value in changes.items() if value is not None})

    def note_untrained(self, model: keras.Model, fresh: Sequence[str]) -> None:
        """Records and logs the variables of a model that are untrained.

        Raises:
            InputError: a new head was requested, but the model has no separate head.
        """
        if self.new_head and not fresh:
            raise InputError(
                f"{model.config.model_type} has no separate head for {model.task}. Expected: new_head=False. "
                "Received: new_head=True"
            )
        model.new_variables = tuple(fresh)
        if fresh:
            logger.warning("These variables are new and untrained, as requested: %s", ", ".join(fresh))

    def _named(self, present: int) -> dict[int, str] | None:
        """Returns the requested names of the classes; `None` to use those of the source."""
        if self.labels is not None and self.id2label is not None:
            raise InputError("Only one of labels and id2label can be set. Received: both")
        check("num_labels", self.num_labels, optional(integer(1, MOST_LABELS)))
        if self.labels is not None:
            return self._checked(_numbered(self.labels))
        if self.id2label is not None:
            return self._checked(self.id2label)
        return None if self.num_labels in (None, present) else numbered_labels(self.num_labels or 0)

    def _checked(self, labels: Mapping[int, str]) -> dict[int, str]:
        fits = isinstance(labels, Mapping) and labels and set(labels) == set(range(len(labels)))
        if not fits or self.num_labels not in (None, len(labels)):
            raise InputError(
                "id2label must name the classes 0, 1, 2 …, as many as num_labels. "
                f"Received: num_labels={self.num_labels}, id2label={labels!r}"
            )
        names = check("labels", [labels[index] for index in range(len(labels))], sequence(TEXT))
        if len(set(names)) < len(names):
            raise InputError(f"The names of the classes must be unique. Received: {labels!r}")
        return dict(enumerate(names))


def _numbered(labels: object) -> dict[int, str]:
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise InputError(f"labels must be a list of names of classes. Received: {labels!r}")
    return dict(enumerate(labels))
