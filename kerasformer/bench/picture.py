"""Figures as horizontal bars: one panel for each work, a bar for each subject."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.bench.report import short_names
from kerasformer.errors import InputError
from kerasformer.viz.canvas import LIGHT, canvas, check_picture

if TYPE_CHECKING:
    from kerasformer.bench.run import BenchReport

__all__ = ["Bar", "Panel", "check_picture", "draw", "panels_of"]


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: On its left.
        value: Its length, in the unit of its panel.
        text: On its right; the value by default.
        own: Drawn in the colour that stands out.
    """

    label: str
    value: float
    text: str = ""
    own: bool = True


@dataclass(frozen=True)
class Panel:
    """Bars of one unit.

    Attributes:
        title: What was measured.
        unit: Below the axis, with the direction that is good.
        bars: From top to bottom.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]


def draw(title: str, panels: Sequence[Panel], path: Path, note: str = "", columns: int = 1) -> None:
    """Writes a picture.

    Args:
        title: Above all.
        panels: From left to right, then from top to bottom.
        path: Ends in `.png` or `.svg`.
        note: Below all, in small letters: what it was measured on.
        columns: Panels side by side.

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
        for place, axis in enumerate(axes.flat):
            if place < len(panels):
                _draw_panel(axis, panels[place])
            else:
                axis.set_axis_off()
        figure.suptitle(title, fontsize=13, fontweight="bold")
        if note:
            figure.supxlabel(textwrap.fill(note, int(15 * width)), fontsize=8, color=LIGHT.faint)


def panels_of(report: BenchReport) -> list[Panel]:
    """Speed of each work, then memory and size."""
    subjects = report.subjects
    names = short_names([one.name for one in subjects])
    labels = {one.name: f"{name} ({one.engine})" for one, name in zip(subjects, names, strict=True)}
    panels = []
    for work in dict.fromkeys(own.work for one in subjects for own in one.works):
        chosen = [(one, own) for one in subjects for own in one.works if own.work == work]
        writes = any(own.decode_tokens_s is not None for _, own in chosen)
        bars = tuple(
            Bar(labels[one.name], own.tokens_s if writes else 1000 * own.median_s, _speed(own, writes))
            for one, own in chosen
        )
        unit = "tokens/s (more is better)" if writes else "ms per answer (less is better)"
        panels.append(Panel(work, unit, bars))
    for title, field in _SIZES.items():
        bars = tuple(Bar(labels[one.name], getattr(one, field), f"{getattr(one, field):,.1f}") for one in subjects)
        panels.append(Panel(title, "MB (less is better)", bars))
    return panels


_SIZES = {"Memory of the model, beyond the runtime": "model_mb", "Model files": "size_mb"}


def _speed(own: Any, writes: bool) -> str:
    text = f"{own.tokens_s:,.0f}" if writes else f"{1000 * own.median_s:,.1f}"
    return text if own.ratio is None else f"{text}  ({own.ratio.median:.2f}×)"


def _draw_panel(axis: Any, panel: Panel) -> None:
    places = range(len(panel.bars))
    values = [bar.value for bar in panel.bars]
    drawn = axis.barh(places, values, color=[LIGHT.own if bar.own else LIGHT.other for bar in panel.bars], height=0.7)
    axis.bar_label(drawn, [bar.text or f"{bar.value:,.0f}" for bar in panel.bars], padding=4, fontsize=9)
    axis.set_yticks(places, [bar.label for bar in panel.bars])
    axis.invert_yaxis()
    axis.set_title(panel.title, loc="left", fontsize=11)
    axis.set_xlabel(panel.unit, fontsize=9)
    axis.set_xlim(0, 1.22 * max(values))  # room for the numbers
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
