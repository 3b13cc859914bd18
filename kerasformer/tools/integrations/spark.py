"""Apache Spark: a function for `DataFrame.mapInPandas`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kerasformer.tools.integrations.columns import ColumnModel

if TYPE_CHECKING:
    import pandas


def in_pandas(model: ColumnModel) -> Callable[[Iterable[pandas.DataFrame]], Iterator[pandas.DataFrame]]:
    """Returns a function from frames to frames with the new columns of a model.

        schema = "id long, text string, result_label string, result_score double, error string"
        frame.mapInPandas(in_pandas(ColumnModel("out")), schema)

    Args:
        model: The model, which each of Spark's processes of Python opens once.
    """

    def answered(frames: Iterable[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        for frame in frames:
            columns = model({name: frame[name].tolist() for name in frame})
            yield frame.assign(**{name: values for name, values in columns.items() if name not in frame})

    return answered
