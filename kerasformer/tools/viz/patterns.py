"""Figures of masks, of positions, and of the probabilities of the next token at several temperatures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.viz.canvas import DARK, LIGHT, Theme, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class PositionValues:
    """Positions in numbers.

    Attributes:
        sinusoids: Sinusoidal vectors, `(T, E)`.
        distances: Distances of two tokens, `(N,)`.
        rotary: Score of two equal vectors of ones at each distance, as a share of that at distance 0, `(N,)`, by the
            base of the rotary frequencies.
        alibi: Biases of linear positions, `(H, T, T)`.
    """

    sinusoids: np.ndarray
    distances: np.ndarray
    rotary: Mapping[float, np.ndarray]
    alibi: np.ndarray


@dataclass(frozen=True)
class Candidate:
    """A token that may come next.

    Attributes:
        text: Readable text.
        probability: Its probability.
        kept: Whether the filters of sampling keep it.
    """

    text: str
    probability: float
    kept: bool


def draw_masks(masks: Mapping[str, np.ndarray], path: str | Path, title: str = "", dark: bool = False) -> None:
    """Draws which keys each query sees: a square for each pattern, with the share of all pairs that are seen.

    Args:
        masks: Boolean `(T, S)` by the name of the pattern; a row for each query.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no masks, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if not masks:
        raise InputError("A picture needs masks. Received: none")
    theme = DARK if dark else LIGHT
    columns = min(4, len(masks))
    rows = math.ceil(len(masks) / columns)
    colors = require("matplotlib.colors", "viz").ListedColormap([theme.background, theme.accent])
    with canvas(Path(path), 2.3 * columns, 2.55 * rows + (0.4 if title else 0), theme) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis in axes:
            axis.set_axis_off()
        for axis, (name, mask) in zip(axes, masks.items(), strict=False):
            axis.set_axis_on()
            axis.imshow(mask, cmap=colors, vmin=0, vmax=1, interpolation="none", aspect="equal")
            queries, keys = mask.shape
            axis.set_xticks(np.arange(-0.5, keys), minor=True)
            axis.set_yticks(np.arange(-0.5, queries), minor=True)
            axis.grid(which="minor", color=theme.muted, linewidth=0.25)
            axis.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
            axis.set_xlabel("keys", fontsize=8)
            axis.set_ylabel("queries", fontsize=8)
            axis.set_title(f"{name}: {mask.mean():.0%}", fontsize=9.5)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)


def draw_positions(values: PositionValues, path: str | Path, title: str = "", dark: bool = False) -> None:
    """Draws sinusoidal vectors, the decay of scores with rotary positions, and linear biases, side by side.

    Args:
        values: What is drawn.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    theme = DARK if dark else LIGHT
    with canvas(Path(path), 9.0, 3.0 + (0.3 if title else 0), theme) as figure:
        left, middle, right = figure.subplots(1, 3)
        shades = _diverging(theme)
        image = left.imshow(values.sinusoids, cmap=shades, vmin=-1, vmax=1, aspect="auto", interpolation="none")
        figure.colorbar(image, ax=left, ticks=[-1, 0, 1], shrink=0.8)
        left.set(xlabel="entry of the vector", ylabel="position")
        left.set_title("Sinusoids", loc="left", fontsize=10)
        for (base, scores), color in zip(values.rotary.items(), (theme.accent, theme.second, theme.ink), strict=False):
            middle.plot(values.distances, scores, color=color, linewidth=1.3, label=f"base {base:,.0f}")
        middle.set(xlabel="distance of query and key", ylabel="score / score at distance 0")
        middle.set_title("Rotary positions", loc="left", fontsize=10)
        middle.legend(frameon=False, fontsize=8.5)
        _draw_biases(right, values.alibi, theme)
        for axis in (middle, right):
            axis.spines[["top", "right"]].set_visible(False)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)


def _draw_biases(axis: Axes, alibi: np.ndarray, theme: Theme) -> None:
    """Draws the biases of the last query of each head by distance."""
    distances = np.arange(alibi.shape[2])[::-1]
    heads = len(alibi)
    for head, biases in enumerate(alibi[:, -1]):
        share = head / max(heads - 1, 1)
        axis.plot(distances, biases, color=theme.accent, alpha=1 - 0.75 * share, linewidth=1.5)
        if head in (0, heads - 1):
            axis.annotate(
                f"head {head}", (distances[0], biases[0]), fontsize=8.5, ha="right", va="bottom" if head else "top"
            )
    axis.set(xlabel="distance of query and key", ylabel="added to the score")
    axis.set_title("Linear biases (ALiBi)", loc="left", fontsize=10)


def draw_temperatures(
    candidates: Mapping[str, Sequence[Candidate]], path: str | Path, title: str = "", dark: bool = False
) -> None:
    """Draws the most probable next tokens at several temperatures, side by side; those that are cut are grey.

    Args:
        candidates: The tokens by the title of their panel, such as the temperature; most probable first.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: there are no tokens, `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if not candidates or not all(candidates.values()):
        raise InputError("A picture needs tokens at each temperature. Received: none")
    theme = DARK if dark else LIGHT
    count = max(map(len, candidates.values()))
    with canvas(Path(path), 3.1 * len(candidates), 1.0 + 0.26 * count, theme) as figure:
        axes = figure.subplots(1, len(candidates), squeeze=False, sharex=True)[0]
        for axis, (name, tokens) in zip(axes, candidates.items(), strict=True):
            _draw_candidates(axis, name, tokens, theme)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)


def _draw_candidates(axis: Axes, name: str, tokens: Sequence[Candidate], theme: Theme) -> None:
    colors = [theme.accent if token.kept else theme.muted for token in tokens]
    values = [token.probability for token in tokens]
    axis.barh(range(len(tokens)), values, color=colors, height=0.7)
    for row, token in enumerate(tokens):
        ink = theme.ink if token.kept else theme.faint
        axis.text(token.probability, row, f" {token.probability:.1%}", va="center", fontsize=8, color=ink)
    axis.set_yticks(range(len(tokens)), [token.text for token in tokens], parse_math=False)
    axis.tick_params(length=0)
    axis.set_xticks([])
    axis.margins(x=0.2)
    axis.invert_yaxis()
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.set_title(name, loc="left", fontsize=10)


def _diverging(theme: Theme) -> Any:
    colormap = require("matplotlib.colors", "viz").LinearSegmentedColormap
    return colormap.from_list("signs", [theme.second, theme.background, theme.accent])
