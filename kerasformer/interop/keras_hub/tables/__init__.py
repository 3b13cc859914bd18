"""KerasHub's names of each architecture: one file for each `model_type` that KerasHub has, each with a `TABLE`."""

from __future__ import annotations

import importlib
import pkgutil

from kerasformer.interop.keras_hub.names import KerasHub


def find_table(model_type: str) -> KerasHub | None:
    """The table of an architecture, or `None` if KerasHub has no such architecture."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    if model_type not in names:
        return None
    table: KerasHub = importlib.import_module(f"{__name__}.{model_type}").TABLE
    return table


def all_tables() -> dict[str, KerasHub]:
    """The tables of all architectures that KerasHub has, by `model_type`."""
    found = {module.name: find_table(module.name) for module in pkgutil.iter_modules(__path__)}
    return {name: table for name, table in sorted(found.items()) if table is not None}
