"""Picture of confusion matrices: expected classes from top to bottom, received classes from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

Matrix = tuple[str, Sequence[str], np.ndarray]
"""Title, names of the classes, and counts `(C, C)`: rows are expected classes, columns received ones."""


def draw_confusion(matrices: Sequence[Matrix], path: str | Path, dark: bool = False) -> None:
    """Draws confusion matrices side by side; the shade of a cell is its share of the texts of its expected class.

    Args:
        matrices: Title, classes and counts of each model.
        path: Output file, ending in `.png` or `.svg`.
        dark: Use colours for dark pages.

    Raises:
        InputError: `path` has another suffix, its folder does not exist, or there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    if not matrices:
        raise InputError("A picture needs a confusion matrix. Received: none")
    theme = DARK if dark else LIGHT
    side = 1.8 + 0.55 * max(len(labels) for _, labels, _ in matrices)
    with canvas(Path(path), (side + 0.4) * len(matrices), side + 0.4, theme) as figure:
        for axis, matrix in zip(figure.subplots(1, len(matrices), squeeze=False)[0], matrices, strict=True):
            _draw(axis, *matrix, theme)


def _draw(axis: Any, title: str, labels: Sequence[str], counts: np.ndarray, theme: Theme) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap=_shades(theme), vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        color = theme.background if shares[row, column] > 0.5 else theme.ink
        axis.text(column, row, f"{count:,}", ha="center", va="center", color=color, fontsize=9)
    axis.set_xticks(range(len(labels)), labels, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(labels)), labels)
    axis.set_xlabel("received")
    axis.set_ylabel("expected")
    axis.set_title(title, fontsize=10)


def _shades(theme: Theme) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", [theme.background, theme.accent])
