"""ONNX nodes for each primitive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from kerasformer.export.formats.onnx.markers import Marker, OnnxLowering
from kerasformer.export.formats.onnx.matrix_nodes import MatrixNodes, StoragePlan
from kerasformer.export.formats.onnx.node_list import NodeList
from kerasformer.export.formats.onnx.weights import WeightStore

if TYPE_CHECKING:
    import onnx


class NodeWriter(NodeList):
    """Writer of primitives as nodes of the standard operators, in the patterns that ONNX Runtime fuses.

    A profile with other operators overrides single methods.

    Args:
        store: Collects the weights that are used.
        plan: How matrices are stored, and the opset.
    """

    lowering: type[OnnxLowering] = OnnxLowering
    """Lowering that marks the primitives for this writer."""

    matrices: type[MatrixNodes] = MatrixNodes
    """Writer of products and lookups."""

    def __init__(self, store: WeightStore, plan: StoragePlan) -> None:
        super().__init__(plan.opset)
        self.store = store
        self.in_place: list[str] = []
        """Caches among the inputs that may share a buffer with the output that continues them."""
        self._matrices = self.matrices(self, store, plan)

    def merge(self, graph: onnx.GraphProto, markers: list[Marker]) -> None:
        """Merges markers that one operator can compute, before any is written; with standard operators, none."""

    def write(self, marker: Marker, inputs: Mapping[str, str], outputs: Sequence[str]) -> None:
        """Appends the nodes of one primitive.

        Args:
            marker: The primitive.
            inputs: Names of its tensors.
            outputs: Names that the results must have; `""` for an unused result.
        """
        self.scope = outputs[0]
        if marker.kind == "gelu":
            self._matrices.mostly_positive.add(outputs[0])
        getattr(self, marker.kind)(marker, inputs, *outputs)

    def linear(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes `x @ kernel + bias`."""
        kernel, bias = marker.weights["kernel"], marker.weights.get("bias")
        biases, transposed = [] if bias is None else [bias], marker.settings["transposed"]
        if "a" not in inputs:
            self._matrices.product(inputs["x"], [kernel], biases, marker.rank, transposed, output)
            return
        product = self._matrices.product(inputs["x"], [kernel], biases, marker.rank, transposed)
        self.node("Add", [product, self.low_rank(inputs["x"], inputs["a"], inputs["b"])], output)

    def low_rank(self, x: str, a: str, b: str) -> str:
        """Writes `x @ a @ b`; products of one tensor with the same `a` are computed once."""
        return self.node("MatMul", [self._inner(x, a), b])

    def _inner(self, x: str, a: str) -> str:
        return self.once(f"{x} @ {a}", lambda: self.node("MatMul", [x, a]))

    def embedding(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes a lookup in a table."""
        self._matrices.rows(marker.weights["table"], inputs["ids"], marker.rank, output)

    def layer_norm(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes LayerNormalization, which exists since opset 17 and always has a scale."""
        weights = [self.store.plain(marker.weights[role]) for role in ("scale", "bias") if role in marker.weights]
        if "scale" not in marker.weights:
            weights = [self.vector(np.ones(marker.settings["size"]))]
        self.node("LayerNormalization", [inputs["x"], *weights], output, axis=-1, epsilon=marker.settings["epsilon"])

    def rms_norm(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes RMSNormalization since opset 23, before that the pattern that ONNX Runtime fuses into one operator."""
        x, scale, epsilon = inputs["x"], self.store.plain(marker.weights["scale"]), marker.settings["epsilon"]
        if self.opset >= 23:
            self.node("RMSNormalization", [x, scale], output, axis=-1, epsilon=epsilon)
            return
        axes, settings = self.axes(-1)
        mean = self.node("ReduceMean", [self.node("Pow", [x, self.number(2.0)]), *axes], keepdims=1, **settings)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(epsilon)])])
        self.node("Mul", [self.node("Div", [x, root]), scale], output)

    def gelu(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes Gelu since opset 20, before that the patterns that ONNX Runtime fuses into FastGelu and Gelu."""
        x = inputs["x"]
        if self.opset >= 20:
            self.node("Gelu", [x], output, approximate="tanh" if marker.settings["approximate"] else "none")
        elif marker.settings["approximate"]:
            cubic = self.node("Mul", [self.node("Pow", [x, self.number(3.0)]), self.number(0.044715)])
            inner = self.node("Mul", [self.node("Add", [x, cubic]), self.number(math.sqrt(2 / math.pi))])
            wave = self.node("Add", [self.node("Tanh", [inner]), self.number(1.0)])
            self.node("Mul", [self.node("Mul", [x, self.number(0.5)]), wave], output)
        else:
            wave = self.node("Erf", [self.node("Div", [x, self.number(math.sqrt(2))])])
            product = self.node("Mul", [x, self.node("Add", [wave, self.number(1.0)])])
            self.node("Mul", [product, self.number(0.5)], output)

    def lstm(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes LSTM, which reads and returns the entries of all rows one after the other."""
        size, weights = marker.settings["size"], marker.weights
        matrices = [self.store.gates([weights[role]]) for role in ("input_kernel", "kernel")]
        biases = self.store.gates([weights["input_bias"], weights["bias"]])
        x = self.node("Transpose", [inputs["x"]], perm=[1, 0, 2])
        states = self.node("LSTM", [x, *matrices, biases], hidden_size=size)
        # From (T, 1, B, H), with an axis for the directions.
        states = self.node("Transpose", [states], perm=[2, 0, 1, 3])
        self.node("Reshape", [states, self.integers(0, 0, size)], output)

    def linear_recurrence(self, marker: Marker, inputs: Mapping[str, str], output: str, state: str) -> None:
        """Writes Scan, whose body reads one token: the number of tokens is any, and most often 1.

        The tensors of a token have the shapes of matrices, `(B, H, 1, K)`, `(B, H, 1, V)` and `(B, H, 1, 1)`.
        """
        rows = {
            name: self.node("Unsqueeze", [tensor, self.integers(*range(3, 5 - axes))])
            for name, tensor, axes in (
                ("query", inputs["query"], 1),
                ("key", inputs["key"], 1),
                ("value", inputs["value"], 1),
                ("decay", self.node("Exp", [inputs["decay"]]), 0),
                *([("rate", inputs["rate"], 0)] if "rate" in inputs else []),
            )
        }
        body, added = NodeList(self.opset), "value"
        body.node("Mul", ["state", "decay"], "kept")
        if "rate" in inputs:
            body.node("MatMul", ["key", "kept"], "present")
            body.node("Sub", ["value", "present"], "missing")
            added = body.node("Mul", ["missing", "rate"], "added")
        body.node("Transpose", ["key"], "column", perm=[0, 1, 3, 2])
        body.node("Mul", ["column", added], "change")
        body.node("Add", ["kept", "change"], "next")
        body.node("MatMul", ["query", "next"], "output")

        def declared(*names: str) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

        graph = helper.make_graph(body.nodes, "token", declared("state", *rows), declared("next", "output"))
        results = [state or f"{self.scope}/state", f"{self.scope}/outputs"]
        axes = {"scan_input_axes": [2] * len(rows), "scan_output_axes": [2]}
        operands = [inputs["state"], *rows.values()]
        self.nodes.append(
            helper.make_node(
                "Scan", operands, results, name=f"{self.scope}/Scan", body=graph, num_scan_inputs=len(rows), **axes
            )
        )
        self.node("Squeeze", [results[1], self.integers(3)], output)

    def attention(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes Attention since opset 23, before that scores, softmax and weighted average.

        ONNX Runtime fuses the transpose and the scale into the product. Its Attention operator is slow with soft caps,
        and rejects a bias with a single row for all queries, although the standard allows broadcasting.
        """
        settings = marker.settings
        if self.opset >= 23 and settings["softcap"] is None and not settings["same_for_queries"]:
            operands = [inputs[name] for name in ("query", "key", "value", "bias") if name in inputs]
            self.node("Attention", operands, output, scale=marker.settings["scale"])
            return
        keys = self.node("Transpose", [inputs["key"]], perm=[0, 1, 3, 2])
        scores = self.node("MatMul", [inputs["query"], keys])
        if marker.settings["scale"] != 1.0:
            scores = self.node("Mul", [scores, self.number(marker.settings["scale"])])
        if marker.settings["softcap"] is not None:
            cap = self.number(marker.settings["softcap"])
            scores = self.node("Mul", [self.node("Tanh", [self.node("Div", [scores, cap])]), cap])
        if "bias" in inputs:
            scores = self.node("Add", [scores, inputs["bias"]])
        self.node("MatMul", [self.node("Softmax", [scores], axis=-1), inputs["value"]], output)

    def rotary(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes RotaryEmbedding, with the cosine and the sine of each pair of each token, `(B, T, R / 2)`.

        The inputs have values for all entries of a head, see `Rotary.angles`. The second half of the sines, or every
        second one if interleaved, has the sign that the operator expects. All layers share the selected values.
        """
        rotary = marker.settings["rotary"]
        step = 2 if rotary.interleaved else 1
        second = 1 if rotary.interleaved else rotary.dim // 2

        def table(values: str, start: int) -> str:
            end = rotary.dim if rotary.interleaved else start + rotary.dim // 2
            bounds = [self.integers(number) for number in (start, end, -1, step)]
            pairs = self.node("Squeeze", [self.node("Slice", [values, *bounds]), self.integers(1)])
            batch = self.node("Shape", [inputs["x"]], start=0, end=1)
            return self.node("Expand", [pairs, self.node("Concat", [batch, self.integers(1, 1)], axis=0)])

        cosine, sine = inputs["cosine"], inputs["sine"]
        tables = [
            self.once(f"{cosine}/table", lambda: table(cosine, 0)),
            self.once(f"{sine}/table", lambda: table(sine, second)),
        ]
        settings = {"interleaved": int(rotary.interleaved), "rotary_embedding_dim": rotary.dim}
        self.node("RotaryEmbedding", [inputs["x"], *tables], output, **settings)
