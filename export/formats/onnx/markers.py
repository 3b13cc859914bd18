"""Primitives on their way to ONNX: while TensorFlow traces, each is one marker operator.

tf2onnx carries a marker through as one node with its inputs intact, and `nodes.py` replaces it
by the nodes that ONNX Runtime runs best. A marker knows its weights by name: they are no inputs of it, so nothing of
them has to be found again in the converted graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from kerasformer.errors import ExportError
from kerasformer.layers.attention_spec import Rotary
from kerasformer.layers.primitives import Primitives
from kerasformer.layers.tensor import Tensor

MARKER_DOMAIN = "kerasformer"
_PREFIX = "kerasformer_marker_"
_OPERATORS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")


@dataclass(frozen=True)
class Marker:
    """One primitive of the traced function.

    Attributes:
        kind: Name of the primitive, and of the method that writes it.
        inputs: Which of the primitive's tensors there are, in the order of the node's inputs.
        weights: Names of its variables, by the primitive's own names for them.
        settings: Its plain arguments.
        rank: Axes of the first input.
    """

    kind: str
    inputs: tuple[str, ...]
    weights: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    rank: int = 0


class OnnxLowering(Primitives):
    """Puts markers in the place of primitives.

    Args:
        names: Names of the exported variables by their `id`. A primitive with other weights stays as Keras has it.
        opset: Version of the standard operators.
    """

    def __init__(self, names: Mapping[int, str], opset: int) -> None:
        self.names, self.opset = names, opset
        self.markers: list[Marker] = []

    def linear(self, x: Tensor, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Tensor:
        """Marks `x @ kernel + bias`."""
        weights = self._named(kernel=kernel, bias=bias)
        if weights is None:
            return super().linear(x, kernel, bias, transposed=transposed)
        shape = (*x.shape[:-1], kernel.shape[0 if transposed else 1])
        return self._mark("linear", {"x": x}, shape, weights, transposed=transposed)

    def embedding(self, table: Any, ids: Tensor) -> Tensor:
        """Marks a look-up."""
        weights = self._named(table=table)
        if weights is None:
            return super().embedding(table, ids)
        return self._mark("embedding", {"ids": ids}, (*ids.shape, table.shape[1]), weights)

    def layer_norm(self, x: Tensor, scale: Any, bias: Any, epsilon: float) -> Tensor:
        """Marks a layer norm."""
        weights = self._named(scale=scale, bias=bias)
        if weights is None:
            return super().layer_norm(x, scale, bias, epsilon)
        return self._mark("layer_norm", {"x": x}, x.shape, weights, epsilon=float(epsilon))

    def rms_norm(self, x: Tensor, scale: Any, epsilon: float) -> Tensor:
        """Marks a norm by the root mean square."""
        weights = self._named(scale=scale)
        if weights is None:
            return super().rms_norm(x, scale, epsilon)
        return self._mark("rms_norm", {"x": x}, x.shape, weights, epsilon=float(epsilon))

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        """Marks a GELU."""
        return self._mark("gelu", {"x": x}, x.shape, {}, approximate=approximate)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
        softcap: float | None = None,
        dropout: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Marks an attention, which keeps its weights to itself."""
        inputs = {"query": query, "key": key, "value": value} | ({} if bias is None else {"bias": bias})
        settings = {"scale": float(scale), "softcap": softcap, "same_for_queries": one_row(bias)}
        return self._mark("attention", inputs, query.shape, {}, **settings), None

    def rotary(self, x: Tensor, cosine: Tensor, sine: Tensor, rotary: Rotary) -> Tensor:
        """Marks a rotation where there is an operator for it, since opset 23."""
        if self.opset < 23:
            return super().rotary(x, cosine, sine, rotary)
        return self._mark("rotary", {"x": x, "cosine": cosine, "sine": sine}, x.shape, {}, rotary=rotary)

    def _named(self, **variables: Any) -> dict[str, str] | None:
        """Names of the variables that are given; `None` if one of them is not exported."""
        given = {role: self.names.get(id(variable)) for role, variable in variables.items() if variable is not None}
        known = {role: name for role, name in given.items() if name is not None}
        return known if len(known) == len(given) else None

    def _mark(self, kind: str, inputs: dict[str, Tensor], shape: Any, weights: dict[str, str], **settings: Any) -> Any:
        """A marker with one result."""
        return self._mark_all(kind, inputs, [shape], weights, **settings)[0]

    def _mark_all(
        self, kind: str, inputs: dict[str, Tensor], shapes: Sequence[Any], weights: dict[str, str], **settings: Any
    ) -> list[Any]:
        """A marker with a result of each shape."""
        tensors = list(inputs.values())
        other = {tensor.dtype.name for tensor in tensors if tensor.dtype.is_floating} - {"float32"}
        if other:
            raise ExportError(
                f"ONNX files are computed in float32. Received: a model that computes in {', '.join(sorted(other))}. "
                "Load it with dtype='float32'"
            )
        name = f"{_PREFIX}{len(self.markers)}"
        self.markers.append(Marker(kind, tuple(inputs), weights, settings, len(tensors[0].shape)))
        results = tf.numpy_function(_never_run, tensors, [tf.float32] * len(shapes), name=name)
        # An operator, unlike `set_shape`, tells tf2onnx too; some of its conversions need to know the rank.
        return [tf.ensure_shape(result, shape) for result, shape in zip(results, shapes, strict=True)]


def one_row(bias: Tensor | None) -> bool:
    """Whether a bias `(B, H, T, S)` has one row for all queries."""
    return bias is not None and bias.shape[2] == 1


def _never_run(*tensors: np.ndarray) -> np.ndarray:
    raise RuntimeError("a marker was run, and it only stands for a primitive while a function is traced")


def _keep(ctx: Any, node: Any, name: str, args: Any) -> Any:
    """Lets tf2onnx pass a marker on under its number."""
    label = name.rsplit("/", 1)[-1]
    if label.startswith(_PREFIX):
        node.domain = MARKER_DOMAIN
        node.type = label.removeprefix(_PREFIX)
    return node


HANDLERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {operator: (_keep, []) for operator in _OPERATORS}
"""What tf2onnx shall do with markers."""
