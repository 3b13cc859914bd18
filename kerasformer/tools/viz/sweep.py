"""Figure of several settings beside each other: a panel for each measure, a bar for each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasformer.errors import InputError
from kerasformer.tools.viz.canvas import DARK, LIGHT, canvas


def draw_sweep(
    names: Sequence[str],
    panels: Mapping[str, Sequence[float]],
    path: str | Path,
    title: str = "",
    dark: bool = False,
) -> None:
    """Draws bars of all settings for each measure, side by side.

    Args:
        names: Names of the settings, from top to bottom.
        panels: Values of the settings by the name of the measure.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no settings, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if not names or not panels:
        raise InputError("A picture needs settings and measures. Received: none")
    theme = DARK if dark else LIGHT
    with canvas(Path(path), 1.8 + 2.2 * len(panels), 0.9 + 0.32 * len(names), theme) as figure:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (measure, values) in zip(axes, panels.items(), strict=True):
            axis.barh(range(len(names)), values, color=theme.accent, height=0.6)
            low, high = min(0.0, *values), max(0.0, *values)
            pad = 0.02 * (high - low or 1.0)
            for row, value in enumerate(values):
                side = "right" if value < 0 else "left"
                axis.text(value + (-pad if value < 0 else pad), row, f"{value:.2f}", ha=side, va="center", fontsize=8)
            room = 0.28 * (high - low or 1.0)
            axis.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 or low == high else 0))
            axis.set_xticks([])
            axis.spines[["top", "right", "bottom", "left"]].set_visible(False)
            axis.set_title(measure, loc="left", fontsize=9)
            axis.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(names)), names, parse_math=False)
        axes[0].invert_yaxis()
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)
