"""A list of ONNX nodes with the small constants that they read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kerasformer.basics.arguments import Arguments

CONTRIB_DOMAIN = "com.microsoft"


class NodeList:
    """Nodes and constants of a graph under construction.

    Args:
        opset: Version of the standard operators.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.scope = ""
        self._shared: dict[str, str] = {}

    def node(self, operator: str, inputs: list[str], output: str | None = None, **settings: object) -> str:
        """Appends a node and returns the name of its result, by default composed of the scope and the operator."""
        name = output or f"{self.scope}/{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **settings))
        return name

    def once(self, key: str, write: Callable[[], str]) -> str:
        """Returns the tensor that `write` creates; it is called only once for each key."""
        if key not in self._shared:
            self._shared[key] = write()
        return self._shared[key]

    def axes(self, *axes: int) -> tuple[list[str], Arguments]:
        """Returns the axes of a reduction as inputs and attributes; they are an input since opset 18."""
        if self.opset < 18:
            return [], {"axes": list(axes)}
        return [self.integers(*axes)], {}

    def number(self, value: float) -> str:
        """Returns the name of a float32 scalar."""
        return self._constant(f"constant/{value!r}", np.array(value, dtype="float32"))

    def vector(self, values: np.ndarray) -> str:
        """Returns the name of a float32 vector, or of an array of more axes."""
        values = np.ascontiguousarray(values, "float32")
        return self._constant(f"constant/{hashlib.sha256(values.tobytes()).hexdigest()[:16]}", values)

    def zeros(self, rows: int, columns: int) -> str:
        """Returns the name of a float32 matrix of zeros."""
        return self._constant(f"constant/zeros_{rows}_{columns}", np.zeros((rows, columns), "float32"))

    def byte(self, value: int) -> str:
        """Returns the name of a uint8 scalar."""
        return self._constant(f"constant/byte_{value}", np.array(value, dtype="uint8"))

    def integers(self, *values: int) -> str:
        """Returns the name of an int64 vector."""
        return self._constant("constant/" + "_".join(map(str, values)), np.array(values, dtype="int64"))

    def integer(self, value: int) -> str:
        """Returns the name of an int64 scalar."""
        return self._constant(f"constant/integer_{value}", np.array(value, dtype="int64"))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(value, name)
        return name
