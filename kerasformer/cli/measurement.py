"""Speed and memory of a bundle that a command has written, for its card and for the command's last line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.cli.console import Stages, say
from kerasformer.errors import KerasformerError

if TYPE_CHECKING:
    from kerasformer.tools.bench.speed_figures import SubjectFigures


def measured(folder: Path, quiet: bool = False) -> SubjectFigures | None:
    """Measures a bundle in a process of its own, and writes the figures into its card.

    A bundle that cannot be measured here is complete nevertheless; the reason is printed.

    Args:
        folder: Folder of the bundle.
        quiet: Whether to print nothing.
    """
    from kerasformer.tools.bench import bench
    from kerasformer.tools.bench.card import write_speed

    try:
        with Stages(quiet) as stages:
            report = bench([folder], rounds=3, progress=stages)
        write_speed(folder, report)
    except KerasformerError as error:
        if not quiet:
            say(f"Speed was not measured: {error}")
        return None
    return report.subjects[0]


def speed_line(figures: SubjectFigures) -> str:
    """Returns speed and memory in a few words."""
    work = figures.works[0]
    if work.decode_tokens_s:
        speed = f"{work.decode_tokens_s:.0f} token/s"
    else:
        speed = f"{1000 * work.median_s:.1f} ms for {work.work}"
    return f"{speed}, {figures.peak_mb:.0f} MB of memory on this machine"
