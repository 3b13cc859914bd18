"""Shared parts of all figures: colours, fonts, and atomic writing of the output file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.files.publishing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

FORMATS = (".png", ".svg")


@dataclass(frozen=True)
class Theme:
    """Colour theme of blue, orange and greys, which colour-blind readers can distinguish too.

    Attributes:
        background: Background colour.
        ink: Colour of text and axes.
        faint: Colour of small text.
        accent: First highlight colour.
        second: Second highlight colour.
        muted: Colour of items that are not highlighted.
    """

    background: str
    ink: str
    faint: str
    accent: str
    second: str
    muted: str


LIGHT = Theme("#ffffff", "#1f2328", "#656d76", "#1f6feb", "#c4570a", "#b6bfca")
DARK = Theme("#0d1117", "#e6edf3", "#9198a1", "#4493f8", "#f0883e", "#59636e")


def check_picture(path: Path) -> None:
    """Checks that a figure can be written, before time is spent on computing its content.

    Raises:
        InputError: `path` does not end in `.png` or `.svg`, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"The name of a picture must end in {' or '.join(FORMATS)}. Received: {path}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"The folder of a picture must exist. Received: {path}")
    require("matplotlib", "viz")


@contextmanager
def canvas(path: Path, width: float, height: float, theme: Theme = LIGHT) -> Iterator[Figure]:
    """Provides a matplotlib figure, which is saved when the block ends without an error.

    The figure is not managed by `pyplot`, so that the backend and open figures of a notebook are not affected.

    Args:
        path: Output file, ending in `.png` or `.svg`.
        width: Width in inches.
        height: Height in inches.
        theme: Colours.

    Raises:
        InputError: as for `check_picture`.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(path)
    with require("matplotlib", "viz").rc_context(_style(theme)):
        figure = require("matplotlib.figure", "viz").Figure(figsize=(width, height), layout="constrained")
        yield figure
        is_svg = path.suffix.lower() == ".svg"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Date": None} if is_svg else None)


def _style(theme: Theme) -> Arguments:
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    background = ("figure.facecolor", "savefig.facecolor", "axes.facecolor")
    return {
        **dict.fromkeys(ink, theme.ink),
        **dict.fromkeys(background, theme.background),
        "font.family": "DejaVu Sans",  # ships with matplotlib and has the symbols that mark spaces
        "font.size": 10,
        "mathtext.fontset": "dejavusans",
        "svg.fonttype": "path",
        "svg.hashsalt": "kerasformer",
    }


def add_box(axis: Axes, x: float, y: float, width: float, height: float, **style: object) -> None:
    """Adds a box with round corners around a point to an axis of matplotlib."""
    patches = require("matplotlib.patches", "viz")
    corner = (x - width / 2, y - height / 2)
    axis.add_patch(patches.FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.08", **style))


def add_curve(axis: Axes, start: tuple[float, float], end: tuple[float, float], **style: object) -> Patch:
    """Adds a curve between two points to an axis of matplotlib, horizontal at both ends; returns its patch."""
    patches, path = require("matplotlib.patches", "viz"), require("matplotlib.path", "viz").Path
    (x, y), (to_x, to_y) = start, end
    half = (to_x - x) / 2
    points = [start, (x + half, y), (to_x - half, to_y), end]
    curve = path(points, [path.MOVETO, path.CURVE4, path.CURVE4, path.CURVE4])
    return axis.add_patch(patches.PathPatch(curve, fill=False, **style))
