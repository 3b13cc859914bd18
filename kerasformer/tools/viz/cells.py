"""Heat map whose cells have a text: predictions of the layers of a model, similarities of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

MOST_CELLS = 2000
"""Number of cells above which a picture could not be read."""
_LONGEST = 9
"""Characters of a text that a cell shows."""


def draw_cells(
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    path: str | Path,
    *,
    label: str = "",
    title: str = "",
    dark: bool = False,
) -> None:
    """Draws a heat map.

    Args:
        values: `(R, C)`, from 0 to 1, the shades from the lightest to the darkest.
        texts: A text for each cell, shortened if it is long.
        rows: Names of the rows, from top to bottom.
        columns: Names of the columns, from left to right.
        path: Output file, ending in `.png` or `.svg`.
        label: Meaning of the values.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are too many cells, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if values.size > MOST_CELLS:
        raise InputError(
            f"A picture shows at most {MOST_CELLS} cells. Received: {len(rows)} x {len(columns)}. Shorten the text"
        )
    theme = DARK if dark else LIGHT
    width, height = 2.4 + 0.78 * len(columns), 1.5 + 0.3 * len(rows)
    with canvas(Path(path), width, height, theme) as figure:
        axis = figure.subplots()
        image = axis.imshow(values, cmap=_shades(theme), vmin=0, vmax=1, aspect="auto")
        _write(axis, values, texts, image, theme)
        axis.set_xticks(
            range(len(columns)), list(map(_plain, columns)), rotation=45, ha="right", rotation_mode="anchor"
        )
        axis.set_yticks(range(len(rows)), list(map(_plain, rows)))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axis, label=label, pad=0.01)
        bar.outline.set_visible(False)
        if title:
            axis.set_title(title, loc="left", fontsize=11, parse_math=False)


def _write(axis: Axes, values: np.ndarray, texts: Sequence[Sequence[str]], image: AxesImage, theme: Theme) -> None:
    for (row, column), value in np.ndenumerate(values):
        shade = _luminance(image.to_rgba(value))
        color = max((theme.background, theme.ink), key=lambda color: _contrast(shade, _luminance(color)))
        text = texts[row][column]
        text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        axis.text(column, row, text, ha="center", va="center", color=color, fontsize=8, parse_math=False)


def _luminance(color: Any) -> float:
    """Returns the relative luminance of a colour, from 0 to 1, as defined by WCAG 2."""
    channels = np.array(require("matplotlib.colors", "viz").to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def _contrast(first: float, second: float) -> float:
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def _plain(text: str) -> str:
    """Returns a label whose dollar signs matplotlib does not read as formulas."""
    return text.replace("$", r"\$")


def _shades(theme: Theme) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", [theme.background, theme.accent])
