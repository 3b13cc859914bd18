"""The family tree of the architectures: what each one is derived from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.bundle.architectures import Architecture
from kerasformer.tools.viz.canvas import Theme, add_box, add_curve, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = {"encoder": "#1f6feb", "decoder": "#b4500a", "encoder-decoder": "#0f766e"}
"""Colours of the branches, on which white text is legible, and which colour-blind readers can distinguish too."""
_LINE, _GREY = "#8b949e", "#57606a"
_THEME = Theme("none", "#ffffff", "#ffffff", _COLORS["encoder"], _COLORS["decoder"], _LINE)
"""Without background, and with text only in boxes, so that the picture suits light and dark pages."""

_COLUMN, _ROW, _WIDTH, _HEIGHT = 2.1, 0.42, 1.9, 0.31
"""Distances of columns and rows, and the size of a box, in inches."""
_FONT_SIZE, _LONGEST = 9.5, 26
"""Font size in points, and the number of characters from which it is smaller, so that a text fits its box."""
_INDENT, _LOW_ROW, _LOW_WIDTH, _NARROW = 0.3, 0.3, 2.6, 3.8
"""On a phone: indentation, distance of rows, width of a box and of the picture, in inches."""
_ORIGIN = "Transformer  2017"

Lineage = Sequence[tuple[Architecture, int]]
"""Architectures, each before those derived from it, with its depth."""


@dataclass
class _Node:
    """A box with the boxes that are derived from it.

    Attributes:
        text: Its text.
        color: Its colour.
        children: Boxes of the next column.
        row: Row of its centre, which `_place` sets.
    """

    text: str
    color: str
    children: list[_Node] = field(default_factory=list)
    row: float = 0.0


def draw_family_tree(branches: Mapping[str, Lineage], path: str | Path, narrow: bool = False) -> None:
    """Draws the architectures of all branches as a tree that grows from the Transformer to the right.

    Args:
        branches: The architectures of each branch.
        path: Output file, ending in `.png` or `.svg`.
        narrow: Whether each architecture has a row of its own, indented below that which it is derived from, so that
            the picture can be read on a phone.

    Raises:
        InputError: `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    root = _Node(_ORIGIN, _GREY, [_tree(f"{name}s", _COLORS[name], members) for name, members in branches.items()])
    if narrow:
        rows = sum(1 for _ in _rows(root, 0))
        with canvas(Path(path), _NARROW, rows * _LOW_ROW, _THEME) as figure:
            figure.set_layout_engine("none")
            axis = figure.add_axes((0, 0, 1, 1))
            axis.set(xlim=(0, _NARROW), ylim=((rows - 0.5) * _LOW_ROW, -0.5 * _LOW_ROW))
            axis.set_axis_off()
            _draw_rows(axis, root)
        return
    columns = 3 + max(depth for members in branches.values() for _, depth in members)
    rows = _place(root, 0)
    with canvas(Path(path), columns * _COLUMN, rows * _ROW, _THEME) as figure:
        axis = figure.subplots()
        axis.set(xlim=(-_COLUMN / 2, (columns - 0.5) * _COLUMN), ylim=((rows - 0.5) * _ROW, -0.5 * _ROW))
        axis.set_axis_off()
        _Drawing(axis).draw(root, 0)


def _tree(text: str, color: str, members: Lineage) -> _Node:
    """Returns the box of a branch, with those of its architectures."""
    path = [_Node(text, color)]
    named = [(f"{member.name}  {member.year}", depth) for member, depth in members]
    for name, depth in named:
        if name == _ORIGIN:  # the root of the whole tree
            continue
        node = _Node(name, color)
        path[depth].children.append(node)
        path[depth + 1 :] = [node]
    return path[0]


def _place(node: _Node, row: int) -> int:
    """Sets the rows of a box and of all boxes derived from it, the first of which is `row`; returns the next row."""
    if not node.children:
        node.row = row
        return row + 1
    for child in node.children:
        row = _place(child, row)
    node.row = (node.children[0].row + node.children[-1].row) / 2
    return row


def _rows(node: _Node, depth: int) -> Iterator[tuple[_Node, int]]:
    """Yields each box with its depth, a box before those that are derived from it."""
    yield node, depth
    for child in node.children:
        yield from _rows(child, depth + 1)


def _draw_rows(axis: Axes, root: _Node) -> None:
    """Draws a tree whose boxes are below each other, with lines from the left edge of each box to those below."""
    for row, (node, depth) in enumerate(_rows(root, 0)):
        node.row = row
        left, y = depth * _INDENT, row * _LOW_ROW
        add_box(
            axis,
            left + _LOW_WIDTH / 2,
            y,
            _LOW_WIDTH,
            0.85 * _LOW_ROW,
            facecolor=node.color,
            edgecolor="none",
            zorder=2,
        )
        axis.text(left + 0.1, y, node.text, ha="left", va="center_baseline", fontsize=_FONT_SIZE, zorder=3)
    for node, depth in _rows(root, 0):
        for child in node.children:
            x = depth * _INDENT + _INDENT / 2
            (line,) = axis.plot(
                [x, x, x + _INDENT / 2],
                [node.row * _LOW_ROW, *[child.row * _LOW_ROW] * 2],
                color=_LINE,
                linewidth=1.3,
                zorder=1,
            )
            line.set_gid(_name(node, child))


def _name(node: _Node, child: _Node) -> str:
    """Returns the name of a line in the picture."""
    return "-".join([*node.text.split(), "to", *child.text.split()])


class _Drawing:
    """Draws boxes and lines into an axis whose units are inches."""

    def __init__(self, axis: Axes) -> None:
        self._axis = axis

    def draw(self, node: _Node, column: int) -> None:
        """Draws a box, all boxes derived from it and the lines to them."""
        self._box(node, column)
        for child in node.children:
            self._line(node, child, column)
            self.draw(child, column + 1)

    def _box(self, node: _Node, column: int) -> None:
        x, y = column * _COLUMN, node.row * _ROW
        add_box(self._axis, x, y, _WIDTH, _HEIGHT, facecolor=node.color, edgecolor="none", zorder=2)
        size = min(_FONT_SIZE, _FONT_SIZE * _LONGEST / len(node.text))
        self._axis.text(x, y, node.text, ha="center", va="center_baseline", fontsize=size, zorder=3)

    def _line(self, node: _Node, child: _Node, column: int) -> None:
        start = column * _COLUMN + _WIDTH / 2, node.row * _ROW
        end = (column + 1) * _COLUMN - _WIDTH / 2, child.row * _ROW
        line = add_curve(self._axis, start, end, edgecolor=_LINE, linewidth=1.3, zorder=1)
        line.set_gid(_name(node, child))
