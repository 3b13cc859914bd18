"""Figure of the table of candidate tokens at each generation step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 9.0
"""Font size in points."""
_ROW, _GAP, _MARGIN = 0.27, 0.12, 0.1
"""Height of a row, padding at each side of a column, and margin of the figure, in inches."""


@dataclass(frozen=True)
class Cell:
    """Cell of a table.

    Attributes:
        text: Text of the cell.
        weight: Strength of the tint, from 0 to 1.
        chosen: Whether the cell is highlighted.
        excluded: Whether the text is struck through.
        head: Whether the cell belongs to the header row or column.
    """

    text: str
    weight: float = 0.0
    chosen: bool = False
    excluded: bool = False
    head: bool = False


def draw_explanation(rows: Sequence[Sequence[Cell]], path: str | Path, note: str = "", dark: bool = False) -> None:
    """Draws a table whose first column is right-aligned.

    Args:
        rows: Rows of cells, the header first; all of the same length.
        path: Output file, ending in `.png` or `.svg`.
        note: Text below the table.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no rows, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if len(rows) < 2:
        raise InputError("A table needs rows. Received: none, because nothing was generated.")
    require("matplotlib", "viz")
    theme = DARK if dark else LIGHT
    widths = [max(_inches(row[column]) for row in rows) + 2 * _GAP for column in range(len(rows[0]))]
    edges = [sum(widths[:column]) for column in range(len(widths) + 1)]
    height = _ROW * (len(rows) + (1.2 if note else 0))
    with canvas(Path(path), edges[-1] + 2 * _MARGIN, height + 2 * _MARGIN, theme) as figure:
        figure.set_layout_engine("none")
        axis = figure.add_axes((0, 0, 1, 1))  # its coordinates are inches
        axis.set(xlim=(-_MARGIN, edges[-1] + _MARGIN), ylim=(height + _MARGIN, -_MARGIN))
        axis.set_axis_off()
        for index, row in enumerate(rows):
            for column, cell in enumerate(row):
                _draw_cell(axis, cell, edges[column], widths[column], index * _ROW, column == 0, theme)
        axis.plot([0, edges[-1]], [_ROW, _ROW], color=theme.ink, linewidth=1)
        axis.text(_GAP, height - 0.12, note, fontsize=8, color=theme.faint, va="center")


def _inches(cell: Cell) -> float:
    """Returns the width of the cell's text in inches."""
    if not cell.text:
        return 0.0
    weight = "bold" if cell.chosen or cell.head else "normal"
    font = require("matplotlib.font_manager", "viz").FontProperties(family="DejaVu Sans", weight=weight, size=_SIZE)
    measure = require("matplotlib.textpath", "viz").TextToPath().get_text_width_height_descent
    return float(measure(cell.text, font, ismath=False)[0]) / 72


def _draw_cell(axis: Axes, cell: Cell, x: float, width: float, y: float, right: bool, theme: Theme) -> None:
    if cell.weight or cell.chosen:
        patches = require("matplotlib.patches", "viz")
        inner = (x + 0.03, y + 0.02), width - 0.06, _ROW - 0.04
        axis.add_patch(patches.Rectangle(*inner, facecolor=theme.accent, alpha=0.05 + 0.45 * cell.weight, linewidth=0))
        if cell.chosen:
            axis.add_patch(patches.Rectangle(*inner, fill=False, edgecolor=theme.second, linewidth=1.6))
    text_x = x + width - _GAP if right else x + _GAP
    axis.text(
        text_x,
        y + _ROW / 2,
        cell.text,
        ha="right" if right else "left",
        va="center_baseline",
        fontsize=_SIZE,
        color=theme.faint if cell.excluded else theme.ink,
        weight="bold" if cell.chosen or cell.head else "normal",
        parse_math=False,
    )
    if cell.excluded:
        axis.plot([text_x, text_x + _inches(cell)], [y + _ROW / 2] * 2, color=theme.faint, linewidth=1)
