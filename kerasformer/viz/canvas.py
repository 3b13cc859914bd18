"""What all pictures share: colours, letters, and a file that is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer.errors import InputError, require

FORMATS = (".png", ".svg")


@dataclass(frozen=True)
class Theme:
    """Colours that also people tell apart who do not see red or green: blue, orange and greys.

    Attributes:
        paper: Behind all.
        ink: Letters and axes.
        faint: Small letters.
        own: What stands out.
        second: What stands out in another way.
        other: The rest.
    """

    paper: str
    ink: str
    faint: str
    own: str
    second: str
    other: str


LIGHT = Theme("#ffffff", "#1f2328", "#656d76", "#1f6feb", "#c4570a", "#b6bfca")
DARK = Theme("#0d1117", "#e6edf3", "#9198a1", "#4493f8", "#f0883e", "#59636e")


def check_picture(path: Path) -> None:
    """That a picture can be drawn there, before minutes are spent on its figures.

    Raises:
        InputError: neither PNG nor SVG, or no such folder.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"A picture's name must end in {' or '.join(FORMATS)}. Received: {path}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"A picture needs a folder that exists. Received: {path}")
    require("matplotlib", "viz")


@contextmanager
def canvas(path: Path, width: float, height: float, theme: Theme = LIGHT) -> Iterator[Any]:
    """A matplotlib figure that is written when the block ends without an error.

    It is a figure of its own, not one of `pyplot`: a notebook's backend and open figures stay as they are.

    Args:
        path: Ends in `.png` or `.svg`.
        width: Inches.
        height: Inches.
        theme: Colours.

    Raises:
        InputError: as for `check_picture`.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(path)
    with require("matplotlib", "viz").rc_context(_style(theme)):
        figure = require("matplotlib.figure", "viz").Figure(figsize=(width, height), layout="constrained")
        yield figure
        temporary = path.with_name(f".{path.stem}.new{path.suffix}")
        is_svg = path.suffix.lower() == ".svg"
        figure.savefig(temporary, dpi=150, metadata={"Date": None} if is_svg else None)
    os.replace(temporary, path)


def _style(theme: Theme) -> dict[str, Any]:
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    paper = ("figure.facecolor", "savefig.facecolor", "axes.facecolor")
    return {
        **dict.fromkeys(ink, theme.ink),
        **dict.fromkeys(paper, theme.paper),
        "font.family": "DejaVu Sans",  # comes with matplotlib, and has the signs for spaces and marks
        "font.size": 10,
        "mathtext.fontset": "dejavusans",
        "svg.fonttype": "path",
        "svg.hashsalt": "kerasformer",
    }
