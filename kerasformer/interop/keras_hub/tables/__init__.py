"""Tables of KerasHub's names: a module with a `TABLE` for each supported `model_type`."""

from __future__ import annotations

import importlib
import pkgutil

from kerasformer.interop.keras_hub.names import KerasHub


def find_table(model_type: str) -> KerasHub | None:
    """Returns the table of an architecture, or `None` if there is none."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    if model_type not in names:
        return None
    table: KerasHub = importlib.import_module(f"{__name__}.{model_type}").TABLE
    return table


def all_tables() -> dict[str, KerasHub]:
    """Returns the tables of all architectures by `model_type`."""
    tables = {module.name: find_table(module.name) for module in pkgutil.iter_modules(__path__)}
    return {name: table for name, table in sorted(tables.items()) if table is not None}
