"""Marker operators, which represent primitives while TensorFlow traces a function.

tf2onnx keeps a marker as one node with its inputs, and `nodes.py` replaces it by the nodes that ONNX Runtime runs best.
A marker refers to its weights by name; they are not among its inputs, so that no weight has to be identified in the
converted graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import ExportError
from kerasformer.layers.attention_call import HeadAttentionCall
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.primitives import LowRankProduct, LSTMWeights, Primitives, Weight, needs_weights
from kerasformer.layers.tensor import Shape, Tensor

if TYPE_CHECKING:
    import tf2onnx

MARKER_DOMAIN = "kerasformer"
_PREFIX = "kerasformer_marker_"


@dataclass(frozen=True)
class Marker:
    """One primitive of the traced function.

    Attributes:
        kind: Name of the primitive, and of the method that writes its nodes.
        inputs: Names of the primitive's tensor arguments, in the order of the node's inputs.
        weights: Names of its variables, by the primitive's argument.
        settings: Its other arguments.
        rank: Number of axes of the first input.
    """

    kind: str
    inputs: tuple[str, ...]
    weights: dict[str, str]
    settings: Arguments = field(default_factory=dict)
    rank: int = 0


class OnnxLowering(Primitives):
    """Lowering that replaces primitives by markers.

    Args:
        names: Names of the exported variables by their `id`. A primitive with any other weight is not replaced.
        opset: Version of the standard operators.
    """

    def __init__(self, names: Mapping[int, str], opset: int) -> None:
        self.names, self.opset = names, opset
        self.markers: list[Marker] = []

    def linear(self, x: Tensor, kernel: Weight, bias: Weight | None = None, *, transposed: bool = False) -> Tensor:
        """Marks `x @ kernel + bias`."""
        weights = self._named(kernel=kernel, bias=bias)
        if weights is None:
            return super().linear(x, kernel, bias, transposed=transposed)
        shape = (*x.shape[:-1], kernel.shape[0 if transposed else 1])
        return self._mark("linear", {"x": x}, shape, weights, transposed=transposed)

    def adapted_linear(self, x: Tensor, kernel: Weight, bias: Weight | None, low_rank: LowRankProduct) -> Tensor:
        """Marks a product with a low-rank product, whose matrices are inputs of the function and whose scale is 1."""
        weights = self._named(kernel=kernel, bias=bias)
        if weights is None:
            return super().adapted_linear(x, kernel, bias, low_rank)
        matrices = {name: tf.convert_to_tensor(getattr(low_rank, name)) for name in ("a", "b")}
        shape = (*x.shape[:-1], kernel.shape[1])
        settings = {"transposed": False, "low_rank": int(matrices["a"].shape[1])}
        return self._mark("linear", {"x": x, **matrices}, shape, weights, **settings)

    def embedding(self, table: Weight, ids: Tensor) -> Tensor:
        """Marks a lookup."""
        weights = self._named(table=table)
        if weights is None:
            return super().embedding(table, ids)
        return self._mark("embedding", {"ids": ids}, (*ids.shape, table.shape[1]), weights)

    def layer_norm(self, x: Tensor, scale: Weight | None, bias: Weight | None, epsilon: float) -> Tensor:
        """Marks a layer norm."""
        weights = self._named(scale=scale, bias=bias)
        if weights is None:
            return super().layer_norm(x, scale, bias, epsilon)
        return self._mark("layer_norm", {"x": x}, x.shape, weights, epsilon=float(epsilon), size=x.shape[-1])

    def rms_norm(self, x: Tensor, scale: Weight, epsilon: float) -> Tensor:
        """Marks an RMS norm."""
        weights = self._named(scale=scale)
        if weights is None:
            return super().rms_norm(x, scale, epsilon)
        return self._mark("rms_norm", {"x": x}, x.shape, weights, epsilon=float(epsilon))

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        """Marks a GELU."""
        return self._mark("gelu", {"x": x}, x.shape, {}, approximate=approximate)

    def lstm(self, x: Tensor, weights: LSTMWeights) -> Tensor:
        """Marks a long short-term memory."""
        named = self._named(**weights._asdict())
        if named is None:
            return super().lstm(x, weights)
        size = int(weights.kernel.shape[0])
        return self._mark("lstm", {"x": x}, (*x.shape[:-1], size), named, size=size)

    def linear_recurrence(
        self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Marks a linear recurrence over tokens."""
        inputs = {"query": query, "key": key, "value": value, "decay": decay, "state": state}
        inputs |= {} if rate is None else {"rate": rate}
        sizes = {"heads": int(state.shape[1]), "key": int(state.shape[2]), "value": int(state.shape[3])}
        output, state = self._mark_all("linear_recurrence", inputs, [value.shape, state.shape], {}, **sizes)
        return output, state

    def attention(self, call: HeadAttentionCall) -> tuple[Tensor, Tensor | None]:
        """Marks an attention, whose weights are not returned unless they are needed."""
        if needs_weights():
            return super().attention(call)
        inputs = {"query": call.query, "key": call.key, "value": call.value}
        inputs |= {} if call.bias is None else {"bias": call.bias}
        settings = {"scale": float(call.scale), "softcap": call.softcap, "same_for_queries": one_row(call.bias)}
        return self._mark("attention", inputs, call.query.shape, {}, **settings), None

    def rotary(self, x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
        """Marks a rotation if there is an operator for it, since opset 23."""
        if self.opset < 23:
            return super().rotary(x, cosine, sine, rotary)
        return self._mark("rotary", {"x": x, "cosine": cosine, "sine": sine}, x.shape, {}, rotary=rotary)

    def _named(self, **variables: Weight | None) -> dict[str, str] | None:
        """Returns the names of the variables that are not `None`, or `None` if any of them is not exported."""
        names = {role: self.names.get(id(variable)) for role, variable in variables.items() if variable is not None}
        exported = {role: name for role, name in names.items() if name is not None}
        return exported if len(exported) == len(names) else None

    def _mark(
        self, kind: str, inputs: dict[str, Tensor], shape: Shape, weights: dict[str, str], **settings: Any
    ) -> Tensor:
        return self._mark_all(kind, inputs, [shape], weights, **settings)[0]

    def _mark_all(
        self,
        kind: str,
        inputs: dict[str, Tensor],
        shapes: Sequence[Shape],
        weights: dict[str, str],
        dtype: tf.DType | None = None,
        **settings: object,
    ) -> list[Tensor]:
        """Adds a marker with one result for each shape; all except the first may have a data type of their own."""
        tensors = list(inputs.values())
        other = {tensor.dtype.name for tensor in tensors if tensor.dtype.is_floating} - {"float32"}
        if other:
            raise ExportError(
                f"ONNX files are computed in float32. Received: a model that computes in {', '.join(sorted(other))}. "
                "Load it with dtype='float32'"
            )
        name = f"{_PREFIX}{len(self.markers)}"
        self.markers.append(Marker(kind, tuple(inputs), weights, settings, len(tensors[0].shape)))
        types = [tf.float32, *[dtype or tf.float32] * (len(shapes) - 1)]
        # Not `tf.numpy_function`, which keeps a Python function for each marker until the process ends.
        results = tf.raw_ops.PyFunc(input=tensors, token=MARKER_DOMAIN, Tout=types, name=name)
        # Unlike `set_shape`, an operator is visible to tf2onnx, some of whose conversions need the rank.
        return [tf.ensure_shape(result, shape) for result, shape in zip(results, shapes, strict=True)]


def one_row(bias: Tensor | None) -> bool:
    """Returns whether a bias `(B, H, T, S)` has a single row for all queries."""
    return bias is not None and bias.shape[2] == 1


def _keep(ctx: tf2onnx.graph.Graph, node: tf2onnx.graph.Node, name: str, args: list[object]) -> tf2onnx.graph.Node:
    """Makes tf2onnx keep a marker as a node with its number as the operator type."""
    label = name.rsplit("/", 1)[-1]
    if label.startswith(_PREFIX):
        node.domain = MARKER_DOMAIN
        node.type = label.removeprefix(_PREFIX)
    return node


HANDLERS: dict[str, tuple[Callable[..., tf2onnx.graph.Node], list[object]]] = {"PyFunc": (_keep, [])}
"""Handlers of tf2onnx for markers."""
