"""Names and sizes of the blocks of a model, in the words of textbooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import keras

from kerasformer.layers import (
    AttentionSpec,
    BlockSparseAttention,
    Dense,
    DisentangledAttention,
    ElementwiseAffine,
    Embedding,
    FeedForward,
    GatedDeltaNet,
    GlobalMultiHeadAttention,
    HeadNormalization,
    LayerNormalization,
    LMHead,
    Mamba2,
    MaskedLMHead,
    MultiHeadAttention,
    RecurrentLayer,
    RelativeAttention,
    RelativeEmbeddings,
    RelativePositionBias,
    RMSNormalization,
    ShortConvolution,
    SinusoidalPositions,
)

if TYPE_CHECKING:
    from kerasformer.tools.interpretability.structure import Part

Role = Literal["table", "position", "sum", "norm", "attention", "feed_forward", "mixer", "matrix", "head"]
Description = tuple[str, tuple[str, ...], Role]

_NORMS: dict[type, str] = {
    LayerNormalization: "Layer norm",
    RMSNormalization: "RMS norm",
    HeadNormalization: "Norm of each head",
    ElementwiseAffine: "Scale and shift",
}
_RECURRENT: dict[type, str] = {GatedDeltaNet: "Gated DeltaNet", Mamba2: "Mamba-2"}
_TABLES = {"tokens": "Token embeddings", "positions": "Position embeddings", "segments": "Segment embeddings"}


def description(part: Part) -> Description:
    """Returns the title, the details and the role of a part that is a layer."""
    layer = part.layer
    if isinstance(layer, MultiHeadAttention):
        return _attention(layer, part)
    if isinstance(layer, FeedForward):
        sizes = f"{layer.hidden_dim} → {layer.intermediate_dim} → {layer.hidden_dim}"
        return (
            "Feed-forward",
            (sizes, f"gated, {layer.activation}" if layer.gated else layer.activation),
            "feed_forward",
        )
    if isinstance(layer, Embedding):
        name = layer.name.removeprefix("encoder_").removeprefix("decoder_")
        title = _TABLES.get(name, f"{_words(name)} embeddings")
        return title, (f"{layer.input_dim:,} × {layer.output_dim}",), "table"
    if isinstance(layer, SinusoidalPositions):
        return "Sinusoidal positions", (f"{layer.hidden_dim} sines and cosines",), "position"
    if isinstance(layer, RelativePositionBias):
        return "Distance bias", (f"{layer.num_buckets} buckets", "added to all scores"), "position"
    if isinstance(layer, RelativeEmbeddings):
        return "Relative positions", ("read by all attention",), "position"
    if isinstance(layer, ShortConvolution):
        return "Short convolution", (f"{layer.kernel_size} tokens, two gates",), "mixer"
    if isinstance(layer, RecurrentLayer):
        heads = f"{layer.num_heads} heads, {layer.key_dim} × {layer.head_dim} each"
        title = _RECURRENT.get(type(layer), _words(type(layer).__name__))
        return title, (heads, f"after a convolution of {layer.kernel_size} tokens"), "mixer"
    if isinstance(layer, LMHead):
        details = ["tied to the token table"] if layer.tied else []
        details += [f"scores of {layer.vocab_size:,} tokens"]
        return "Output layer", (*details, *_capped(layer.softcap)), "head"
    for kind, title in _NORMS.items():
        if isinstance(layer, kind):
            return title, (), "norm"
    if isinstance(layer, MaskedLMHead):
        details = _matrices(layer) + (["tied to the token table"] if layer.tied else [])
        details += [f"scores of {layer.vocab_size:,} tokens"]
        return "Masked LM head", tuple(details), "head"
    title = _words(layer.name if isinstance(layer, Dense) else type(layer).__name__)
    title = "Output layer" if title == "Head" else title
    return title, tuple(_matrices(layer)), "matrix"  # type: ignore[arg-type]


def _attention(layer: MultiHeadAttention, part: Part) -> Description:
    """Describes attention by its `AttentionSpec` and by the keys that a token sees."""
    spec, visibility = layer.spec, part.visibility
    causal = visibility is not None and visibility.causal
    title = "Cross-attention" if part.reads_memory else "Masked self-attention" if causal else "Self-attention"
    details = [f"{spec.num_heads} heads of {spec.head_dim}"]
    if spec.group_size > 1:
        details.append(f"{spec.num_key_value_heads} key {'head' if spec.num_key_value_heads == 1 else 'heads'}")
    details += [*_positions(spec), *_capped(spec.softcap)]
    if spec.query_key_norm:
        details.append("normalized queries, keys")
    biased = visibility is not None and visibility.position_bias is not None
    if biased or isinstance(layer, RelativeAttention):
        details.append("distance bias")
    if isinstance(layer, DisentangledAttention):
        details.append("content and distance")
    if spec.window is not None:
        details.append(f"window of {spec.window:,}")
    if isinstance(layer, GlobalMultiHeadAttention):
        details.append("global tokens")
    if isinstance(layer, BlockSparseAttention) and spec.blocks is not None:
        details.append(f"sparse, blocks of {spec.blocks.size}")
    return title, tuple(details), "attention"


def _positions(spec: AttentionSpec) -> list[str]:
    rotary = spec.rotary
    if rotary is None:
        return []
    part = "" if rotary.dim == spec.head_dim else f" ({rotary.dim} of {spec.head_dim})"
    return [f"rotary positions{part}", *([] if rotary.scaling is None else [f"scaled: {rotary.scaling.kind}"])]


def _capped(softcap: float | None) -> list[str]:
    return [] if softcap is None else [f"soft cap {softcap:g}"]


def _matrices(layer: keras.layers.Layer) -> list[str]:
    """Returns the sizes of the matrices of a layer in the order of their creation."""
    dense = [part for part in layer._flatten_layers() if isinstance(part, Dense)]
    return [f"{part.kernel.shape[0]} → {part.kernel.shape[1]}" + _activation(part) for part in dense if part.built]


def _activation(layer: Dense) -> str:
    return f", {layer.activation}" if layer.activation else ""


def _words(name: str) -> str:
    """Returns a name of a class or of an attribute as words."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", name)
    words = [word if word.isupper() else word.lower() for word in spaced.split()]
    text = " ".join(words)
    return text[:1].upper() + text[1:]
