"""Attention weights of a Keras model, with the queries and keys that they follow from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import (
    AttentionCall,
    HeadAttentionCall,
    LayerArguments,
    LayerCache,
    Outputs,
    Primitives,
    Tensor,
    lowering,
    unpacked,
)
from kerasformer.models import PretrainedModel, attention_outputs
from kerasformer.tools.interpretability.attention import LayerAttention, QueryKeys

TOLERANCE = 1e-4
"""Largest difference between the weights of a layer and those that its queries and keys give; beyond it, the scores
have other parts, and the queries and keys alone would mislead."""


@dataclass
class _Call:
    """A call of attention: tensors `(B, G, T, D)` where `G` groups of heads share keys, and its settings."""

    query: Tensor
    key: Tensor
    bias: Tensor | None
    scale: float
    softcap: float | None
    group_size: int


@dataclass
class _Layer:
    """The calls of attention within a layer, in order: to its own text, then to the encoded text."""

    calls: list[_Call] = field(default_factory=list)


class _Recorder(Primitives):
    """Plain primitives that record the queries and keys of each layer of a stack."""

    def __init__(self) -> None:
        self.layers: list[_Layer] = []
        self._group_size = 1

    def layer(self, layer: keras.layers.Layer, x: Tensor, arguments: LayerArguments) -> Tensor | Outputs:
        """Applies a layer and records what its attention reads."""
        self.layers.append(_Layer())
        return super().layer(layer, x, arguments)

    def multi_head_attention(self, call: AttentionCall) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        self._group_size = call.spec.group_size
        return super().multi_head_attention(call)

    def attention(self, call: HeadAttentionCall) -> tuple[Tensor, Tensor | None]:
        if self.layers:
            self.layers[-1].calls.append(
                _Call(call.query, call.key, call.bias, call.scale, call.softcap, self._group_size)
            )
        return super().attention(call)


def record(model: PretrainedModel, inputs: Mapping[str, np.ndarray]) -> dict[str, list[LayerAttention]]:
    """Runs a model on one text and returns its attention.

    Args:
        model: The model.
        inputs: Its inputs, int32 `(1, T)`.

    Returns:
        The layers that have weights, by `"encoder"`, `"decoder"` and `"cross"`.

    Raises:
        CapacityError: the text is too long for the model.
        InputError: the model has no attention weights.
    """
    recorder = _Recorder()
    try:
        with lowering(recorder):
            outputs: Any = unpacked(model(dict(inputs), training=False, return_attention=True))
    except TypeError as error:
        if "return_attention" not in str(error):
            raise
        raise InputError(
            "This model has no attention weights. Expected: a model with attention. "
            f"Received: {model.config.model_type}"
        ) from error
    weights = {kind: outputs.get(name, ()) for kind, name in attention_outputs(model).items()}
    # Layers run in this order; those of a decoder attend to its own text, then to the encoded one.
    counts = [len(layers) for kind, layers in weights.items() if kind != "cross"]
    recorded = recorder.layers if len(recorder.layers) == sum(counts) else []
    calls = {"encoder": recorded[: counts[0]], "decoder": recorded[-counts[-1] :], "cross": recorded[-counts[-1] :]}
    return {kind: _layers(layers, calls[kind], -1 if kind == "cross" else 0) for kind, layers in weights.items()}


def _layers(weights: Sequence[Tensor | None], recorded: Sequence[_Layer], call: int) -> list[LayerAttention]:
    """Returns the layers with weights; `call` is the index of the call of attention in each of them."""
    layers = []
    for index, tensor in enumerate(weights):
        if tensor is None:
            continue
        array = _array(tensor)[0]
        calls = recorded[index].calls if recorded else []
        layers.append(LayerAttention(index, array, _states(calls[call], array) if calls else None))
    return layers


def _states(call: _Call, weights: np.ndarray) -> QueryKeys | None:
    """Returns queries and keys of each head, if the weights follow from them."""
    heads, length, keys = weights.shape
    query, key = (_array(tensor)[0] for tensor in (call.query, call.key))
    if (
        key.shape[0] * call.group_size != heads
        or query.size != heads * length * query.shape[-1]
        or key.shape[1] != keys
    ):
        return None  # such as a window that is computed by blocks
    query = query.reshape(heads, length, -1)
    bias = None if call.bias is None else _bias(_array(call.bias)[0], heads, length, keys)
    states = QueryKeys(query, np.repeat(key, call.group_size, axis=0), float(call.scale), call.softcap, bias)
    return states if np.abs(states.weights() - weights).max() <= TOLERANCE else None


def _bias(bias: np.ndarray, heads: int, length: int, keys: int) -> np.ndarray:
    """Returns a bias of grouped or single heads as `(1 or H, T, S)`."""
    if bias.shape[1] in (1, length):
        each = 1 if bias.shape[0] == 1 else heads
        return np.broadcast_to(bias, (each, length, keys)).copy()
    # The queries of the heads of a group follow each other; a bias that all heads share is repeated for each of them.
    separate = bias.reshape(bias.shape[0], -1, length, bias.shape[-1])
    if bias.shape[0] == 1:
        return np.broadcast_to(separate[0, :1], (1, length, keys)).copy()
    return np.broadcast_to(separate.reshape(-1, length, bias.shape[-1]), (heads, length, keys)).copy()


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = ops.convert_to_numpy(tensor).astype("float32")
    return array
