"""The nodes that stand for each primitive in an ONNX file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kerasformer.export.onnx_markers import Marker, OnnxLowering
from kerasformer.export.onnx_weights import WeightStore
from kerasformer.export.recipes import Recipe, Storage

CONTRIB_DOMAIN = "com.microsoft"

_ZERO_POINT = 128.0


class NodeWriter:
    """Writes primitives as nodes of the standard operators, in the patterns that ONNX Runtime fuses.

    Only 8-bit products need an operator of ONNX Runtime's own, `MatMulNBits`. The standard way (DynamicQuantizeLinear,
    MatMulInteger) has one activation scale for all rows, so that padding and neighbours in a batch change answers and
    one large value spoils the rest (three to seven times the error in GPT-2's shapes), and its sums overflow on x86
    processors without VNNI. MatMulNBits has a scale for every block of every row, and is as fast for one token.

    A profile with other operators overrides single methods.

    Args:
        store: Takes note of the weights that are used.
        recipe: How matrices are stored.
    """

    lowering: type[OnnxLowering] = OnnxLowering
    """What marks the primitives for this writer."""

    def __init__(self, store: WeightStore, recipe: Recipe) -> None:
        self.store = store
        self.recipe = recipe
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._output = ""

    def merge(self, graph: onnx.GraphProto, markers: list[Marker]) -> None:
        """Joins markers whose work one operator does, before any is written; the standard has none that does."""

    def write(self, marker: Marker, inputs: Mapping[str, str], outputs: Sequence[str]) -> None:
        """Appends the nodes of one primitive.

        Args:
            marker: The primitive.
            inputs: Names of its tensors.
            outputs: Names that the results must have; `""` for one that nobody needs.
        """
        self._output = outputs[0]
        getattr(self, marker.kind)(marker, inputs, *outputs)

    def linear(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """`x @ kernel + bias`."""
        kernel, bias = marker.weights["kernel"], marker.weights.get("bias")
        biases = [] if bias is None else [bias]
        self.product(inputs["x"], [kernel], biases, marker.rank, marker.settings["transposed"], output)

    def product(
        self,
        x: str,
        kernels: Sequence[str],
        biases: Sequence[str],
        rank: int,
        output_first: bool = False,
        output: str | None = None,
    ) -> str:
        """`x @ kernel + bias` in the storage of the recipe, for one kernel or for several side by side.

        Args:
            x: `(..., K)`.
            kernels: Variables `(K, N)`, or `(N, K)` if `output_first`, whose outputs follow each other in the result.
            biases: A variable `(N,)` for each kernel, or none at all.
            rank: Axes of `x`.
            output_first: How the kernels lie in Keras.
            output: Name that the result must have.

        Returns:
            The name of the result, `(..., sum of N)`.
        """
        storages = {self._storage(kernel) for kernel in kernels}
        if len(storages) > 1:  # a recipe with exceptions
            pairs = zip(kernels, biases or [None] * len(kernels), strict=True)
            parts = [self.product(x, [k], [] if b is None else [b], rank, output_first) for k, b in pairs]
            return self.node("Concat", parts, output, axis=-1)
        bias = self.store.joined(biases) if biases else None
        if storages == {"int8"}:
            return self._product_in_8_bits(x, kernels, bias, output_first, output)
        if output_first:
            return self._product_by_rows(x, kernels, bias, rank, output)
        kernel = self.store.joined(kernels)
        if bias is None:
            return self.node("MatMul", [x, kernel], output)
        return self.node("Add", [self.node("MatMul", [x, kernel]), bias], output)

    def _storage(self, weight: str, table: bool = False) -> Storage:
        variable = self.store.variables[weight]
        return self.recipe.storage(variable.path, variable.shape, table)

    def _product_in_8_bits(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        blocks = self.store.blocks(kernels, output_first)
        rows, columns = blocks.size
        inputs = [x, blocks.data, blocks.scale] + ([] if bias is None else ["", "", bias])
        # accuracy_level 4: activations in 8 bits too, a scale per block.
        settings = {"N": rows, "K": columns, "bits": 8, "block_size": blocks.block, "accuracy_level": 4}
        return self.node("MatMulNBits", inputs, output, domain=CONTRIB_DOMAIN, **settings)

    def _product_by_rows(self, x: str, kernels: Sequence[str], bias: str | None, rank: int, output: str | None) -> str:
        """With an output-first matrix, which an embedding may share. Gemm reads it as it lies; MatMul would not."""
        size, width = self.store.size(kernels, output_first=True)
        flat = x if rank == 2 else self.node("Reshape", [x, self.integers(-1, width)])
        inputs = [flat, self.store.joined(kernels, axis=0)] + ([] if bias is None else [bias])
        if rank == 2:
            return self.node("Gemm", inputs, output, transB=1)
        y = self.node("Gemm", inputs, transB=1)
        shape = self.node("Concat", [self.node("Shape", [x], end=-1), self.integers(size)], axis=0)
        return self.node("Reshape", [y, shape], output)

    def embedding(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Rows of a table."""
        ids, table = inputs["ids"], marker.weights["table"]
        if self._storage(table, table=True) != "int8":
            self.node("Gather", [self.store.plain(table), ids], output, axis=0)
            return
        blocks = self.store.blocks([table], output_first=True)
        padded = -(-blocks.size[1] // blocks.block) * blocks.block
        values = self.node("Cast", [self.node("Gather", [blocks.data, ids], axis=0)], to=TensorProto.FLOAT)
        values = self.node("Sub", [values, self.number(_ZERO_POINT)])
        scales = self.node("Gather", [blocks.scale, ids], axis=0)
        rows = self.node("Mul", [values, self.node("Unsqueeze", [scales, self.integers(-1)])])
        shape = self.integers(*[0] * marker.rank, padded)
        if padded == blocks.size[1]:
            self.node("Reshape", [rows, shape], output)
        else:
            rows = self.node("Reshape", [rows, shape])
            self.node("Slice", [rows, self.integers(0), self.integers(blocks.size[1]), self.integers(-1)], output)

    def layer_norm(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """One operator since opset 17."""
        weights = [self.store.plain(marker.weights[role]) for role in ("scale", "bias") if role in marker.weights]
        self.node("LayerNormalization", [inputs["x"], *weights], output, axis=-1, epsilon=marker.settings["epsilon"])

    def rms_norm(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """The pattern of ONNX Runtime's SimplifiedLayerNormalization; a standard operator comes with opset 23."""
        x = inputs["x"]
        mean = self.node("ReduceMean", [self.node("Pow", [x, self.number(2.0)])], axes=[-1], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(marker.settings["epsilon"])])])
        scale = self.store.plain(marker.weights["scale"])
        self.node("Mul", [self.node("Div", [x, root]), scale], output)

    def gelu(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """The patterns of ONNX Runtime's FastGelu and Gelu; a standard operator comes with opset 20."""
        x = inputs["x"]
        if marker.settings["approximate"]:
            cubic = self.node("Mul", [self.node("Pow", [x, self.number(3.0)]), self.number(0.044715)])
            inner = self.node("Mul", [self.node("Add", [x, cubic]), self.number(math.sqrt(2 / math.pi))])
            wave = self.node("Add", [self.node("Tanh", [inner]), self.number(1.0)])
            self.node("Mul", [self.node("Mul", [x, self.number(0.5)]), wave], output)
        else:
            wave = self.node("Erf", [self.node("Div", [x, self.number(math.sqrt(2))])])
            product = self.node("Mul", [x, self.node("Add", [wave, self.number(1.0)])])
            self.node("Mul", [product, self.number(0.5)], output)

    def attention(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Scores, softmax, average. ONNX Runtime folds the transpose and the scale into its product."""
        keys = self.node("Transpose", [inputs["key"]], perm=[0, 1, 3, 2])
        scores = self.node("MatMul", [inputs["query"], keys])
        if marker.settings["scale"] != 1.0:
            scores = self.node("Mul", [scores, self.number(marker.settings["scale"])])
        if "bias" in inputs:
            scores = self.node("Add", [scores, inputs["bias"]])
        self.node("MatMul", [self.node("Softmax", [scores], axis=-1), inputs["value"]], output)

    def node(self, operator: str, inputs: list[str], output: str | None = None, **settings: Any) -> str:
        """Appends a node; its result is named after the primitive unless a name is given."""
        name = output or f"{self._output}/{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{name}/node", **settings))
        return name

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self._constant(f"constant/{value!r}", np.array(value, dtype="float32"))

    def integers(self, *values: int) -> str:
        """An int64 vector."""
        return self._constant("constant/" + "_".join(map(str, values)), np.array(values, dtype="int64"))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(value, name)
        return name
