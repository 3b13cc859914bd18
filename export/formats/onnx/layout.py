"""How ONNX files store matrices, as a `Layout`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from kerasformer.bundle.recipes import BITS, Recipe
from kerasformer.export.formats.onnx.convert import OPSET, WRITERS
from kerasformer.export.formats.onnx.matrix_nodes import MatrixNodes, StoragePlan
from kerasformer.export.formats.onnx.node_list import NodeList
from kerasformer.export.formats.onnx.rounding import PAIR, eight_bit_scales, four_bit_scales
from kerasformer.export.formats.onnx.weights import PAIRS, SCALED, StoredWeight, WeightStore
from kerasformer.export.quantization.compensation import LEVELS, Grid, RoundedKernel
from kerasformer.export.quantization.layouts import Levels
from kerasformer.export.quantization.model_matrices import ModelMatrix


class OnnxLayout:
    """Storage with a scale for each output or for each block of an output, as the profile's operators require.

    Args:
        profile: `"ort"` (the default) or `"portable"`.
        opset: Version of the standard operators.
    """

    def __init__(self, profile: str | None = None, opset: int | None = None) -> None:
        self.profile, self.opset = profile or "ort", opset or OPSET
        self.four_bit_tables = self.profile == "ort"

    def as_stored(self, matrix: ModelMatrix, recipe: Recipe) -> np.ndarray:
        """See `Layout.as_stored`."""
        storage = recipe.storage(matrix.path, matrix.rows, matrix.table)
        if storage in ("float32", "float16"):
            return matrix.value().astype(storage).astype("float32")
        if recipe.rounding == "stored" and matrix.rounded is not None:
            return matrix.rounded.values()
        data, scales = self._quantized(matrix, recipe)
        values = _widened(matrix, data, scales, BITS[storage])
        scale = matrix.input_scale(recipe)
        return values if scale is None or not data.name.endswith(SCALED) else values * scale

    def levels(self, matrix: ModelMatrix, recipe: Recipe) -> Levels | None:
        """See `Layout.levels`."""
        storage = recipe.storage(matrix.path, matrix.rows, matrix.table)
        if storage not in ("int8", "int4"):
            return None
        data, stored = self._quantized(matrix, recipe)
        bits, scales = BITS[storage], stored.produce()
        if scales.ndim == 1:
            scales, block = scales[:, None], matrix.rows[1]
        elif data.kind == TensorProto.UINT8:
            block = data.shape[2] * 8 // bits
        else:
            scales, block = scales.T, _block(matrix.rows[1], len(scales))
        return Levels(scales, block, *LEVELS[bits], PAIR if f".int8{PAIRS}" in data.name else None)

    def grid(self, matrix: ModelMatrix, recipe: Recipe) -> Grid | None:
        """See `Layout.grid`."""
        storage = recipe.storage(matrix.path, matrix.rows, matrix.table)
        unlike_kernels = matrix.table and storage == "int8" and recipe.weights != "int8"
        if storage not in ("int4", "int8") or not matrix.product or unlike_kernels:
            return None
        writer, _ = self._writer(matrix, recipe)
        block = writer.block([matrix.path], matrix.output_first)
        if storage == "int4":
            return Grid(None if recipe.channelwise else block, four_bit_scales)
        return Grid(block, eight_bit_scales, 8) if writer.in_blocks(matrix.path) else None

    def held(self, kernel: RoundedKernel, matrix: ModelMatrix) -> RoundedKernel | None:
        """See `Layout.held`: standard operators have no offsets, and ONNX Runtime rounds the inputs of their blocks."""
        return kernel if self.profile == "ort" else None

    def num_bytes(self, matrix: ModelMatrix, recipe: Recipe) -> int:
        """See `Layout.num_bytes`."""
        return sum(weight.num_bytes for weight in self._stored(matrix, recipe).values())

    def _quantized(self, matrix: ModelMatrix, recipe: Recipe) -> tuple[StoredWeight, StoredWeight]:
        """Returns the levels and the scales of a matrix that is stored as integers."""
        stored = self._stored(matrix, recipe)
        name = next(name for name in stored if f"{name}.scale" in stored)
        return stored[name], stored[f"{name}.scale"]

    def _stored(self, matrix: ModelMatrix, recipe: Recipe) -> dict[str, StoredWeight]:
        """Returns the tensors that are stored for products with the matrix and for lookups in it."""
        writer, store = self._writer(matrix, recipe)
        if matrix.product:
            writer.product("x", [matrix.path], [], rank=3, output_first=matrix.output_first)
        if matrix.table:
            writer.rows(matrix.path, "ids", 2, "rows")
        return store.stored

    def _writer(self, matrix: ModelMatrix, recipe: Recipe) -> tuple[MatrixNodes, WeightStore]:
        store = WeightStore({matrix.path: matrix.variable})
        tied = frozenset([matrix.path] if matrix.table and matrix.product else [])
        plan = StoragePlan(recipe, self.opset, matrix.calibration(), tied, matrix.incremental)
        return WRITERS[self.profile].matrices(NodeList(self.opset), store, plan), store


def _widened(matrix: ModelMatrix, data: StoredWeight, scale: StoredWeight, bits: int) -> np.ndarray:
    """Dequantizes levels with their scales to float32 `(N, K)`."""
    rows, columns = matrix.rows
    levels, scales = data.produce(), scale.produce()
    if data.kind == TensorProto.UINT8:  # (N, blocks, bytes), with the zero point in the middle of the range
        if bits == 4:
            levels = np.stack([levels & 0x0F, levels >> 4], axis=-1).reshape(*scales.shape, -1)
        values = (levels.astype("float32") - (1 << (bits - 1))) * scales[..., None]
        return values.reshape(rows, -1)[:, :columns]
    if scales.ndim == 1:
        by_rows = not matrix.product
        return levels * scales[:, None] if by_rows else (levels * scales).T
    if data.kind == TensorProto.INT4:  # (K, N), two values in a byte
        levels = np.stack([levels & 0x0F, levels >> 4], axis=-1).ravel()[: rows * columns]
        levels = (levels.astype("int8") ^ 8) - 8
    block = _block(columns, len(scales))
    return (levels.reshape(columns, rows) * np.repeat(scales, block, axis=0)[:columns]).T


def _block(width: int, count: int) -> int:
    """Returns the size of `count` blocks, a power of two, of a row."""
    return int(1 << (-(-width // count) - 1).bit_length())
