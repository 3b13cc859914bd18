"""Layers with their PyTorch twins. Sizes are all different, so that a wrong axis is detected.

Embeddings, heads of tokens and layers of single architectures are compared with `transformers` in tests/core/zoo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from torch import nn
from transformers.models.cohere.modeling_cohere import CohereLayerNorm

from kerasformer import layers
from tests.core.layers import composites, twins
from tests.core.layers.parity import Arrays, Case, integers, numbers

B, T, S, E, F, H = 3, 5, 7, 12, 20, 3

x = numbers(B, T, E)
real = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], "int32")
memory = numbers(B, S, E, seed=1)
memory_real = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]], "int32")

padding = real[:, None, None, :] > 0
causal = np.tril(np.ones((T, T), bool))[None, None]
# Padding on the left of a causal mask would attend to nothing, for which PyTorch returns NaN; here it sees itself.
combined = (padding & causal) | np.eye(T, dtype=bool)
per_head = (numbers(B, H, T, T) > 0) | np.eye(T, dtype=bool)

TRANSFORMER_NAMES = {
    r"inner\.": "",
    r"self_attn\.": "attention.",
    r"multihead_attn\.": "cross_attention.",
    r"out_proj": "output",
    r"linear1": "feed_forward.intermediate",
    r"linear2": "feed_forward.output",
    r"norm1": "attention_norm",
    r"layers\.(\d)": r"layer_\1",
}
ENCODER_NAMES = {**TRANSFORMER_NAMES, r"(?<!\w)norm2": "feed_forward_norm", r"^norm\.": "final_norm."}
DECODER_NAMES = {
    **TRANSFORMER_NAMES,
    r"(?<!\w)norm2": "cross_attention_norm",
    r"norm3": "feed_forward_norm",
    r"^norm\.": "final_norm.",
    r"^": "decoder.",
}


def encoder_layer(**options: Any) -> Callable[[], keras.layers.Layer]:
    """Returns a function that creates an encoder layer."""

    def make() -> keras.layers.Layer:
        return layers.EncoderLayer(
            layers.MultiHeadAttention(H, E, name="attention"),
            layers.FeedForward(E, F, name="feed_forward"),
            **{"name": "layer", **options},
        )

    return make


def decoder_layer(**options: Any) -> Callable[[], keras.layers.Layer]:
    """Returns a function that creates a decoder layer with cross attention."""

    def make() -> keras.layers.Layer:
        return layers.DecoderLayer(
            layers.MultiHeadAttention(H, E, name="attention"),
            layers.FeedForward(E, F, "relu", name="feed_forward"),
            layers.MultiHeadAttention(H, E, name="cross_attention"),
            **{"name": "decoder", **options},
        )

    return make


def encoder() -> keras.layers.Layer:
    """Creates a stack of two layers that normalize their inputs, and a final norm."""
    stack = [encoder_layer(order="pre_norm", name=f"layer_{i}")() for i in range(2)]
    return layers.Encoder(stack, layers.LayerNormalization(name="final_norm"))


def decoder() -> keras.layers.Layer:
    """Creates a stack of two layers that normalize their inputs, and a final norm."""
    stack = [decoder_layer(order="pre_norm", name=f"layer_{i}")() for i in range(2)]
    return composites.MaskedDecoder(layers.Decoder(stack, layers.LayerNormalization(name="final_norm"), name="decoder"))


def torch_layer(kind: str, norm_first: bool = False) -> nn.Module:
    """Creates an encoder or decoder layer of PyTorch."""
    activation = "gelu" if kind == "Encoder" else "relu"
    layer = getattr(nn, f"Transformer{kind}Layer")
    return layer(E, H, F, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first)


def attention_case(name: str, inputs: Arrays, **twin: Any) -> Case:
    """Returns a case that compares with `nn.MultiheadAttention`."""
    bias = twin.get("bias", True)
    return Case(
        f"attention {name}",
        lambda: layers.MultiHeadAttention(H, E, use_bias=bias),
        lambda: twins.TorchAttention(E, H, **twin),
        inputs,
        {"inner\\.": "", "out_proj": "output"},
    )


def grouped_case(name: str, *arguments: Any, inputs: Arrays | None = None, **options: Any) -> Case:
    """Returns a case for a number of heads, of key and value heads, and a head size."""
    heads, groups, head_dim = arguments
    biases = options.get("use_bias", True), options.get("output_bias", options.get("use_bias", True))
    return Case(
        f"attention {name}",
        lambda: layers.MultiHeadAttention(heads, E, head_dim, groups, **options),
        lambda: twins.GroupedAttention(E, heads, groups, head_dim, biases, options.get("scale")),
        inputs or {"query": x, "attention_mask": combined},
    )


def feed_forward_case(
    name: str, activation: str, torch_activation: nn.Module, gated: bool = False, bias: bool = True
) -> Case:
    """Returns a case that compares with linear layers and a PyTorch activation."""
    return Case(
        f"feed-forward {name}",
        lambda: layers.FeedForward(E, F, activation, gated, bias),
        lambda: twins.TorchFeedForward(E, F, torch_activation, gated, bias),
        {"x": x},
        {r"inner\.": ""},
    )


CORE = [
    Case("dense", lambda: layers.Dense(F), lambda: twins.OneInput(nn.Linear(E, F)), {"x": x}, {"inner\\.": ""}),
    Case(
        "dense without bias, activated",
        lambda: layers.Dense(F, use_bias=False, activation="gelu"),
        lambda: twins.OneInput(nn.Sequential(nn.Linear(E, F, bias=False), nn.GELU())),
        {"x": x},
        {"inner\\.0\\.": ""},
    ),
    Case(
        "embedding",
        lambda: layers.Embedding(11, E),
        lambda: twins.OneInput(nn.Embedding(11, E), "ids"),
        {"ids": integers(11, B, T)},
        {"inner\\.": ""},
    ),
    Case(
        "layer norm",
        lambda: layers.LayerNormalization(1e-5),
        lambda: twins.OneInput(nn.LayerNorm(E, eps=1e-5)),
        {"x": 3.0 + x},
        {"inner\\.": ""},
    ),
    Case(
        "layer norm, large epsilon",
        lambda: layers.LayerNormalization(0.5),
        lambda: twins.OneInput(nn.LayerNorm(E, eps=0.5)),
        {"x": x},
        {"inner\\.": ""},
    ),
    Case(
        "rms norm",
        lambda: layers.RMSNormalization(0.1),
        lambda: twins.OneInput(nn.RMSNorm(E, eps=0.1)),
        {"x": 3.0 + x},
        {"inner\\.": ""},
    ),
    Case(
        "norm of heads",
        lambda: layers.HeadNormalization(0.1),
        lambda: twins.OneInput(CohereLayerNorm((H, 4), eps=0.1)),
        {"x": 3.0 + numbers(B, T, H, 4)},
        {"inner\\.": ""},
    ),
]

ATTENTION = [
    Case(
        "one head",
        lambda: layers.AttentionHead(4),
        lambda: twins.TorchHead(E, 4),
        {"x": x, "attention_mask": np.broadcast_to(combined[:, 0], (B, T, T))},
    ),
    # The batch size is the length, so that a mask (1, T, T) that is misread as padding does not raise an error.
    Case(
        "one head, one mask for all rows",
        lambda: layers.AttentionHead(4),
        lambda: twins.TorchHead(E, 4),
        {"x": numbers(T, T, E), "attention_mask": causal[0]},
    ),
    attention_case("self", {"query": x}),
    attention_case("without bias", {"query": x}, bias=False),
    attention_case("padding mask", {"query": x, "attention_mask": padding}),
    attention_case("causal mask", {"query": x, "attention_mask": causal}),
    attention_case("both masks", {"query": x, "attention_mask": combined}),
    attention_case("a mask for each head", {"query": x, "attention_mask": per_head}),
    attention_case("float bias", {"query": x, "bias": numbers(1, H, T, T)}),
    attention_case("cross", {"query": x, "key_value": memory}),
    attention_case(
        "cross to another size, padding mask",
        {"query": x, "key_value": numbers(B, S, 10), "attention_mask": memory_real[:, None, None, :] > 0},
        key_value_dim=10,
    ),
    attention_case(
        "values from another tensor",
        {"query": x, "key_value": numbers(B, S, 10), "value": numbers(B, S, 8)},
        key_value_dim=10,
        value_dim=8,
    ),
    grouped_case("different head size", 3, 3, 5),
    grouped_case("grouped heads", 6, 2, 4),
    grouped_case("one key and value head", 3, 1, 4),
    grouped_case("different scale, no bias", 3, 3, 4, scale=1.0, use_bias=False),
    grouped_case("bias in the output only", 3, 3, 4, use_bias=False, output_bias=True),
]

FEED_FORWARD = [
    feed_forward_case("gelu", "gelu", nn.GELU()),
    feed_forward_case("relu without bias", "relu", nn.ReLU(), bias=False),
    feed_forward_case("GEGLU", "gelu_new", nn.GELU("tanh"), gated=True, bias=False),
    feed_forward_case("SwiGLU", "silu", nn.SiLU(), gated=True),
]


HEADS = [
    Case(
        "classification head",
        lambda: layers.ClassificationHead(4),
        lambda: twins.OneInput(nn.Linear(E, 4)),
        {"x": numbers(B, E)},
        {"inner": "output"},
    ),
    Case(
        "classification head with a hidden layer",
        lambda: layers.ClassificationHead(4, hidden_dim=F, activation="relu", use_bias=False),
        lambda: twins.OneInput(nn.Sequential(nn.Linear(E, F), nn.ReLU(), nn.Linear(F, 4, bias=False))),
        {"x": x},
        {"inner\\.0": "dense", "inner\\.2": "output"},
    ),
]

TRANSFORMER = [
    Case(
        "encoder layer",
        encoder_layer(),
        lambda: twins.TorchEncoder(torch_layer("Encoder"), H),
        {"x": x, "attention_mask": padding},
        ENCODER_NAMES,
    ),
    Case(
        "encoder",
        encoder,
        lambda: twins.TorchEncoder(
            nn.TransformerEncoder(torch_layer("Encoder", True), 2, nn.LayerNorm(E), enable_nested_tensor=False), H
        ),
        {"x": x, "attention_mask": padding},
        ENCODER_NAMES,
    ),
    Case(
        "decoder layer",
        lambda: composites.MaskedDecoder(decoder_layer()()),
        lambda: twins.TorchDecoder(torch_layer("Decoder")),
        {"x": x, "memory": memory, "memory_mask": memory_real},
        DECODER_NAMES,
    ),
    Case(
        "decoder",
        decoder,
        lambda: twins.TorchDecoder(nn.TransformerDecoder(torch_layer("Decoder", True), 2, nn.LayerNorm(E))),
        {"x": x, "memory": memory, "memory_mask": memory_real},
        DECODER_NAMES,
    ),
]

CASES = [*CORE, *ATTENTION, *FEED_FORWARD, *HEADS, *TRANSFORMER]
