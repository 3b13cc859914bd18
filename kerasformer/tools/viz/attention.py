"""Pictures of attention: heads, thumbnails of all heads, query and key, alignment, rollout and figures of the heads.

Shape letters: `H` heads, `T` queries, `S` keys, `D` size of a head.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.tools.viz import html_page
from kerasformer.tools.viz.attention_names import KINDS, StackKind
from kerasformer.tools.viz.canvas import DARK, FORMATS, LIGHT, Theme, canvas, check_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ENGINES = {"keras": "Keras", "litert": "LiteRT", "onnx": "ONNX Runtime"}
_HELP = {
    "entropy": ("bits", "Entropy of the weights in bits, the mean over queries; 0 if each looks at one token alone."),
    "distance": ("tokens", "Distance between query and key in tokens, the mean weighted by attention."),
    "within segment": ("%", "Share of attention within the text of the query, in percent."),
    "on separators": ("%", "Share of attention on separators and ends of texts, in percent."),
    "on first token": ("%", "Share of attention on the first token, in percent."),
}
_ROW = 0.24
"""Height of a token in inches."""
_WIDE = 1.8
"""Width of the lines between tokens in inches."""
_LEAST = 0.03
"""Weights below have no line: they would hardly be visible."""

_MAX_STATES = 4_000_000
"""Largest size in bytes of the queries and keys of all layers in a page; of larger ones, it has those of one layer."""


class Tokens(Protocol):
    """The tokens of a text; see `interpretability.attention.TokenRow`."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Readable tokens."""
        ...

    @property
    def segments(self) -> np.ndarray:
        """0 or 1 for the texts of a pair, `(T,)`."""
        ...

    @property
    def written(self) -> tuple[str, ...] | None:
        """The token that a decoder writes after each token."""
        ...

    @property
    def is_pair(self) -> bool:
        """Whether there are two texts."""
        ...


@dataclass(frozen=True)
class AttentionView:
    """A view of the attention of a model, for notebooks and files.

    Attributes:
        attention: The attention, an `interpretability.attention.Attention`.
        names: Views of the page.
        view: View that is shown first, and that pictures show.
        kind: `"encoder"`, `"decoder"` or `"cross"`.
        layer: Index of the layer; `None` for the first one.
        head: Index of the head; `None` for all.
        token: Index of the query, of a view of neurons.
        statistic: Index of the figure, of a view of statistics.
        reason: HTML above the views of a page: what the answer is due to.
    """

    attention: Any
    names: tuple[str, ...]
    view: str
    kind: StackKind
    layer: int | None = None
    head: int | None = None
    token: int | None = None
    statistic: int = 0
    reason: str = ""

    @property
    def title(self) -> str:
        """What the picture shows."""
        parts = [self.attention.source, KINDS[self.kind].lower()]
        if self.layer is not None and self.view not in ("model", "statistics"):
            parts.append(f"layer {self.layer}" + ("" if self.head is None else f", head {self.head}"))
        return " · ".join(parts)

    def html(self) -> str:
        """Returns one HTML page, which needs no server and no network."""
        note = " · ".join(f"“{_short(text)}”" for text in self.attention.texts)
        options = {
            "view": self.view,
            "kind": self.kind,
            "layer": self._index,
            "head": self.head,
            "token": self.token,
            "statistic": self.statistic,
        }
        data = page_data(self.attention, self.names, self._index) | {"options": options}
        start = "KerasformerAttention.mount(element, data, data.options);"
        title = f"Attention of {self.attention.source} on {_ENGINES[self.attention.engine]}"
        return html_page.page(title, note, data, ("attention.css", "attention.js"), start, self.reason)

    def _repr_html_(self) -> str:
        """Returns the element that notebooks show."""
        return html_page.notebook_element(self.html(), self._height)

    def save(self, path: str | Path, dark: bool = False) -> None:
        """Writes the view to a file.

        Args:
            path: File: `.html` for a page that readers can point at, `.png` or `.svg` for a picture.
            dark: Use colours for dark pages, of a picture; a page follows the setting of its reader.

        Raises:
            InputError: `path` has another suffix, or its folder does not exist.
            MissingExtraError: a picture needs matplotlib, which is not installed.
        """
        path = Path(path)
        check_view_path(path)
        if path.suffix.lower() == ".html":
            html_page.write(self.html(), path)
        else:
            self._draw(path, DARK if dark else LIGHT)

    @property
    def _stack(self) -> Any:
        return self.attention.stack(self.kind)

    @property
    def _index(self) -> int:
        """Index of the layer among those that have attention."""
        layers = self._stack.layers
        return next((i for i, layer in enumerate(layers) if layer.index == self.layer), 0)

    @property
    def _height(self) -> int:
        """Height of the page in CSS pixels."""
        stack = self._stack
        rows = max(len(stack.queries.tokens), len(stack.keys.tokens))
        content = {
            "heads": 26 * rows,
            "model": 62 * len(stack.layers) + 40,
            "neurons": 26 * rows + 120,
            "alignment": 22 * len(stack.queries.tokens) + 130,
            "rollout": 22 * rows + 130,
            "statistics": 34 * len(stack.layers) + 60,
        }
        return min(900, 260 + max(content[name] for name in self.names))

    def _draw(self, path: Path, theme: Theme) -> None:
        stack, layer = self._stack, self._stack.layers[self._index]
        queries, keys = stack.queries.tokens, stack.keys.tokens
        if self.view == "heads":
            heads = range(len(layer.weights)) if self.head is None else [self.head]
            draw_heads(layer.weights, list(heads), queries, keys, path, self.title, theme)
        elif self.view == "model":
            draw_model({each.index: each.weights for each in stack.layers}, path, self.title, theme)
        elif self.view == "neurons":
            draw_neurons(layer.states, self.head or 0, self.token or 0, queries, keys, path, self.title, theme)
        elif self.view == "alignment":
            weights = layer.weights.mean(axis=0) if self.head is None else layer.weights[self.head]
            which = "mean of all heads" if self.head is None else f"head {self.head}"
            title = f"{self.attention.source} · layer {layer.index}, {which}"
            draw_matrix(weights, stack.queries.written or queries, keys, path, title, theme)
        elif self.view == "rollout":
            draw_matrix(stack.rollout()[self._index], queries, keys, path, f"{self.title}: rollout", theme)
        else:
            name, values = list(stack.statistics().items())[self.statistic]
            indices = [each.index for each in stack.layers]
            unit, help = _HELP[name]
            draw_statistics(
                values, indices, f"{self.attention.source}: {name} ({unit})", help, unit == "%", path, theme
            )


