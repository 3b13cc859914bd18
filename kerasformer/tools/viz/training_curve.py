"""Figure of the losses and metrics of a training by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasformer.errors import InputError
from kerasformer.tools.viz.canvas import DARK, LIGHT, canvas

_VALIDATION = "val_"
"""Prefix of the names of figures on validation data, as Keras names them."""


def draw_training_curve(
    history: Mapping[str, Sequence[float]], path: str | Path, title: str = "", dark: bool = False
) -> None:
    """Draws a plot for each figure, with its values on training data and on validation data.

    Args:
        history: Values of each epoch by name, as in the `history` that `fit` returns; `val_…` on validation data.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no values, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    names = list(dict.fromkeys(name.removeprefix(_VALIDATION) for name in history))
    if not names:
        raise InputError("A history with at least one epoch was expected. Received: none")
    theme = DARK if dark else LIGHT
    with canvas(Path(path), 4.2 * len(names), 3.4, theme) as figure:
        for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            lines = {"training": (name, theme.muted), "validation": (_VALIDATION + name, theme.accent)}
            for label, (key, color) in lines.items():
                if key in history:
                    axis.plot(range(1, len(history[key]) + 1), history[key], "o-", ms=3, color=color, label=label)
            axis.set_title(name.replace("_", " "), loc="left", fontsize=10)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=9)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold")
