"""A model as a function from columns to columns, which Ray, Spark and Beam call with batches of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kerasformer.basics.arguments import STRING, check, one_of, sequence
from kerasformer.basics.options import declared
from kerasformer.basics.tasks import without_languages
from kerasformer.errors import InputError, KerasformerError
from kerasformer.files.sources import presets

_PAIRS = {"question-answering": ("question", "context"), "text-ranking": ("query", "text")}
"""Columns of tasks that read two texts."""
ERROR = "error"
"""Column of what was wrong with a row."""


class ColumnModel:
    """Runs the model of a source on batches of rows, given as columns.

    The source is opened once, by the first call in each process: an object is small, and can be sent to other
    processes. Give `ray.data.Dataset.map_batches` the class or an object.

        model = ColumnModel("out", columns="review")
        model({"id": [7], "review": ["A warm and funny film."]})
        # {"id": [7], "review": […], "result_label": ["positive"], "result_score": [0.99], "error": [None]}

    Args:
        source: Bundle, checkpoint folder, preset or hub id, which must exist on every machine.
        task: Hugging Face task name; that of the source by default.
        columns: Column of the texts, `"text"` by default; or two columns, for pairs of texts and, with the question
            first, for question-answering.
        prefix: Prefix of the new columns: `result_label` and `result_score` for a result that is a dictionary,
            otherwise `result`.
        on_error: `"column"` puts the reason why a row failed into the column `error`, and `None` into its results;
            `"raise"` raises it.
        settings: Arguments of `kerasformer.pipeline` and of the pipeline's call, such as `num_threads` and `top_k`.
    Raises:
        InputError: an argument is not accepted.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        task: str | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        prefix: str = "result",
        on_error: Literal["column", "raise"] = "column",
        **settings: Any,
    ) -> None:
        # Workers may have another current folder.
        is_path = os.fspath(source) not in presets() and os.path.exists(source)
        self.source, self.task = os.path.abspath(source) if is_path else os.fspath(source), task
        default = _PAIRS.get(without_languages(task or ""), ("text",))
        names = default if columns is None else (columns,) if isinstance(columns, str) else columns
        self.columns = check("columns", names, sequence(STRING, 1))
        if len(self.columns) > 2:
            raise InputError(f"columns must be one or two names. Received: {', '.join(self.columns)}")
        self.prefix = check("prefix", prefix, STRING)
        self.on_error = check("on_error", on_error, one_of("column", "raise"))
        self.settings = settings
        self._pipe: Any = None
        self._names: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """Returns what other processes need; each opens the source itself."""
        return {**self.__dict__, "_pipe": None}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns of a batch of `B` rows, the results and, with `on_error="column"`, the errors.

        Args:
            batch: `B` values, in a list or an array, by the name of their column.
        Raises:
            InputError: a column is missing, or has the name of a new one.
        """
        results = self.results(batch)
        new = self.new_columns([None if isinstance(each, Exception) else each for each in results])
        if self.on_error == "column":
            new[ERROR] = [shown_error(each) if isinstance(each, Exception) else None for each in results]
        if same := sorted(set(new) & set(batch)):
            raise InputError(
                f"New columns need other names than those of the input. Received: {', '.join(same)} in both. Rename "
                "them, or pass prefix=…"
            )
        return {**batch, **new}

    def results(self, batch: Mapping[str, Any]) -> list[Any]:
        """Returns the result of each row, or the exception that it raised."""
        missing = [name for name in self.columns if name not in batch]
        if missing:
            raise InputError(
                f"The input needs the columns {', '.join(self.columns)}. Received: {', '.join(batch) or 'none'}, "
                f"without {', '.join(missing)}. Pass columns=…"
            )
        return self._answers(self._items([list(batch[name]) for name in self.columns]))

    def new_columns(self, results: Sequence[Any]) -> dict[str, list[Any]]:
        """Returns results as columns; a row without a result has `None` in each.

        There are none before the first result, since its form is unknown.
        """
        rows = [{} if each is None else self._named(each) for each in results]
        self._names = self._names or list(dict.fromkeys(name for row in rows for name in row))
        return {name: [row.get(name) for row in rows] for name in self._names}

    def _named(self, result: Any) -> dict[str, Any]:
        if not isinstance(result, Mapping):
            return {self.prefix: _plain(result)}
        return {f"{self.prefix}_{key}": _plain(value) for key, value in result.items()}

    def open(self) -> Any:
        """Opens the source, if it is not, and checks the settings; returns the pipeline."""
        if self._pipe is None:
            from kerasformer.pipelines import PipelineOptions, pipeline

            opening = {name: value for name, value in self.settings.items() if name in declared(PipelineOptions)}
            self._calling = {name: value for name, value in self.settings.items() if name not in opening}
            pipe = pipeline(self.source, self.task, **opening)
            pipe(iter(()), **self._calling)  # an iterator is read lazily, but the settings are checked at once
            self._pipe = pipe
        return self._pipe

    def _items(self, columns: list[list[Any]]) -> list[Any]:
        if len(columns) == 1:
            return columns[0]
        is_question = without_languages(self.open().task) == "question-answering"
        keys = ("question", "context") if is_question else ("text", "text_pair")
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def _answers(self, items: list[Any]) -> list[Any]:
        """Returns results and exceptions; a batch that fails is halved until the rows that fail are alone."""
        if not items:
            return []
        pipe = self.open()
        try:
            results = list(pipe(items, **self._calling))
        except Exception as error:
            if self.on_error == "raise":
                raise
            if len(items) == 1:
                return [error]
            half = len(items) // 2
            return self._answers(items[:half]) + self._answers(items[half:])
        # A generated text is a list of one dictionary in the results of a list, and a dictionary in that of one text.
        return [each[0] if _is_single(pipe, each) else each for each in results]


def shown_error(error: Exception) -> str:
    """Returns the message of an exception, after its type if that is not one of this package."""
    return str(error) if isinstance(error, KerasformerError) else f"{type(error).__name__}: {error}"


def _is_single(pipe: Any, result: Any) -> bool:
    from kerasformer.pipelines import GenerationPipeline

    return isinstance(pipe, GenerationPipeline) and isinstance(result, list) and len(result) == 1


def _plain(value: Any) -> Any:
    """Returns a value that Arrow accepts: vectors stay arrays, matrices become lists of them."""
    return list(value) if isinstance(value, np.ndarray) and value.ndim > 1 else value
