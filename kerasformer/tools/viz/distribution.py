"""Figure of the probability distribution of the next token, with the cutoffs of sampling filters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cut = tuple[str, int]
"""Label of a cutoff, and the number of most probable tokens that it keeps."""


def draw_distribution(
    probabilities: np.ndarray, path: str | Path, cuts: tuple[Cut, ...] = (), title: str = "", dark: bool = False
) -> None:
    """Draws a histogram and the cumulative distribution, side by side.

    Args:
        probabilities: Probabilities of all tokens, `(V,)`, in any order.
        path: Output file, ending in `.png` or `.svg`.
        cuts: Cutoffs, drawn into both plots.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    Reference: the figure of Tunstall, von Werra, Wolf 2022, "Natural Language Processing with Transformers", chapter 5.
    """
    theme = DARK if dark else LIGHT
    ranked = np.sort(np.asarray(probabilities, np.float64))[::-1]
    with canvas(Path(path), 9.0, 3.8, theme) as figure:
        left, right = figure.subplots(1, 2)
        _draw_histogram(left, ranked, cuts, theme)
        _draw_cumulative(right, ranked, cuts, theme)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        if cuts:
            handles = right.get_legend_handles_labels()[0]
            figure.legend(handles=handles, loc="outside lower center", ncols=len(cuts), fontsize=9, frameon=False)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold")


def _draw_histogram(axis: Any, ranked: np.ndarray, cuts: tuple[Cut, ...], theme: Theme) -> None:
    """Draws the number of tokens by the logarithm of their probability."""
    exponents = np.log10(np.maximum(ranked, 1e-12))
    lowest, highest = np.floor(exponents.min()), np.ceil(exponents.max() + 1e-9)
    axis.hist(exponents, bins=np.arange(lowest, highest + 0.01, 0.25), color=theme.accent, log=True, rwidth=0.9)
    for (_, count), color, style in _lines(cuts, theme):
        axis.axvline(exponents[min(count, len(ranked)) - 1], color=color, linestyle=style)
    ticks = np.arange(highest, lowest - 0.01, -1 if highest - lowest < 8 else -2)
    axis.set_xticks(ticks, [f"$10^{{{int(tick)}}}$" for tick in ticks])
    axis.set_xlabel("probability of a token")
    axis.set_ylabel("tokens")
    axis.set_title("Number of tokens by probability", loc="left", fontsize=10)


def _draw_cumulative(axis: Axes, ranked: np.ndarray, cuts: tuple[Cut, ...], theme: Theme) -> None:
    """Draws the cumulative probability of the most probable tokens."""
    counts = np.arange(1, len(ranked) + 1)
    sums = ranked.cumsum()
    axis.plot(counts, sums, color=theme.accent, linewidth=2)
    for (name, count), color, style in _lines(cuts, theme):
        mass = sums[min(count, len(ranked)) - 1]
        label = f"{name}: {count:,} tokens have {mass:.0%}"
        axis.axvline(count, color=color, linestyle=style, label=label)
        axis.plot([count], [mass], "o", color=color, markersize=5)
    axis.set_xscale("log")
    axis.set_xlim(1, len(ranked))
    axis.set_ylim(0, 1.02)
    axis.yaxis.set_major_formatter("{x:.0%}")
    axis.set_xlabel("tokens, most probable first")
    axis.set_title("Cumulative probability", loc="left", fontsize=10)


def _lines(cuts: tuple[Cut, ...], theme: Theme) -> list[tuple[Cut, str, str]]:
    """Assigns a colour and a line style to each cutoff."""
    styles = [(theme.second, "--"), (theme.ink, ":"), (theme.faint, "-.")]
    return [(cut, *styles[index % len(styles)]) for index, cut in enumerate(cuts)]
