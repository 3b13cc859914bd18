"""Names of the columns of files of labelled texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kerasformer.errors import InputError

TEXT_COLUMNS = (
    "text",
    "sentence",
    "sentence1",
    "document",
    "article",
    "dialogue",
    "context",
    "ctx",
    "source",
    "words",
    "tokens",
    "sentences",
)
LABEL_COLUMNS = ("label", "labels", "tags", "ner_tags", "summary", "highlights", "target", "answers", "answer", "score")
PAIR_COLUMNS = ("pair", "sentence2")
QUESTION_COLUMNS = ("question",)
CHOICE_COLUMNS = ("choices", "endings", "options")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a file; the first of each that a row has is used.

    Attributes:
        text: Columns of the texts. A number counts the columns from 1, for tables without a header.
        label: Columns of the labels.
        pair: Columns of second texts.
        needs_label: Whether a row without a label is an error.
        classes: Names of the classes; ids of classes become names. None for labels that are not classes.
        parts: Function from a row of the file to rows with these columns, for files of another form.
    """

    text: tuple[str, ...] = TEXT_COLUMNS
    label: tuple[str, ...] = LABEL_COLUMNS
    pair: tuple[str, ...] = PAIR_COLUMNS
    needs_label: bool = False
    classes: tuple[str, ...] = ()
    parts: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None = None

    def named(self, text_column: str | None = None, label_column: str | None = None) -> Columns:
        """Returns the columns with another name of the texts, or of the labels, which each row then needs."""
        columns = self if text_column is None else replace(self, text=(text_column,))
        return columns if label_column is None else replace(columns, label=(label_column,), needs_label=True)

    def rows(self, row: Mapping[str, Any], location: str) -> Sequence[Mapping[str, Any]]:
        """Returns the rows of texts that a row of the file has.

        Raises:
            InputError: it does not have the form that is expected.
        """
        if self.parts is None:
            return [row]
        try:
            return self.parts(row)
        except InputError as error:
            raise InputError(f"{error} ({location})") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise InputError(
                f"A row in the form of the published files was expected. Received: {', '.join(row)}: {reason} "
                f"({location})"
            ) from error

    def class_of(self, label: object, location: str) -> object:
        """Returns the name of a class for its id; a label is unchanged if the classes are unknown.

        Raises:
            InputError: it is none of the classes.
        """
        name = str(label).strip()
        if name.isdigit() and int(name) < len(self.classes):
            return self.classes[int(name)]
        if self.classes and name not in self.classes:
            raise InputError(
                f"A label must be one of {', '.join(self.classes)}, or its id. Received: {label!r:.80} ({location})"
            )
        return name if isinstance(label, bool) else label
