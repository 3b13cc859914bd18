"""Bar charts of measurements: a panel for each workload, a bar for each subject."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.errors import InputError
from kerasformer.tools.bench.report import short_names
from kerasformer.tools.viz.canvas import LIGHT, canvas, check_picture

if TYPE_CHECKING:
    from kerasformer.tools.bench.run import BenchReport
    from kerasformer.tools.bench.speed_figures import WorkFigures

__all__ = ["Bar", "Panel", "check_picture", "draw", "panels_of"]


@dataclass(frozen=True)
class Bar:
    """Bar of a chart.

    Attributes:
        label: Label on the left.
        value: Length of the bar in the unit of its panel.
        text: Text on the right; the value by default.
    """

    label: str
    value: float
    text: str = ""


@dataclass(frozen=True)
class Panel:
    """Group of bars with a common unit.

    Attributes:
        title: Quantity or workload that was measured.
        unit: Label of the axis: the unit, and whether more or less is better.
        bars: Bars from top to bottom.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]


def draw(title: str, panels: Sequence[Panel], path: Path, note: str = "", columns: int = 1) -> None:
    """Draws a bar chart.

    Args:
        title: Title of the figure.
        panels: Panels from left to right, then from top to bottom.
        path: Output file, ending in `.png` or `.svg`.
        note: Small text below the panels, such as a description of the machine.
        columns: Number of panels side by side.

    Raises:
        InputError: as for `check_picture`, or there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(path)
    if not panels or not all(panel.bars for panel in panels):
        raise InputError("A picture needs bars in each panel. Received: none")
    rows = -(-len(panels) // columns)
    heights = [max(len(panel.bars) for panel in panels[row * columns : (row + 1) * columns]) for row in range(rows)]
    width = 8.0 * columns
    with canvas(path, width, 0.9 + sum(0.34 * bars + 1.15 for bars in heights)) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
        for index, axis in enumerate(axes.flat):
            if index < len(panels):
                _draw_panel(axis, panels[index])
            else:
                axis.set_axis_off()
        figure.suptitle(title, fontsize=13, fontweight="bold")
        if note:
            figure.supxlabel(textwrap.fill(note, int(15 * width)), fontsize=8, color=LIGHT.faint)


def panels_of(report: BenchReport) -> list[Panel]:
    """Returns panels for the speed of each workload, for memory and for size."""
    subjects = report.subjects
    names = short_names([one.name for one in subjects])
    labels = {one.name: f"{name} ({one.engine})" for one, name in zip(subjects, names, strict=True)}
    panels = []
    for title in dict.fromkeys(work.work for one in subjects for work in one.works):
        figures = [(one, work) for one in subjects for work in one.works if work.work == title]
        generates = any(work.decode_tokens_s is not None for _, work in figures)
        bars = tuple(
            Bar(labels[one.name], work.tokens_s if generates else 1000 * work.median_s, _speed(work, generates))
            for one, work in figures
        )
        unit = "tokens/s (more is better)" if generates else "ms per answer (less is better)"
        panels.append(Panel(title, unit, bars))
    for title, field in _SIZES.items():
        bars = tuple(Bar(labels[one.name], getattr(one, field), f"{getattr(one, field):,.1f}") for one in subjects)
        panels.append(Panel(title, "MB (less is better)", bars))
    return panels


_SIZES = {"Memory of the model, beyond the runtime": "model_mb", "Model files": "size_mb"}


def _speed(work: WorkFigures, generates: bool) -> str:
    text = f"{work.tokens_s:,.0f}" if generates else f"{1000 * work.median_s:,.1f}"
    return text if work.ratio is None else f"{text}  ({work.ratio.median:.2f}×)"


def _draw_panel(axis: Any, panel: Panel) -> None:
    rows = range(len(panel.bars))
    values = [bar.value for bar in panel.bars]
    drawn = axis.barh(rows, values, color=LIGHT.accent, height=0.7)
    axis.bar_label(drawn, [bar.text or f"{bar.value:,.0f}" for bar in panel.bars], padding=4, fontsize=9)
    axis.set_yticks(rows, [bar.label for bar in panel.bars])
    axis.invert_yaxis()
    axis.set_title(panel.title, loc="left", fontsize=11)
    axis.set_xlabel(panel.unit, fontsize=9)
    axis.set_xlim(0, 1.22 * (max(values) or 1))  # room for the numbers
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
