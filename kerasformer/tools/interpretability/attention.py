"""Attention weights of a model as data: where each token looks, in every layer and head.

Shape letters: `L` layers, `H` heads, `T` queries, `S` keys, `D` size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.basics.arguments import check, integer, one_of
from kerasformer.errors import InputError
from kerasformer.tools.viz.attention_names import KINDS, StackKind, view_options

if TYPE_CHECKING:
    from kerasformer.tools.viz.attention import AttentionView

SEGMENTS = ("A", "B")
MAX_DRAWN = 128
"""Largest number of tokens of a text that a picture shows."""


@dataclass(frozen=True)
class TokenRow:
    """The tokens of a text, or of a pair of texts, as a model reads them.

    Attributes:
        tokens: Readable tokens, `T` of them.
        ids: Token ids, int32 `(T,)`.
        segments: 0 for tokens of the first text of a pair and 1 for those of the second, int32 `(T,)`; a special token
            belongs to the text before it.
        separators: Whether a token separates or ends texts, such as `[SEP]` or `</s>`, `(T,)`.
        written: For the text of a decoder: the token that the model writes after each token that it reads, `T` of them;
            `None` where it is not known.
    """

    tokens: tuple[str, ...]
    ids: np.ndarray
    segments: np.ndarray
    separators: np.ndarray
    written: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_pair(self) -> bool:
        """Whether there is a second text."""
        return bool((self.segments == 1).any())


@dataclass(frozen=True)
class QueryKeys:
    """Queries and keys of a layer, from which its weights follow.

    Attributes:
        queries: `(H, T, D)` float32, after norms and rotation, if there are any.
        keys: `(H, S, D)` float32, likewise; a key that several heads share is repeated.
        scale: Factor of the products.
        softcap: Soft limit of the scores, `softcap * tanh(score / softcap)`; optional.
        bias: Added to the scores, `(1 or H, T, S)` float32; a large negative number hides a key. `None` for none.
    """

    queries: np.ndarray
    keys: np.ndarray
    scale: float
    softcap: float | None = None
    bias: np.ndarray | None = None

    def scores(self) -> np.ndarray:
        """Returns the scores `(H, T, S)` before the softmax."""
        scores = self.queries @ self.keys.transpose(0, 2, 1) * np.float32(self.scale)
        if self.softcap is not None:
            scores = np.float32(self.softcap) * np.tanh(scores / np.float32(self.softcap))
        return scores if self.bias is None else scores + self.bias

    def weights(self) -> np.ndarray:
        """Returns the attention weights `(H, T, S)`, the softmax of the scores."""
        scores = self.scores()
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return weights


@dataclass(frozen=True)
class LayerAttention:
    """Attention of a layer.

    Attributes:
        index: Index of the layer in its stack, starting at 0.
        weights: `(H, T, S)` float32; each row sums to 1.
        states: Queries and keys; `None` if the source does not give them, as a bundle, or if the scores are not their
            products alone.
    """

    index: int
    weights: np.ndarray
    states: QueryKeys | None = None


@dataclass(frozen=True)
class StackAttention:
    """Attention of all layers of an encoder, of a decoder, or of a decoder to an encoded text.

    Attributes:
        kind: `"encoder"`, `"decoder"` or `"cross"`.
        queries: The tokens that attend.
        keys: The tokens that are attended to.
        layers: The layers that have attention weights.
    """

    kind: StackKind
    queries: TokenRow
    keys: TokenRow
    layers: tuple[LayerAttention, ...]

    def layer(self, index: int) -> LayerAttention:
        """Returns a layer by its index.

        Raises:
            InputError: there is no such layer with attention.
        """
        known = {layer.index: layer for layer in self.layers}
        index = check("layer", index, integer())
        if index not in known:
            raise InputError(
                f"The model has no layer of this index with attention. Expected: layer={_span(list(known))} "
                f"({self.kind}). Received: layer={index}"
            )
        return known[index]

    def weights(self, layer: int, head: int) -> np.ndarray:
        """Returns the weights `(T, S)` of a head.

        Raises:
            InputError: there is no such layer or head.
        """
        weights = self.layer(layer).weights
        return weights[check_head(head, len(weights))]

    def between(self, layer: int, queries: str, keys: str) -> np.ndarray:
        """Returns the weights of one text of a pair for another, `(H, T', S')`.

        Args:
            layer: Index of the layer.
            queries: `"A"` or `"B"`, the text that attends.
            keys: `"A"` or `"B"`, the text that is attended to.

        Raises:
            InputError: there is no such layer, or no pair of texts.
        """
        if not (self.queries.is_pair and self.kind != "cross"):
            raise InputError(f"There is one text alone. Expected: a pair of texts. Received: {queries!r} → {keys!r}")
        texts = [SEGMENTS.index(check(n, v, one_of(*SEGMENTS))) for n, v in (("queries", queries), ("keys", keys))]
        rows, columns = (np.flatnonzero(self.queries.segments == text) for text in texts)
        return self.layer(layer).weights[:, rows[:, None], columns]

    def entropy(self) -> list[np.ndarray]:
        """Returns the entropy of the weights of each head, the mean over queries, in bits: `(H,)` for each layer."""

        def of_layer(weights: np.ndarray) -> np.ndarray:
            logarithms = np.log2(np.maximum(weights, np.finfo("float32").tiny))
            return -(weights * logarithms).sum(axis=-1).mean(axis=-1)

        return self._of_layers(of_layer)

    def distance(self) -> list[np.ndarray]:
        """Returns the mean distance between query and key, in tokens, weighted by attention: `(H,)` for each layer.

        Raises:
            InputError: queries and keys are tokens of different texts.
        """
        self.check_one_text("The distance between tokens")
        apart = np.abs(np.arange(len(self.queries))[:, None] - np.arange(len(self.keys)))
        return self._of_layers(lambda weights: (weights * apart).sum(axis=-1).mean(axis=-1))

    def within_segment(self) -> list[np.ndarray]:
        """Returns the share of attention within the text of the query: `(H,)` for each layer.

        Raises:
            InputError: there is no pair of texts.
        """
        if not (self.queries.is_pair and self.kind != "cross"):
            raise InputError(f"There is one text alone. Expected: a pair of texts. Received: kind={self.kind!r}")
        same = self.queries.segments[:, None] == self.keys.segments
        return self._of_layers(lambda weights: (weights * same).sum(axis=-1).mean(axis=-1))

    def on_separators(self) -> list[np.ndarray]:
        """Returns the share of attention on tokens such as `[SEP]`: `(H,)` for each layer (Clark et al. 2019)."""
        return self._of_layers(lambda weights: weights[..., self.keys.separators].sum(axis=-1).mean(axis=-1))

    def on_first(self) -> list[np.ndarray]:
        """Returns the share of attention on the first token: `(H,)` for each layer (Xiao et al. 2023)."""
        return self._of_layers(lambda weights: weights[..., 0].mean(axis=-1))

    def statistics(self) -> dict[str, list[np.ndarray]]:
        """Returns all figures that this attention has, by name: `(H,)` for each layer."""
        figures = {"entropy": self.entropy()}
        if self.kind != "cross":
            figures["distance"] = self.distance()
            if self.queries.is_pair:
                figures["within segment"] = self.within_segment()
        if self.keys.separators.any():
            figures["on separators"] = self.on_separators()
        return figures | {"on first token": self.on_first()}

    def rollout(self) -> np.ndarray:
        """Returns how much of each token is in the state of each token after each layer, `(L, T, T)`.

        The mean weights of the heads are mixed half and half with the identity, for the residual connection, and
        multiplied layer by layer.

        Raises:
            InputError: queries and keys are tokens of different texts, or a layer has no attention.

        Reference: Abnar and Zuidema 2020, arXiv:2005.00928, section 3.
        """
        self.check_rollout()
        state, states = np.eye(len(self.queries), dtype="float32"), []
        for layer in self.layers:
            mixed = 0.5 * layer.weights.mean(axis=0) + 0.5 * np.eye(len(self.queries), dtype="float32")
            state = mixed / mixed.sum(axis=-1, keepdims=True) @ state
            states.append(state)
        return np.stack(states)

    @property
    def has_rollout(self) -> bool:
        """Whether there is rollout: within one text, and through all layers."""
        return self.kind != "cross" and self._has_all_layers

    @property
    def _has_all_layers(self) -> bool:
        return [layer.index for layer in self.layers] == list(range(len(self.layers)))

    def check_rollout(self) -> None:
        """Refuses rollout through layers of which some have no attention.

        Raises:
            InputError: queries and keys are tokens of different texts, or a layer has no attention.
        """
        self.check_one_text("Rollout")
        if not self._has_all_layers:
            raise InputError(
                "Rollout needs the attention of every layer, since each mixes the states of the one before. Received: "
                f"layers {_span([layer.index for layer in self.layers])}"
            )

    def _of_layers(self, function: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        return [function(layer.weights) for layer in self.layers]

    def check_one_text(self, what: str) -> None:
        """Refuses attention between two texts.

        Raises:
            InputError: queries and keys are tokens of different texts.
        """
        if self.kind == "cross":
            raise InputError(
                f"{what} needs attention within one text. Expected: kind='encoder' or 'decoder'. Received: kind='cross'"
            )


@dataclass(frozen=True)
class Attention:
    """Attention of a model while it reads a text or a pair of texts; see `kf.attention`.

    Attributes:
        source: Name of the model.
        engine: What computed the weights: `"keras"`, `"litert"` or `"onnx"`.
        texts: The texts that were read, as they were passed.
        stacks: Attention of each kind that the model has, in the order encoder, decoder, cross.
        why_no_states: Why there are no queries and keys; empty if there are.
    """

    source: str
    engine: str
    texts: tuple[str, ...]
    stacks: tuple[StackAttention, ...]
    why_no_states: str = field(default="", repr=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention that the model has."""
        return tuple(stack.kind for stack in self.stacks)

    @cached_property
    def _of_kind(self) -> dict[str, StackAttention]:
        return {stack.kind: stack for stack in self.stacks}

    @property
    def encoder(self) -> StackAttention:
        """Attention of the encoder to its text.

        Raises:
            InputError: the model has none.
        """
        return self.stack("encoder")

    @property
    def decoder(self) -> StackAttention:
        """Attention of the decoder to its own text.

        Raises:
            InputError: the model has none.
        """
        return self.stack("decoder")

    @property
    def cross(self) -> StackAttention:
        """Attention of the decoder to the text of the encoder.

        Raises:
            InputError: the model has none.
        """
        return self.stack("cross")

    def stack(self, kind: str | None = None) -> StackAttention:
        """Returns the attention of a kind, the first one by default.

        Raises:
            InputError: the model has no attention of this kind.
        """
        if kind is None:
            return self.stacks[0]
        check("kind", kind, one_of(*KINDS))
        if kind not in self._of_kind:
            raise InputError(
                f"This model has no attention of this kind. Expected: {' or '.join(map(repr, self.kinds))}. "
                f"Received: kind={kind!r}"
            )
        return self._of_kind[kind]

    def heads(self, layer: int | None = None, head: int | None = None, kind: str | None = None) -> AttentionView:
        """Draws a layer: the tokens in two columns, and a line for each weight.

        Args:
            layer: Index of the layer that is shown first; the first one by default.
            head: Head that is shown first; all by default.
            kind: `"encoder"`, `"decoder"` or `"cross"`; the first one that the model has by default.

        Returns:
            A view, which notebooks show, with `save(path)` for `.html`, `.png` and `.svg`.

        Raises:
            InputError: there is no such layer, head or kind, or a text is too long to draw.
        """
        return self._view("heads", kind, self._layer(kind, layer), head)

    def model(self, kind: str | None = None) -> AttentionView:
        """Draws all heads of all layers as thumbnails; see `heads`."""
        return self._view("model", kind, None, None)

    def neurons(
        self, layer: int | None = None, head: int = 0, token: int | None = None, kind: str | None = None
    ) -> AttentionView:
        """Draws how a weight comes about: query, key, their products, the score and its softmax, for one query.

        Args:
            layer: Index of the layer; the first one by default. A page has the queries and keys of all layers, or of a
                large model and a long text those of this one.
            head: Index of the head.
            token: Index of the query, in a page the first one that is shown; by default 1, after a start token.
            kind: As for `heads`.

        Raises:
            InputError: as for `heads`; there is no such token; or the source does not give queries and keys.
        """
        stack = self.stack(kind)
        layer = self._layer(kind, layer)
        chosen = stack.layer(layer)
        if chosen.states is None:
            why = self.why_no_states or f"the scores of layer {layer} are not products of queries and keys alone"
            raise InputError(f"There are no queries and keys to draw: {why}. Views without them: heads, model")
        last = len(stack.queries) - 1
        token = min(1, last) if token is None else check("token", token, integer(0, last))
        return self._view("neurons", kind, layer, check_head(head, len(chosen.weights)), token)

    def alignment(self, layer: int | None = None, head: int | None = None) -> AttentionView:
        """Draws which tokens of the source each token of the target was written from, as a heat map.

        A row is the token that the decoder writes, with the weights that it had when it wrote it.

        Args:
            layer: Index of the layer; the last one by default.
            head: Index of the head; the mean of all by default.

        Raises:
            InputError: as for `heads`; or the model is not an encoder-decoder.
        """
        return self._view("alignment", "cross", self._layer("cross", layer, last=True), head)

    def rollout(self, layer: int | None = None, kind: str | None = None) -> AttentionView:
        """Draws how much of each token has reached each state after a layer, see `StackAttention.rollout`.

        Args:
            layer: Index of the layer; the last one by default.
            kind: As for `heads`, but not `"cross"`.

        Raises:
            InputError: as for `heads`; or a layer has no attention.
        """
        self.stack(kind).check_rollout()
        return self._view("rollout", kind, self._layer(kind, layer, last=True), None)

    def statistics(self, figure: str = "entropy", kind: str | None = None) -> AttentionView:
        """Draws a figure of each head, see `StackAttention.statistics`.

        Args:
            figure: Name of the figure.
            kind: As for `heads`.

        Raises:
            InputError: as for `heads`; or there is no such figure.
        """
        figures = list(self.stack(kind).statistics())
        check("figure", figure, one_of(*figures))
        return self._view("statistics", kind, None, None, statistic=figures.index(figure))

    def views(
        self, view: str | None = None, layer: int | None = None, head: int | None = None, kind: str | None = None
    ) -> AttentionView:
        """Returns all views of this model in one page, for notebooks and `save("page.html")`.

        Args:
            view: View that is shown first: the name of one of these methods.
            layer: As for that method.
            head: As for that method.
            kind: As for that method.

        Raises:
            InputError: as for that method; or the model has no such view.
        """
        from kerasformer.tools.viz.attention import available

        names = available(self)
        view = names[0] if view is None else check("view", view, one_of(*names))
        options = view_options(view, layer, head, kind)
        return replace(getattr(self, view)(**options), names=tuple(names))

    def _layer(self, kind: str | None, layer: int | None, last: bool = False) -> int:
        """Returns the index of a layer; by default that of the first or last one with attention."""
        return self.stack(kind).layers[-1 if last else 0].index if layer is None else layer

    @property
    def summary(self) -> str:
        """Sizes in a line, such as `encoder: 4 layers of 12 heads, 18 tokens`."""
        parts = []
        for stack in self.stacks:
            heads = sorted({len(layer.weights) for layer in stack.layers})
            tokens = f"{len(stack.queries)} tokens"
            tokens += f" to {len(stack.keys)}" if stack.kind == "cross" else ""
            parts.append(f"{stack.kind}: {len(stack.layers)} layers of {_span(heads)} heads, {tokens}")
        return "; ".join(parts)

    def _view(
        self,
        view: str,
        kind: str | None,
        layer: int | None,
        head: int | None,
        token: int | None = None,
        statistic: int = 0,
    ) -> AttentionView:
        from kerasformer.tools.viz.attention import AttentionView

        stack = self.stack(kind)
        self._check_length()
        if layer is not None:
            count = len(stack.layer(layer).weights)
            head = None if head is None else check_head(head, count)
        return AttentionView(self, (view,), view, stack.kind, layer, head, token, statistic)

    def _check_length(self) -> None:
        """Refuses to draw a text that is too long."""
        longest = max(len(text) for stack in self.stacks for text in (stack.queries, stack.keys))
        if longest > MAX_DRAWN:
            raise InputError(
                f"A picture shows at most {MAX_DRAWN} tokens of a text. Received: {longest}. Shorten the text, or read "
                "the arrays: attention.stack().layers"
            )


def check_head(head: int, count: int) -> int:
    """Returns the index of a head.

    Raises:
        InputError: there is no such head.
    """
    checked: int = check("head", head, integer(0, count - 1), advice=f"The layer has {count} heads")
    return checked


def _span(indices: Sequence[int]) -> str:
    """Returns `0 to 11`, or the indices if some are missing."""
    if len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1)):
        return f"{indices[0]} to {indices[-1]}"
    return " or ".join(map(str, indices))