def check_view_path(path: Path) -> None:
    """Checks that a view can be written to a path.

    Raises:
        InputError: `path` has another suffix, or its folder does not exist.
        MissingExtraError: a picture needs matplotlib, which is not installed.
    """
    suffix = path.suffix.lower()
    if suffix in FORMATS:
        check_picture(path)
    elif suffix != ".html":
        raise InputError(f"The name of a view must end in .html, {' or '.join(FORMATS)}. Received: {path}")
    elif not path.absolute().parent.is_dir():
        raise InputError(f"The folder of a view must exist. Received: {path}")


def available(attention: Any) -> list[str]:
    """Returns the views that an attention can be drawn in, the most telling first."""
    names = ["heads", "model"]
    if any(layer.states is not None for stack in attention.stacks for layer in stack.layers):
        names.append("neurons")
    if "cross" in attention.kinds:
        names.append("alignment")
    if any(stack.has_rollout for stack in attention.stacks):
        names.append("rollout")
    return [*names, "statistics"]


def page_data(attention: Any, names: Sequence[str], layer: int = 0) -> dict[str, Any]:
    """Returns what `attention.js` needs to draw views; the beginning of that file describes it.

    Args:
        attention: The attention, an `interpretability.attention.Attention`.
        names: The views.
        layer: Index of the layer whose queries and keys are included even if those of all layers are too many, among
            the layers with attention.
    """
    states = [each.states for stack in attention.stacks for each in stack.layers if each.states is not None]
    all_fit = sum(each.queries.nbytes + each.keys.nbytes for each in states) <= _MAX_STATES
    texts: dict[str, Any] = {}
    kinds = []
    for stack in attention.stacks:
        keys = _text_name(stack, "keys", texts)
        queries = _text_name(stack, "queries", texts)
        kind: dict[str, Any] = {"kind": stack.kind, "name": KINDS[stack.kind], "queries": queries, "keys": keys}
        kind["layers"] = [
            _layer_data(each, "neurons" in names and (all_fit or index == layer))
            for index, each in enumerate(stack.layers)
        ]
        if "rollout" in names and stack.has_rollout:
            kind["rollout"] = [html_page.packed(matrix, shares=True) for matrix in stack.rollout()]
        if "statistics" in names:
            kind["statistics"] = [
                {"name": name, "unit": _HELP[name][0], "help": _HELP[name][1], "values": [_listed(row) for row in rows]}
                for name, rows in stack.statistics().items()
            ]
        kinds.append(kind)
    return {"views": list(names), "texts": texts, "kinds": kinds}


