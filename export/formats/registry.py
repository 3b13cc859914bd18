"""Registry of the formats."""

from __future__ import annotations

from kerasformer.bundle.export_options import ALIASES, FORMATS
from kerasformer.errors import ExportError
from kerasformer.export.formats.base import Format
from kerasformer.export.formats.onnx.onnx_format import OnnxFormat
from kerasformer.export.formats.saved_model.saved_model_format import SavedModelFormat
from kerasformer.export.formats.table.table_format import TableFormat
from kerasformer.export.formats.tflite.tflite_format import TfliteFormat

_ALL: tuple[Format, ...] = (TfliteFormat(), OnnxFormat(), SavedModelFormat(), TableFormat())
_BY_NAME = {format.name: format for format in _ALL}


def find_format(name: str | None = None) -> Format:
    """Returns the format with a name, the first one by default.

    Raises:
        ExportError: The name is unknown.
    """
    if name is None:
        return _ALL[0]
    if name not in _BY_NAME:
        raise ExportError(f"Unknown format. Expected one of {', '.join((*FORMATS, *ALIASES))}. Received: {name!r}")
    return _BY_NAME[name]
