"""Apache Beam: a handler of models for `RunInference`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kerasformer.errors import MissingExtraError
from kerasformer.tools.integrations.columns import ERROR, ColumnModel

try:
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult
except ModuleNotFoundError as error:
    if error.name != "apache_beam":
        raise
    raise MissingExtraError(
        "apache_beam is required here and is not installed. Install it, in an environment of its own if its versions "
        "of other packages conflict with yours: pip install apache-beam"
    ) from error


class BeamModel(ModelHandler):
    """Answers rows, which are dictionaries, in the batches that Beam makes.

        rows | RunInference(BeamModel("out", columns="review")) | beam.Map(lambda result: result.inference)

    The results are `PredictionResult`s: `example` is the row, and `inference` is a dictionary of the new columns of
    `ColumnModel`, with the key `error` for a row that failed.

    Args:
        source: Bundle, checkpoint folder, preset or hub id, which must exist on every machine.
        task: Hugging Face task name; that of the source by default.
        batch_size: Largest number of rows of a batch.
        options: Further arguments of `ColumnModel`.
    """

    def __init__(
        self, source: str | os.PathLike[str], task: str | None = None, *, batch_size: int = 64, **options: Any
    ) -> None:
        super().__init__(max_batch_size=batch_size)
        self._columns = ColumnModel(source, task, **options)

    def load_model(self) -> ColumnModel:
        """Opens the source, once in each process."""
        self._columns.open()
        return self._columns

    def run_inference(
        self, batch: Sequence[Mapping[str, Any]], model: ColumnModel, inference_args: Mapping[str, Any] | None = None
    ) -> Iterable[PredictionResult]:
        """Returns a result for each row."""
        answered = model({name: [row.get(name) for row in batch] for name in model.columns})
        new = {name: values for name, values in answered.items() if name not in model.columns}
        for index, row in enumerate(batch):
            inference = {name: values[index] for name, values in new.items()}
            yield PredictionResult(row, inference if inference.get(ERROR) else {**inference, ERROR: None})