def _text_name(stack: Any, side: str, texts: dict[str, Any]) -> str:
    """Adds a text to those of a page, unless it is there, and returns its name."""
    text: Tokens = getattr(stack, side)
    name = "target" if stack.kind == "decoder" or (stack.kind == "cross" and side == "queries") else "source"
    if name not in texts:
        entry: dict[str, Any] = {"tokens": list(text.tokens)}
        if text.is_pair:
            entry["segments"] = text.segments.tolist()
        if text.written is not None:
            entry["next"] = list(text.written)
        texts[name] = entry
    return name


def _layer_data(layer: Any, with_states: bool) -> dict[str, Any]:
    data = {
        "index": layer.index,
        "heads": len(layer.weights),
        "weights": html_page.packed(layer.weights, shares=True),
    }
    states = layer.states
    if with_states and states is not None:
        data |= {"queries": html_page.packed(states.queries), "keys": html_page.packed(states.keys)}
        data |= {"scale": states.scale, "softcap": states.softcap}
        if states.bias is not None:
            data["bias"] = html_page.packed(np.maximum(states.bias, -1e30))
    return data


def _listed(row: np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in row]


def _head_colour(head: int, heads: int, theme: Theme) -> tuple[float, float, float]:
    """Returns the colour of a head, that of the page."""
    hue = (head / heads + 228 / 360) % 1
    return colorsys.hls_to_rgb(hue, 0.70 if theme is DARK else 0.44, 0.78 if theme is DARK else 0.68)


def draw_heads(
    weights: np.ndarray,
    heads: Sequence[int],
    queries: Sequence[str],
    keys: Sequence[str],
    path: Path,
    title: str = "",
    theme: Theme = LIGHT,
) -> None:
    """Draws two columns of tokens, and a line for each weight.

    Args:
        weights: `(H, T, S)`.
        heads: Indices of the heads to draw.
        queries: Tokens that attend, `T`.
        keys: Tokens that are attended to, `S`.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        theme: Colours.

    Reference: Vig 2019, arXiv:1906.05714, section 3.1.
    """
    rows = max(len(queries), len(keys))
    widths = [_text_width(tokens) for tokens in (queries, keys)]
    with canvas(path, sum(widths) + 2.0, _ROW * rows + 0.6, theme) as figure:
        axis = _plain_axis(figure, title)
        axis.set(xlim=(-widths[0], _WIDE + widths[1]), ylim=(rows - 0.4, -0.6))
        segments, colours = [], []
        for index, head in enumerate(heads):
            # The lines of several heads run beside each other, so that each has its colour.
            shift = (index - (len(heads) - 1) / 2) * min(0.06, 0.7 / len(heads))
            rgb = require("matplotlib.colors", "viz").to_rgb(theme.accent)
            if len(weights) > 1:
                rgb = _head_colour(head, len(weights), theme)
            for query, key in np.argwhere(weights[head] >= _LEAST):
                segments.append([(0, query + shift), (_WIDE, key + shift)])
                colours.append((*rgb, min(1.0, float(weights[head, query, key]))))
        collections = require("matplotlib.collections", "viz")
        axis.add_collection(collections.LineCollection(segments, colors=colours, linewidths=1.4))
        for tokens, x, align in ((queries, -0.08, "right"), (keys, _WIDE + 0.08, "left")):
            for row, token in enumerate(tokens):
                _text(axis, x, row, token, theme, ha=align)


