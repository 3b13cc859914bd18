"""Beam search as a tree: every continuation that was considered, and whether it was kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.basics.arguments import Arguments, check, integer
from kerasformer.errors import GenerationError
from kerasformer.extras import require
from kerasformer.generation import Node, Record
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, add_box, add_curve, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 0.78, 0.74
"""Size of a token's box, relative to its column and row."""
_MAX_CHARACTERS = 14
"""Maximum number of characters of a token."""
_MORE = 0.5
"""Width of the note about further steps, relative to a column."""
_THICK, _DASHED = 2.6, (0, (2, 2))


def draw_beam_tree(
    record: Record,
    decode: Callable[[int], str],
    path: str | Path,
    *,
    prompt: int = 0,
    output: int = 0,
    steps: int = 6,
    title: str = "",
    dark: bool = False,
) -> None:
    """Draws a beam search as a tree: one column per step, the most probable hypotheses at the top.

    Each box shows a token, its log-probability in the model, and the score by which beams are compared (after rules
    and sampling filters, if there are any).

    Args:
        record: Record of a beam search with `Controls(record=True)`.
        decode: Converts a token id to its text.
        path: Output file, ending in `.png` or `.svg`.
        prompt: Index of the prompt.
        output: Index of the returned sequence whose path is highlighted.
        steps: Maximum number of columns; the figure says how many more steps there are.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        GenerationError: the record contains no beams.
        InputError: `path` has another suffix, or its folder does not exist; or `steps` is not a positive integer.
        MissingExtraError: matplotlib is not installed.
    """
    columns = [_ranked([node for node in nodes if node.prompt == prompt]) for nodes in record.steps]
    columns = [nodes for nodes in columns if nodes]
    more = max(0, len(columns) - check("steps", steps, integer(1)))
    columns = columns[:steps]
    if not columns or any(node.total is None for nodes in columns for node in nodes):
        raise GenerationError("A beam tree needs a run with beams. Received: none. Set num_beams above 1.")
    theme = DARK if dark else LIGHT
    rows = max(map(len, columns))
    width = len(columns) + (_MORE if more else 0)
    with canvas(Path(path), 0.4 + 1.62 * width, 1.05 + 0.5 * rows, theme) as figure:
        axis = figure.subplots()
        axis.set(xlim=(-0.72, width - 0.5), ylim=(rows - 0.4, -0.95))
        axis.set_axis_off()
        _Tree(axis, theme, decode, set(map(id, record.paths[output]))).draw(columns)
        if more:
            text = f"{more} more\nstep{'s' * (more > 1)}"
            axis.text(width - 0.5 - _MORE / 2, (rows - 1) / 2, text, ha="center", va="center", color=theme.faint)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold")


def _ranked(nodes: Sequence[Node]) -> list[Node]:
    """Sorts nodes: kept or finished ones first, then dropped ones, each by descending score."""
    return sorted(nodes, key=lambda node: (not node.selected, -(node.total or 0)))


class _Tree:
    """Draws a tree into an axis, where `x` is the step and `y` the rank."""

    def __init__(self, axis: Axes, theme: Theme, decode: Callable[[int], str], best: set[int]) -> None:
        self._axis, self._theme, self._decode, self._best = axis, theme, decode, best

    def draw(self, columns: Sequence[Sequence[Node]]) -> None:
        """Draws all boxes, lines and the legend."""
        running = [node for node in columns[0] if node.selected]
        root = (-0.6, (len(running) - 1) / 2)
        coordinates: dict[int, tuple[float, float]] = {}
        for step, nodes in enumerate(columns):
            self._axis.text(step, -0.72, f"step {step + 1}", ha="center", fontsize=9, color=self._theme.faint)
            for rank, node in enumerate(nodes):
                coordinates[id(node)] = (step, rank)
                x, y = root if node.parent is None else coordinates[id(node.parent)]
                self._line(node, x if node.parent is None else x + _WIDTH / 2, y, step - _WIDTH / 2, rank)
                self._box(node, step, rank)
        self._axis.plot(*root, "o", color=self._theme.ink, markersize=6, zorder=3)
        self._legend([node for nodes in columns for node in nodes])

    def _color(self, node: Node) -> str:
        if node.finished:
            return self._theme.second
        return self._theme.accent if node.selected else self._theme.muted

    def _line(self, node: Node, x: float, y: float, to_x: float, to_y: float) -> None:
        best = id(node) in self._best
        add_curve(
            self._axis,
            (x, y),
            (to_x, to_y),
            edgecolor=self._color(node),
            linewidth=_THICK if best else 1.3,
            linestyle="-" if node.selected else _DASHED,
            zorder=2 if best else 1 if node.selected else 0,
        )

    def _box(self, node: Node, x: float, y: float) -> None:
        theme, best = self._theme, id(node) in self._best
        add_box(
            self._axis,
            x,
            y,
            _WIDTH,
            _HEIGHT,
            facecolor=theme.background,
            edgecolor=self._color(node),
            linewidth=_THICK if best else 1.3,
            linestyle="-" if node.selected else _DASHED,
            zorder=3,
        )
        ink = theme.ink if node.selected else theme.faint
        text = self._decode(node.token)
        text = text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
        weight = "bold" if best else "normal"
        self._axis.text(x, y - 0.14, text, ha="center", va="center", fontsize=9.5, color=ink, weight=weight, zorder=4)
        numbers = f"{node.log_probability:.2f}   Σ {node.total:.2f}".replace("-", "−")
        self._axis.text(x, y + 0.19, numbers, ha="center", va="center", fontsize=7.5, color=theme.faint, zorder=4)

    def _legend(self, nodes: Sequence[Node]) -> None:
        line, theme = require("matplotlib.lines", "viz").Line2D, self._theme
        styles: dict[str, tuple[Arguments, bool]] = {
            "continued": ({"color": theme.accent}, any(node.selected and not node.finished for node in nodes)),
            "finished": ({"color": theme.second}, any(node.finished for node in nodes)),
            "dropped": ({"color": theme.muted, "linestyle": _DASHED}, any(not node.selected for node in nodes)),
            "returned": ({"color": theme.ink, "linewidth": _THICK}, any(id(node) in self._best for node in nodes)),
        }
        handles = [line([], [], label=name, **style) for name, (style, occurs) in styles.items() if occurs]
        self._axis.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=8.5
        )
