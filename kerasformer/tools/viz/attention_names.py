"""Names of attention views, of the options that each of them has, and of the kinds of attention."""

from __future__ import annotations

from typing import Any, Literal

from kerasformer.basics.arguments import check, one_of, optional
from kerasformer.errors import InputError

StackKind = Literal["encoder", "decoder", "cross"]
KINDS: dict[StackKind, str] = {"encoder": "Encoder", "decoder": "Decoder", "cross": "Cross attention"}
"""Kinds of attention, with the names that readers see."""

VIEWS = {
    "heads": ("layer", "head", "kind"),
    "model": ("kind",),
    "neurons": ("layer", "head", "kind"),
    "alignment": ("layer", "head"),
    "rollout": ("layer", "kind"),
    "statistics": ("kind",),
}
"""Views with what can be chosen in each of them, the first one by default."""


def view_options(
    view: str | None, layer: int | None = None, head: int | None = None, kind: str | None = None
) -> dict[str, Any]:
    """Checks the options of a view, as far as they do not depend on a model, and returns those that were passed.

    Args:
        view: Name of the view; the first one by default.
        layer: Index of the layer.
        head: Index of the head.
        kind: Kind of attention.

    Raises:
        InputError: there is no such view or kind, or the view has no such option.
    """
    view = next(iter(VIEWS)) if view is None else check("view", view, one_of(*VIEWS))
    check("kind", kind, optional(one_of(*KINDS)))
    passed = {name: value for name, value in (("layer", layer), ("head", head), ("kind", kind)) if value is not None}
    if ignored := [name for name in passed if name not in VIEWS[view]]:
        raise InputError(
            f"The view {view!r} has no {' and '.join(ignored)} to choose. Expected: {' or '.join(VIEWS[view])}. "
            f"Received: {', '.join(f'{name}={passed[name]!r}' for name in ignored)}"
        )
    return passed