def draw_model(weights: Mapping[int, np.ndarray], path: Path, title: str = "", theme: Theme = LIGHT) -> None:
    """Draws the weights of all heads as small heat maps: a row for each layer, a column for each head.

    Args:
        weights: `(H, T, S)` of each layer, by its index.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        theme: Colours.
    """
    most = max(len(each) for each in weights.values())
    size = 0.62
    with canvas(path, size * most + 0.9, size * len(weights) + 0.75, theme) as figure:
        axis = _plain_axis(figure, title)
        axis.set(xlim=(-0.9, most + 0.05), ylim=(len(weights) + 0.05, -0.4))
        axis.set_aspect("equal")
        colours = _colours(theme)
        for row, (index, layer) in enumerate(weights.items()):
            _text(axis, -0.08, row + 0.5, f"Layer {index}", theme, ha="right", size=8, color=theme.faint)
            for head, matrix in enumerate(layer):
                extent = (head + 0.04, head + 0.96, row + 0.96, row + 0.04)
                axis.imshow(
                    matrix,
                    extent=extent,
                    cmap=colours,
                    vmin=0,
                    vmax=max(0.3, float(matrix.max())),
                    interpolation="nearest",
                )
        for head in range(most):
            _text(axis, head + 0.5, -0.15, str(head), theme, ha="center", size=8, color=theme.faint)
        axis.set(xlim=(-0.9, most + 0.05), ylim=(len(weights) + 0.05, -0.4))


def draw_neurons(
    states: Any,
    head: int,
    token: int,
    queries: Sequence[str],
    keys: Sequence[str],
    path: Path,
    title: str = "",
    theme: Theme = LIGHT,
) -> None:
    """Draws the query of a token, and for each key: the key, the products, the score and its softmax.

    Args:
        states: Queries, keys and settings, an `interpretability.attention.QueryKeys`.
        head: Index of the head.
        token: Index of the query.
        queries: Tokens that attend, `T`.
        keys: Tokens that are attended to, `S`.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        theme: Colours.

    Reference: Vig 2019, arXiv:1906.05714, section 3.3.
    """
    query, vectors = states.queries[head, token], states.keys[head]
    scores, shares = states.scores()[head, token], states.weights()[head, token]
    hidden = scores < -1e4
    left, wide, gap = _text_width(keys), 2.4, 0.15
    with canvas(path, left + 2 * wide + gap + 2.2, _ROW * (len(keys) + 3.2) + 0.5, theme) as figure:
        axis = _plain_axis(figure, title)
        second = wide + gap
        end = second + wide
        for name, rows, x in (("k", vectors, 0.0), ("q × k", vectors * query, second)):
            limit = max(float(np.abs(rows[~hidden]).max(initial=0)), 1e-6)
            _strips(axis, np.where(hidden[:, None], rows * 0.25, rows), x, wide, 2, limit, theme)
            _text(axis, x, 1.2, name, theme, size=8, color=theme.faint)
        _strips(axis, query[None], 0.0, wide, 0, max(float(np.abs(query).max()), 1e-6), theme)
        _text(axis, -0.08, 0.5, queries[token], theme, ha="right", weight="bold")
        _text(axis, second, 0.5, "q, the query", theme, size=8, color=theme.faint)
        _text(axis, end + 0.75, 1.2, "score", theme, ha="right", size=8, color=theme.faint)
        _text(axis, end + 0.95, 1.2, "softmax", theme, size=8, color=theme.faint)
        patches = require("matplotlib.patches", "viz")
        for row, word in enumerate(keys):
            ink = theme.faint if hidden[row] else theme.ink
            _text(axis, -0.08, row + 2.5, word, theme, ha="right", color=ink)
            _text(
                axis,
                end + 0.75,
                row + 2.5,
                "hidden" if hidden[row] else f"{scores[row]:.2f}",
                theme,
                ha="right",
                color=ink,
            )
            axis.add_patch(
                patches.Rectangle(
                    (end + 0.95, row + 2.15), 0.7 * shares[row], 0.7, color=theme.accent, alpha=0.45, linewidth=0
                )
            )
            _text(axis, end + 0.97, row + 2.5, f"{shares[row]:.2f}", theme)
        axis.set(xlim=(-left, end + 1.9), ylim=(len(keys) + 2.2, -0.2))
        axis.set_aspect("auto")


