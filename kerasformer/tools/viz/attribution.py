"""Picture of a text whose pieces are coloured by their shares in a score, with matplotlib and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Piece = tuple[str, float | None]
"""A part of a text and its share in the score, `None` for a part without one."""

MOST_PIECES = 800
"""Number of pieces above which a picture could not be read."""
_SIZE = 10.0
"""Font size in points."""
_WIDTH, _LINE, _MARGIN = 7.0, 0.26, 0.15
"""Width of the text, height of a line and margin of the figure, in inches."""
_FONT = {"family": "DejaVu Sans", "size": _SIZE}

_POSITIVE, _NEGATIVE = "31, 111, 235", "196, 87, 10"
"""Colours of pieces that raise and lower the score: those of the pictures, which colour-blind readers distinguish."""


def draw_attribution(pieces: Sequence[Piece], path: str | Path, title: str = "", dark: bool = False) -> None:
    """Draws a text; blue pieces raise the score, orange ones lower it.

    Args:
        pieces: The text in parts, in order.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no pieces or too many, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if not 0 < len(pieces) <= MOST_PIECES:
        raise InputError(
            f"A picture shows 1 to {MOST_PIECES} tokens. Received: {len(pieces)}. Use the HTML form for longer texts"
        )
    require("matplotlib", "viz")
    theme, greatest = DARK if dark else LIGHT, _greatest(pieces)
    placed = list(_placed(pieces))
    lines, width = placed[-1][3] + 1, max(4.5, *(x + _inches(text) for text, _, x, _ in placed))
    height = (lines + 2.2 + bool(title)) * _LINE
    with canvas(Path(path), width + 2 * _MARGIN, height + 2 * _MARGIN, theme) as figure:
        figure.set_layout_engine("none")
        axis = figure.add_axes((0, 0, 1, 1))  # its coordinates are inches
        axis.set(xlim=(-_MARGIN, width + _MARGIN), ylim=(height + _MARGIN, -_MARGIN))
        axis.set_axis_off()
        axis.text(0, 0.5 * _LINE, title, fontsize=_SIZE, weight="bold", va="center", color=theme.ink, parse_math=False)
        top = 1.2 * _LINE if title else 0.0
        for text, share, x, line in placed:
            _draw_piece(axis, text, (share or 0.0) / greatest, x, top + line * _LINE, theme)
        _draw_scale(axis, greatest, top + (lines + 0.5) * _LINE, theme)


def _placed(pieces: Sequence[Piece]) -> Iterator[tuple[str, float | None, float, int]]:
    """Yields each piece with its distance from the left in inches, and its line."""
    x, line = 0.0, 0
    for piece, share in pieces:
        for index, part in enumerate(piece.split("\n")):
            if index:
                x, line = 0.0, line + 1
            part = "".join(char if char.isprintable() else " " for char in part)
            width = _inches(part)
            if x + width > _WIDTH and x > 0:
                x, line, part = 0.0, line + 1, part.lstrip()
                width = _inches(part)
            yield part, share, x, line
            x += width


def _inches(text: str) -> float:
    """Returns the width of a text in inches; that of its outer spaces is not part of its outline."""
    if not text:
        return 0.0
    font = require("matplotlib.font_manager", "viz").FontProperties(**_FONT)
    measure = require("matplotlib.textpath", "viz").TextToPath().get_text_width_height_descent
    return float(measure(text, font, ismath=False)[0]) / 72


def _draw_piece(axis: Axes, text: str, share: float, x: float, y: float, theme: Theme) -> None:
    if share:
        patches, color = require("matplotlib.patches", "viz"), theme.accent if share > 0 else theme.second
        corner, width = (x, y + 0.03), _inches(text)
        axis.add_patch(
            patches.Rectangle(corner, width, _LINE - 0.04, facecolor=color, alpha=0.6 * abs(share), linewidth=0)
        )
    axis.text(x, y + _LINE / 2, text, fontsize=_SIZE, va="center_baseline", color=theme.ink, parse_math=False)


def _draw_scale(axis: Axes, greatest: float, y: float, theme: Theme) -> None:
    """Draws the scale of the colours."""
    patches, step = require("matplotlib.patches", "viz"), 0.16
    for index in range(-5, 6):
        color = theme.accent if index > 0 else theme.second
        corner = (1.0 + (index + 5) * step, y + 0.05)
        axis.add_patch(patches.Rectangle(corner, step, 0.14, facecolor=color, alpha=0.12 * abs(index), linewidth=0))
    for x, text, side in (
        (0.95, f"lowers −{greatest:.2g}", "right"),
        (1.05 + 11 * step, f"+{greatest:.2g} raises the score", "left"),
    ):
        axis.text(x, y + 0.12, text, fontsize=8, va="center", ha=side, color=theme.faint)


def attribution_html(pieces: Sequence[Piece], title: str = "") -> str:
    """Returns the text as HTML without scripts, for a notebook or a page; blue pieces raise the score.

    All texts are escaped, so that a token that is HTML stays text.

    Args:
        pieces: The text in parts, in order.
        title: Title above it.
    """
    greatest = _greatest(pieces)
    heading = f'<div style="font-weight:600">{html.escape(title)}</div>' if title else ""
    body = "".join(_span(text, share, greatest) for text, share in pieces)
    scale = f"blue raises the score, orange lowers it; full colour: {greatest:.2g}"
    style = "max-width:44rem;margin:.5em 0;line-height:1.9;overflow-wrap:anywhere;white-space:pre-wrap"
    return (
        f'<div style="{style}">{heading}<div dir="auto">{body}</div>'
        f'<div style="font-size:.8em;opacity:.75">{scale}</div></div>'
    )


def _span(text: str, share: float | None, greatest: float) -> str:
    if not share:
        return html.escape(text)
    color = _POSITIVE if share > 0 else _NEGATIVE
    style = f"background:rgba({color},{0.55 * abs(share) / greatest:.3f});border-radius:.2em;padding:.1em 0"
    return f'<span style="{style}" title="{share:+.4f}">{html.escape(text)}</span>'


def _greatest(pieces: Sequence[Piece]) -> float:
    """Returns the greatest absolute share, which has the full colour."""
    return max((abs(share) for _, share in pieces if share is not None), default=0.0) or 1.0
