"""TFLite's schema, as the classes that flatbuffers generated from it."""

from __future__ import annotations

from types import ModuleType

from kerasformer.extras import require


def schema() -> ModuleType:
    """Returns the module of classes that flatbuffers generated from TFLite's schema."""
    return require("ai_edge_litert.schema_py_generated", "litert")


def names(enumeration: type) -> dict[int, str]:
    """Returns the names of a generated enumeration by their numbers."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}