def draw_matrix(
    matrix: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    path: Path,
    title: str = "",
    theme: Theme = LIGHT,
) -> None:
    """Draws a matrix of weights as a heat map.

    Args:
        matrix: `(T, S)`.
        rows: Tokens of the rows.
        columns: Tokens of the columns.
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        theme: Colours.
    """
    side = 0.24
    width = max(side * len(columns) + _text_width(rows) + 0.4, 3.6)
    with canvas(path, width, side * len(rows) + _text_width(columns) + 0.6, theme) as figure:
        axis = figure.subplots()
        axis.imshow(matrix, cmap=_colours(theme), vmin=0, interpolation="nearest")
        axis.set_xticks(range(len(columns)), [_plain(token) for token in columns], rotation=90, fontsize=9)
        axis.set_yticks(range(len(rows)), [_plain(token) for token in rows], fontsize=9)
        axis.xaxis.tick_top()
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
            label.set_parse_math(False)
        if title:
            figure.suptitle(title, fontsize=10, parse_math=False)


def draw_statistics(
    values: Sequence[np.ndarray],
    layers: Sequence[int],
    title: str,
    note: str,
    percent: bool,
    path: Path,
    theme: Theme = LIGHT,
) -> None:
    """Draws a figure of each head as a table, the stronger the tint the larger the figure.

    Args:
        values: The figure of each head, `(H,)` for each layer.
        layers: Indices of the layers.
        title: Title of the figure.
        note: What the figure means.
        percent: Whether the numbers are shown as percent.
        path: Output file, ending in `.png` or `.svg`.
        theme: Colours.
    """
    most = max(map(len, values))
    table = np.full((len(values), most), np.nan)
    for row, each in enumerate(values):
        table[row, : len(each)] = each
    with canvas(path, max(0.5 * most + 1.2, 5.0), 0.32 * len(values) + 1.1, theme) as figure:
        axis = figure.subplots()
        low, high = float(np.nanmin(table)), float(np.nanmax(table))
        axis.imshow(table, cmap=_colours(theme), vmin=low, vmax=low + 1.7 * max(high - low, 1e-6), aspect="auto")
        for (row, head), value in np.ndenumerate(table):
            if not np.isnan(value):
                text = f"{100 * value:.0f}" if percent else f"{value:.2f}" if high < 10 else f"{value:.1f}"
                _text(axis, head, row, text, theme, ha="center", size=8)
        axis.set_xticks(range(most), [str(head) for head in range(most)], fontsize=8)
        axis.set_yticks(range(len(layers)), [f"Layer {index}" for index in layers], fontsize=8)
        axis.set_xlabel("head", fontsize=8)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        figure.suptitle(title, fontsize=10, parse_math=False)
        axis.set_title(note, fontsize=7.5, color=theme.faint)


def _plain_axis(figure: Figure, title: str) -> Axes:
    axis = figure.subplots()
    axis.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10, parse_math=False)
    return axis


def _text(axis: Axes, x: float, y: float, text: str, theme: Theme, size: float = 9, **style: Any) -> None:
    axis.text(
        x, y, _plain(text), fontsize=size, va="center_baseline", parse_math=False, **{"color": theme.ink, **style}
    )


def _plain(token: str) -> str:
    """Returns a token that fits beside others."""
    return token if len(token) <= 24 else f"{token[:23]}…"


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def _text_width(tokens: Sequence[str]) -> float:
    """Returns the width of the longest token in inches, at 9 points."""
    return 0.085 * max((len(_plain(token)) for token in tokens), default=0) + 0.3


def _colours(theme: Theme) -> Any:
    """Returns the colours of a heat map, from the background to the accent."""
    colours = require("matplotlib.colors", "viz").LinearSegmentedColormap
    return colours.from_list("attention", [theme.background, theme.accent])


def _strips(axis: Axes, rows: np.ndarray, x: float, width: float, y: float, limit: float, theme: Theme) -> None:
    """Draws rows of numbers as cells: blue for positive and orange for negative ones."""
    colours = require("matplotlib.colors", "viz").LinearSegmentedColormap
    diverging = colours.from_list("neurons", [theme.second, theme.background, theme.accent])
    for index, row in enumerate(rows):
        extent = (x, x + width, y + index + 0.88, y + index + 0.12)
        axis.imshow(
            row[None], extent=extent, cmap=diverging, vmin=-limit, vmax=limit, interpolation="nearest", aspect="auto"
        )
