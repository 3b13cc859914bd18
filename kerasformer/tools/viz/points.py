"""Picture of points in a plane, coloured by class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tools.viz.canvas import DARK, LIGHT, canvas

_MARKERS = "os^Dvp*X"
"""A shape for each class, so that classes differ without colours, too."""
_LIGHT = ("#1f6feb", "#c4570a", "#2e7d4f", "#8a4fa8", "#7d6200", "#b03a6b", "#565e6e", "#0f7c85")
_DARK = ("#4493f8", "#f0883e", "#7ed8a2", "#cfa0ea", "#dcc15a", "#f391bd", "#a3abbb", "#5cc8d1")


def draw_points(
    points: np.ndarray,
    labels: Sequence[str] | None,
    path: str | Path,
    axes: Sequence[str] = ("", ""),
    title: str = "",
    dark: bool = False,
) -> None:
    """Draws points with the colour and the shape of their class.

    Args:
        points: `(N, 2)`.
        labels: Class of each point; `None` for one colour.
        path: Output file, ending in `.png` or `.svg`.
        axes: Names of the axes.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are more classes than colours, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    classes = sorted(set(labels)) if labels is not None else [""]
    if len(classes) > len(_MARKERS):
        raise InputError(f"A picture shows at most {len(_MARKERS)} classes. Received: {len(classes)}")
    theme, colors = (DARK, _DARK) if dark else (LIGHT, _LIGHT)
    names = np.array(labels if labels is not None else [""] * len(points))
    with canvas(Path(path), 6.0, 4.5, theme) as figure:
        axis = figure.subplots()
        for name, marker, color in zip(classes, _MARKERS, colors, strict=False):
            chosen = points[names == name]
            axis.scatter(chosen[:, 0], chosen[:, 1], s=34, marker=marker, color=color, alpha=0.8, linewidths=0)
        axis.set_xlabel(axes[0])
        axis.set_ylabel(axes[1])
        axis.spines[["top", "right"]].set_visible(False)
        if labels is not None:
            handles = axis.collections
            axis.legend(handles, [name.replace("$", r"\$") for name in classes], frameon=False)
        if title:
            axis.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
