"""Nodes of products with matrices and lookups in them, for each storage type of a recipe.

Products with eight-bit matrices quantize their input separately for each row, so that padding and other rows of a batch
do not change an answer. The usual `DynamicQuantizeLinear` has a single scale for the whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from kerasformer.basics.arguments import Arguments
from kerasformer.bundle.recipes import BITS, Recipe, Storage
from kerasformer.errors import ExportError
from kerasformer.export.formats.onnx.node_list import CONTRIB_DOMAIN, NodeList
from kerasformer.export.formats.onnx.rounding import four_bit_scales
from kerasformer.export.formats.onnx.weights import Quantized, WeightStore
from kerasformer.export.quantization.calibration import Calibration, input_scale, wide_inputs
from kerasformer.export.quantization.compensation import Grid, RoundedKernel, joined, nearest

_INT4_OPSET = 21  # the first opset with four-bit types, and with a scale for each block
_SMALLEST = 1e-30  # lower bound of the range of a row, which avoids a division by zero

_WIDE_BLOCK = 32
"""Block of products whose inputs have a few large values, which make the rounding of their own block coarse."""

_GELU_ZERO = 32
"""Zero point of outputs of GELU. At 128, half of the levels would be unused."""
_GELU_RANGE = 0.1701 * (255 - _GELU_ZERO) / _GELU_ZERO
"""Smallest range of outputs of GELU with whose step the levels below the zero point reach its minimum, -0.1701."""


@dataclass(frozen=True)
class StoragePlan:
    """Settings for writing the nodes of a file.

    Attributes:
        recipe: How matrices and activations are stored.
        opset: Version of the standard operators.
        calibration: Ranges for static activations, and for the scales of the inputs of dynamic products.
        tied: Tables that the bundle's files use in both lookups and products; all files share one copy.
        incremental: Whether the file's function reads a few tokens at a time, so that its products are bound by reading
            weights and not by arithmetic.
    """

    recipe: Recipe
    opset: int
    calibration: Calibration
    tied: frozenset[str] = frozenset()
    incremental: bool = False


@dataclass(frozen=True)
class _RoundedRows:
    """A tensor `(..., K)` whose rows are quantized to uint8.

    Attributes:
        levels: Name of the levels.
        inverse_scale: Name of the number of levels for each unit of a row, `(..., 1)`.
        zero: Name of the zero point.
        middle: Name of what was subtracted from each row, `(..., 1)`; `None` for rows that are not centered.
    """

    levels: str
    inverse_scale: str
    zero: str
    middle: str | None = None


class MatrixNodes:
    """Writer of products and lookups with standard operators.

    Args:
        nodes: List that the nodes are appended to.
        store: Collects the weights that are used.
        plan: How to store them.

    Attributes:
        mostly_positive: Tensors that are never far below 0: outputs of GELU, whose minimum is -0.17.
    """

    def __init__(self, nodes: NodeList, store: WeightStore, plan: StoragePlan) -> None:
        self.nodes, self.store, self.plan = nodes, store, plan
        self.mostly_positive: set[str] = set()
        self._rounded: dict[tuple[str, ...], _RoundedRows] = {}

    def product(
        self,
        x: str,
        kernels: Sequence[str],
        biases: Sequence[str],
        rank: int,
        output_first: bool = False,
        output: str | None = None,
    ) -> str:
        """Writes `x @ kernel + bias` with the storage type of the recipe, for one or several concatenated kernels.

        Args:
            x: Name of a tensor `(..., K)`.
            kernels: Names of variables `(K, N)`, or `(N, K)` if `output_first`, concatenated along their outputs.
            biases: Name of a variable `(N,)` for each kernel, or an empty sequence.
            rank: Number of axes of `x`.
            output_first: Whether the variables have the shape `(N, K)`.
            output: Name that the result must have.

        Returns:
            The name of the result, `(..., sum of N)`.
        """
        if len({self._form(kernel) for kernel in kernels}) > 1:  # the recipe has exceptions
            pairs = zip(kernels, [[bias] for bias in biases] or [[]] * len(kernels), strict=True)
            parts = [self.product(x, [kernel], bias, rank, output_first) for kernel, bias in pairs]
            return self.nodes.node("Concat", parts, output, axis=-1)
        bias = self.store.joined(biases) if biases else None
        storage = self._storage(kernels[0])
        if storage in ("float32", "float16"):
            return self._float_product(x, kernels, bias, rank, output_first, storage, output)
        return self._integer_product(storage, x, kernels)(x, kernels, bias, output_first, output)

    def rows(self, table: str, ids: str, rank: int, output: str) -> None:
        """Writes a lookup of the rows `ids` of a table, `(..., E)`; `rank` is the number of axes of `ids`."""
        storage = self._storage(table, table=True)
        if storage == "float32":
            self.nodes.node("Gather", [self.store.plain(table), ids], output, axis=0)
        elif storage == "float16":
            # The cast follows the Gather, so that the whole table is not converted.
            rows = self.nodes.node("Gather", [self.store.joined([table], dtype="float16"), ids], axis=0)
            self.nodes.node("Cast", [rows], output, to=TensorProto.FLOAT)
        elif storage == "int4":
            raise ExportError(
                "The standard operators have no lookup in four-bit tables. Received: a recipe with tables='int4', "
                "profile='portable'. Use tables='int8', or profile='ort'"
            )
        elif table in self.plan.tied:
            self._rows_of_channels(table, ids, rank, output)
        else:
            stored = self.store.rows(table)
            rows = self._widened("Gather", [stored.data, ids], axis=0)
            scales = self.nodes.node("Gather", [stored.scale, ids], axis=0)
            self.nodes.node("Mul", [rows, self._column(scales)], output)

    def _storage(self, weight: str, table: bool = False) -> Storage:
        variable = self.store.variables[weight]
        return self.plan.recipe.storage(variable.path, variable.shape, table or weight in self.plan.tied)

    def _kept(self, weight: str) -> RoundedKernel | None:
        """Returns the levels of a quantized checkpoint that a weight keeps."""
        ranges = self.plan.calibration.get(self.store.variables[weight].path)
        kernel = None if ranges is None or self.plan.recipe.rounding != "stored" else ranges.rounded
        return kernel if kernel is not None and kernel.bits == BITS[self._storage(weight)] else None

    def _form(self, weight: str) -> tuple[object, ...]:
        """Returns what concatenated kernels must have in common."""
        kept = self._kept(weight)
        levels = () if kept is None else (kept.block, kept.offsets is None)
        return self._storage(weight), *levels

    def _integer_product(self, storage: Storage, x: str, kernels: Sequence[str]) -> Callable[..., str]:
        """Returns the method for an integer storage type."""
        if storage == "int4" or self.plan.recipe.activations == "float":
            return self._widened_product
        if self.plan.recipe.block is not None:
            raise ExportError(
                "Integer products of the standard operators have one scale for each output. Received: "
                f"block={self.plan.recipe.block}, profile='portable'. Remove block, or use "
                "profile='ort'"
            )
        static = self.rounds_whole_tensors(kernels, x in self.mostly_positive)
        return self._static_product if static else self._dynamic_product

    def rounds_whole_tensors(self, kernels: Sequence[str], mostly_positive: bool) -> bool:
        """Returns whether the input of a product is rounded with one scale, which was measured beforehand.

        With `"fast"` activations, outputs of GELU have a scale for each row nevertheless: a few of them are so large
        that all others would be lost.

        Args:
            kernels: Names of the product's variables.
            mostly_positive: Whether the input is the output of a GELU.
        """
        if self.plan.recipe.activations != "fast":
            return self.plan.recipe.activations == "static"
        measured = all(self.store.variables[kernel].path in self.plan.calibration for kernel in kernels)
        in_whole_texts = not self.plan.incremental and not self.plan.tied.intersection(kernels)
        return measured and in_whole_texts and not mostly_positive

    def _float_product(
        self,
        x: str,
        kernels: Sequence[str],
        bias: str | None,
        rank: int,
        output_first: bool,
        storage: Storage,
        output: str | None,
    ) -> str:
        kernel = self.store.joined(kernels, 0 if output_first else -1, storage)
        if storage == "float16":
            kernel = self.nodes.node("Cast", [kernel], to=TensorProto.FLOAT)
        if not output_first:
            return self._with_bias("MatMul", [x, kernel], bias, output)
        # An embedding may share the matrix. Gemm can read it output-first; MatMul cannot.
        size, width = self.store.size(kernels, output_first)
        flat = x if rank == 2 else self.nodes.node("Reshape", [x, self.nodes.integers(-1, width)])
        inputs = [flat, kernel] + ([] if bias is None else [bias])
        if rank == 2:
            return self.nodes.node("Gemm", inputs, output, transB=1)
        y = self.nodes.node("Gemm", inputs, transB=1)
        leading = self.nodes.node("Shape", [x], end=-1)
        shape = self.nodes.node("Concat", [leading, self.nodes.integers(size)], axis=0)
        return self.nodes.node("Reshape", [y, shape], output)

    def _dynamic_product(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        def products(rows: _RoundedRows, stored: Quantized) -> str:
            sums = self._widened("MatMulInteger", [rows.levels, stored.data, rows.zero])
            return self.nodes.node("Mul", [sums, stored.scale])

        return self._product_of_rounded(x, kernels, bias, output_first, output, products)

    def _product_of_rounded(
        self,
        x: str,
        kernels: Sequence[str],
        bias: str | None,
        output_first: bool,
        output: str | None,
        products: Callable[[_RoundedRows, Quantized], str],
    ) -> str:
        """Writes a product of which `products` writes the part in integers, without the scales of the rows.

        Rows with scaled channels are also centered if a bias is added anyway: what the middle contributes is then added
        together with it.
        """
        scale = None if output_first else self._input_scale(kernels)
        rows = self._rounded_rows(x, scale, centered=scale is not None and bias is not None)
        y = products(rows, self.store.channels(kernels, output_first, True, scale))
        if rows.middle is None or bias is None:
            return self._with_bias("Div", [y, rows.inverse_scale], bias, output)
        one = self.nodes.node("Pow", [rows.middle, self.nodes.number(0.0)])
        factors = self.nodes.node("Concat", [rows.middle, one], axis=-1)
        vectors = self.store.sums_and_bias(kernels, output_first, True, scale, bias)
        added = self.nodes.node("MatMul", [factors, vectors])
        return self.nodes.node("Add", [self.nodes.node("Div", [y, rows.inverse_scale]), added], output)

    def _input_scale(self, kernels: Sequence[str]) -> np.ndarray | None:
        """Returns the scales of the channels of a product's input."""
        variables = [self.store.variables[kernel] for kernel in kernels]
        shapes = {variable.path: variable.shape for variable in variables}
        return input_scale(self.plan.calibration, self.plan.recipe, shapes)

    def _rounded_rows(self, x: str, input_scale: np.ndarray | None, centered: bool) -> _RoundedRows:
        """Quantizes rows to uint8, once for all products of a tensor.

        Args:
            x: Name of a tensor `(..., K)`.
            input_scale: Factors of the channels `(K,)`, applied first; optional.
            centered: Whether to subtract the middle of each row's range, which halves the step of a one-sided row.
        """
        n, x = self.nodes, self._scaled(x, input_scale)
        key = (x, "centered") if centered else (x,)
        if key not in self._rounded:
            middle, zero = None, 128
            if centered:
                high, low = self._extreme("ReduceMax", x), self._extreme("ReduceMin", x)
                middle = n.node("Mul", [n.node("Add", [high, low]), n.number(0.5)])
                x = n.node("Sub", [x, middle])
                largest, levels = self._positive(n.node("Sub", [high, low])), 254.0
            elif x in self.mostly_positive:
                zero = _GELU_ZERO
                largest = n.node("Max", [self._extreme("ReduceMax", x), n.number(_GELU_RANGE)])
                levels = float(255 - zero)
            else:
                largest, levels = self._positive(self._extreme("ReduceMax", n.node("Abs", [x]))), 127.0
            # The product is divided by this number, so that the scale itself is never computed.
            inverse_scale = n.node("Div", [n.number(levels), largest])
            rounded = n.node("QuantizeLinear", [n.node("Mul", [x, inverse_scale]), n.number(1.0), n.byte(zero)])
            self._rounded[key] = _RoundedRows(rounded, inverse_scale, n.byte(zero), middle)
        return self._rounded[key]

    def _scaled(self, x: str, input_scale: np.ndarray | None) -> str:
        """Multiplies a tensor by the factors of its channels, once for all products."""
        if input_scale is None:
            return x
        factors = self.nodes.vector(input_scale)
        return self.nodes.once(f"{x}*{factors}", lambda: self.nodes.node("Mul", [x, factors]))

    def _positive(self, largest: str) -> str:
        """Returns the ranges of the rows, without zeros."""
        return self.nodes.node("Max", [largest, self.nodes.number(_SMALLEST)])

    def _extreme(self, operator: str, x: str) -> str:
        """Returns the largest or smallest value of each row, `(..., 1)`."""
        axes, settings = self.nodes.axes(-1)
        values = self.nodes.node(operator, [x, *axes], keepdims=1, **settings)
        if not self.plan.incremental:
            return values
        # For a tensor without rows, as the encoder's states are after the first step, ReduceMax of ONNX Runtime keeps
        # the width.
        n = self.nodes
        return n.node("Slice", [values, n.integers(0), n.integers(1), n.integers(-1)])

    def _static_product(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        """Writes a product of dequantized tensors, which runtimes with integer arithmetic recognize."""
        input_scale = None if output_first else self._input_scale(kernels)
        scale, zero = self._input_quantization(kernels, input_scale)
        quantization = [self.nodes.number(scale), self.nodes.byte(zero)]
        levels = self.nodes.node("QuantizeLinear", [self._scaled(x, input_scale), *quantization])
        stored = self.store.channels(kernels, output_first, True, input_scale)
        kernel = self.nodes.node("DequantizeLinear", [stored.data, stored.scale], axis=1)
        factors = [self.nodes.node("DequantizeLinear", [levels, *quantization]), kernel]
        return self._with_bias("MatMul", factors, bias, output)

    def _input_quantization(self, kernels: Sequence[str], input_scale: np.ndarray | None) -> tuple[float, int]:
        """Returns the scale and the zero point of the input of some kernels, whose channels may have scales."""
        paths = [self.store.variables[kernel].path for kernel in kernels]
        missing = [path for path in paths if path not in self.plan.calibration]
        if missing:
            raise ExportError(
                "A recipe with static activations needs the activation ranges of every product. Received: none for "
                f"{', '.join(missing)}. Calibrate on texts for which the model uses all of its products"
            )
        ranges = [self.plan.calibration[path] for path in paths]
        if input_scale is not None:
            largest = float(
                max((measured.channels * input_scale).max() for measured in ranges if measured.channels is not None)
            )
            return max(largest, _SMALLEST) / 127, 128
        low = min(0.0, *(measured.input[0] for measured in ranges))
        high = max(0.0, *(measured.input[1] for measured in ranges))
        scale = max(high - low, _SMALLEST) / 255
        return scale, round(-low / scale)

    def _widened_product(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        """Writes a float32 product with a dequantized matrix, which the runtime may fuse into one operator."""
        if self._storage(kernels[0]) == "int8" and self.plan.recipe.block is None:
            stored = self.store.channels(kernels, output_first, pairs=False)
            kernel = self.nodes.node("DequantizeLinear", [stored.data, stored.scale], axis=1)
        else:
            stored = self._columns(kernels, output_first)
            quantized = [stored.data, stored.scale]
            blocks: Arguments = {"axis": 1} if stored.block is None else {"axis": 0, "block_size": stored.block}
            kernel = self.nodes.node("DequantizeLinear", quantized, **blocks)
        return self._with_bias("MatMul", [x, kernel], bias, output)

    def _columns(self, kernels: Sequence[str], output_first: bool) -> Quantized:
        if self.plan.opset < _INT4_OPSET:
            raise ExportError(
                f"With standard operators, block scales and four-bit weights need opset {_INT4_OPSET}. "
                f"Received: opset={self.plan.opset!r}. Use opset={_INT4_OPSET!r} or "
                "profile='ort'"
            )
        bits = 8 if self._storage(kernels[0]) == "int8" else 4
        channelwise = bits == 4 and self.plan.recipe.channelwise
        block = None if channelwise else self.block(kernels, output_first)
        return self.store.columns(kernels, output_first, bits, block, self._rounded_kernels(kernels))

    def _rounded_kernels(self, kernels: Sequence[str]) -> Callable[[np.ndarray], RoundedKernel] | None:
        """Returns the function that rounds concatenated kernels; `None` to round each block by itself."""
        bits = BITS[self._storage(kernels[0])]
        paths = [self.store.variables[kernel].path for kernel in kernels]
        rounded = [self.plan.calibration[path].rounded for path in paths if path in self.plan.calibration]
        parts = [kernel for kernel in rounded if kernel is not None and kernel.bits == bits]
        if len(parts) == len(kernels):
            return lambda _: joined(parts)
        if self.plan.recipe.channelwise and bits == 4:
            return lambda matrix: nearest(matrix, Grid(None, four_bit_scales))
        return None

    def in_blocks(self, kernel: str) -> bool:
        """Returns whether a kernel in integers has a scale for each block of a row."""
        return self._storage(kernel) == "int4" or self.plan.recipe.block is not None

    def block(self, kernels: Sequence[str], output_first: bool) -> int:
        """Returns the recipe's block size, or the power of two up to 128 that pads a matrix least, the largest of them.

        ONNX Runtime multiplies long blocks faster.
        """
        if (kept := self._kept(kernels[0])) is not None:
            return kept.block
        if self.plan.recipe.block is not None:
            return self.plan.recipe.block
        if self._wide(kernels):
            return _WIDE_BLOCK
        _, columns = self.store.size(kernels, output_first)
        return min((128, 64, 32, 16), key=lambda block: (-(-columns // block) * block, -block))

    def _wide(self, kernels: Sequence[str]) -> bool:
        """Returns whether the inputs of kernels of eight bits need more than eight bits for a whole row."""
        paths = [self.store.variables[kernel].path for kernel in kernels if self._storage(kernel) == "int8"]
        return bool(wide_inputs(self.plan.calibration, self.plan.recipe, paths))

    def _rows_of_channels(self, table: str, ids: str, rank: int, output: str) -> None:
        """Writes a lookup in a table that is stored for products, as `(E, V)`."""
        stored = self.store.channels([table], True, pairs=self.plan.recipe.activations != "float")
        columns = self._widened("Gather", [stored.data, ids], axis=1)
        rows = self.nodes.node("Transpose", [columns], perm=[*range(1, rank + 1), 0])
        scales = self.nodes.node("Gather", [stored.scale, ids], axis=0)
        self.nodes.node("Mul", [rows, self._column(scales)], output)

    def _widened(self, operator: str, inputs: list[str], **settings: Any) -> str:
        return self.nodes.node("Cast", [self.nodes.node(operator, inputs, **settings)], to=TensorProto.FLOAT)

    def _column(self, scales: str) -> str:
        return self.nodes.node("Unsqueeze", [scales, self.nodes.integers(-1)])

    def _with_bias(self, operator: str, inputs: list[str], bias: str | None, output: str | None) -> str:
        if bias is None:
            return self.nodes.node(operator, inputs, output)
        return self.nodes.node("Add", [self.nodes.node(operator, inputs), bias], output)


class OrtMatrixNodes(MatrixNodes):
    """Writer of products and lookups with ONNX Runtime's own operators where they are smaller or faster.

    With eight bits, `MatMulNBits` is used for functions that read a few tokens at a time and for tied tables. It has a
    scale for every block of weights and of activations, and is bound only by memory bandwidth. Functions that read
    whole texts are bound by arithmetic, for which `MatMulIntegerToFloat` is faster.
    """

    def rows(self, table: str, ids: str, rank: int, output: str) -> None:
        """See `MatrixNodes.rows`."""
        storage = self._storage(table, table=True)
        in_blocks = self._kept(table) is not None or (table in self.plan.tied and self._in_blocks)
        if storage == "int4" or (storage == "int8" and in_blocks):
            self._rows_of_blocks([table], ids, rank, output)
        else:
            super().rows(table, ids, rank, output)

    @property
    def _in_blocks(self) -> bool:
        """Whether tied tables are stored in blocks."""
        return self.plan.recipe.activations in ("dynamic", "fast") or self.plan.recipe.block is not None

    def _integer_product(self, storage: Storage, x: str, kernels: Sequence[str]) -> Callable[..., str]:
        if storage == "int4" or self.plan.recipe.block is not None or self._kept(kernels[0]) is not None:
            return self._product_of_blocks
        return super()._integer_product(storage, x, kernels)

    def in_blocks(self, kernel: str) -> bool:
        """See `MatrixNodes.in_blocks`."""
        dynamic = self.plan.recipe.activations in ("dynamic", "fast")
        return super().in_blocks(kernel) or (dynamic and (self.plan.incremental or kernel in self.plan.tied))

    def _dynamic_product(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        if any(map(self.in_blocks, kernels)):
            return self._product_of_blocks(x, kernels, bias, output_first, output)

        def products(rows: _RoundedRows, stored: Quantized) -> str:
            inputs = [rows.levels, stored.data, self.nodes.number(1.0), stored.scale, rows.zero]
            return self.nodes.node("MatMulIntegerToFloat", inputs, domain=CONTRIB_DOMAIN)

        return self._product_of_rounded(x, kernels, bias, output_first, output, products)

    def adds_bias(self, kernel: str, mostly_positive: bool) -> bool:
        """Returns whether the operator of a product also adds its bias; see `rounds_whole_tensors`."""
        integers = self._storage(kernel) == "int8" and self.plan.recipe.block is None
        return integers and self.rounds_whole_tensors([kernel], mostly_positive)

    def _positive(self, largest: str) -> str:
        """Returns the ranges unchanged, which saves an operator for each product.

        Values of a row whose range is 0 become NaN, which ONNX Runtime rounds to some level. The product is then
        divided by infinity, so that it is 0.
        """
        return largest

    def _static_product(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        input_scale = None if output_first else self._input_scale(kernels)
        value, zero = self._input_quantization(kernels, input_scale)
        scale, byte, x = self.nodes.number(value), self.nodes.byte(zero), self._scaled(x, input_scale)
        levels = self.nodes.once(f"{x}/{scale}/{byte}", lambda: self.nodes.node("QuantizeLinear", [x, scale, byte]))
        stored = self.store.channels(kernels, output_first, True, input_scale)
        inputs = [levels, stored.data, scale, stored.scale, byte] + ([] if bias is None else ["", bias])
        return self.nodes.node("MatMulIntegerToFloat", inputs, output, domain=CONTRIB_DOMAIN)

    def _product_of_blocks(
        self, x: str, kernels: Sequence[str], bias: str | None, output_first: bool, output: str | None
    ) -> str:
        stored = self._blocks(kernels, output_first)
        rows, columns = stored.size
        bits = 8 if self._storage(kernels[0]) == "int8" else 4
        # Accuracy level 4: activations are quantized to 8 bits, with a scale for every block of every row.
        settings: Arguments = {"N": rows, "K": columns, "bits": bits, "block_size": stored.block, "accuracy_level": 4}
        settings["domain"] = CONTRIB_DOMAIN
        block, offsets = stored.block or columns, self._offsets(kernels, stored)
        in_halves = self.plan.recipe.activations == "float" and columns % block == 0
        if not in_halves and offsets is None:
            inputs = [x, stored.data, stored.scale] + ([] if bias is None else ["", "", bias])
            return self.nodes.node("MatMulNBits", inputs, output, **settings)
        n = self.nodes
        factors = [self._halves(x, columns, block) if in_halves else x, stored.data, stored.scale]
        y = n.node("MatMulNBits", factors, **settings)
        terms = [n.node("ReduceSum", [y, n.integers(0)], keepdims=0) if in_halves else y]
        if offsets is not None:
            blocks, last = self._in_rows_of(x, columns, block), n.integers(-1)
            sums = n.once(f"{blocks}/sums", lambda: n.node("ReduceSum", [blocks, last], keepdims=0))
            terms.append(n.node("MatMul", [sums, offsets]))
        return n.node("Sum", [*terms, *([] if bias is None else [bias])], output)

    def _in_rows_of(self, x: str, columns: int, block: int) -> str:
        """Returns a tensor `(..., K)` as `(..., blocks, block)`, which is written once for all products."""
        n = self.nodes

        def write() -> str:
            shape = n.node("Concat", [n.node("Shape", [x], end=-1), n.integers(columns // block, block)], axis=0)
            return n.node("Reshape", [x, shape])

        return n.once(f"{x}/blocks/{block}", write)

    def _halves(self, x: str, columns: int, block: int) -> str:
        """Returns a tensor `(..., K)` in two halves `(2, ..., K)`, whose products together have 16 bits of its values.

        The first half are the levels to which MatMulNBits rounds each block anyway, the second one what they leave.
        Its products with activations in float32 take two times as long with four bits, and 60 times with eight.
        """
        n = self.nodes

        def write() -> str:
            blocks, (axes, options) = self._in_rows_of(x, columns, block), n.axes(-1)
            largest = n.node("ReduceMax", [n.node("Abs", [blocks]), *axes], keepdims=1, **options)
            step = n.node("Max", [n.node("Mul", [largest, n.number(1 / 127)]), n.number(_SMALLEST)])
            levels = n.node("Round", [n.node("Div", [blocks, step])])
            coarse = n.node("Mul", [levels, step])
            halves = [n.node("Unsqueeze", [y, n.integers(0)]) for y in (coarse, n.node("Sub", [blocks, coarse]))]
            shape = n.node("Concat", [n.integers(2), n.node("Shape", [x])], axis=0)
            return n.node("Reshape", [n.node("Concat", halves, axis=0), shape])

        return n.once(f"{x}/halves/{block}", write)

    def _offsets(self, kernels: Sequence[str], stored: Quantized) -> str | None:
        """Returns the offsets of blocks, `(blocks, N)`; `None` if there are none."""
        kept = [each for each in map(self._kept, kernels) if each is not None and each.offsets is not None]
        return self.store.offsets(stored, lambda: joined(kept)) if kept else None

    def _blocks(self, kernels: Sequence[str], output_first: bool) -> Quantized:
        bits = 8 if self._storage(kernels[0]) == "int8" else 4
        block = self.block(kernels, output_first)
        return self.store.blocks(kernels, output_first, bits, block, self._rounded_kernels(kernels))

    def _rows_of_blocks(self, tables: Sequence[str], ids: str, rank: int, output: str) -> None:
        stored = self._blocks(tables, True)
        n, (_, width), block = self.nodes, stored.size, stored.block or 1
        padded = -(-width // block) * block
        values = self._widened("Gather", [stored.data, ids], axis=0)
        if stored.bits == 4:
            high = n.node("Floor", [n.node("Mul", [values, n.number(1 / 16)])])
            low = n.node("Sub", [values, n.node("Mul", [high, n.number(16.0)])])
            halves = [n.node("Unsqueeze", [half, n.integers(-1)]) for half in (low, high)]
            joined = n.node("Concat", halves, axis=-1)
            values = n.node("Reshape", [joined, n.integers(*[0] * (rank + 1), block)])
        values = n.node("Sub", [values, n.number(float(1 << (stored.bits - 1)))])
        scales = n.node("Gather", [stored.scale, ids], axis=0)
        rows = n.node("Mul", [values, self._column(scales)])
        if (offsets := self._offsets(tables, stored)) is not None:
            columns = n.node("Gather", [offsets, ids], axis=1)
            added = n.node("Transpose", [columns], perm=[*range(1, rank + 1), 0])
            rows = n.node("Add", [rows, self._column(added)])
        shape = n.integers(*[0] * rank, padded)
        if padded == width:
            n.node("Reshape", [rows, shape], output)
        else:
            n.node(
                "Slice", [n.node("Reshape", [rows, shape]), n.integers(0), n.integers(width), n.integers(-1)], output
            )
