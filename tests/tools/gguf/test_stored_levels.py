"""Exports keep the levels of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import kerasformer as kf
from kerasformer.errors import ExportError
from kerasformer.export import export
from kerasformer.export.quantization.stored_levels import found_levels
from tests.tools.gguf.writing import vocabulary, write

# Bits and length of the blocks, whether they have offsets, and where the float16 scales are in a block of K-quants.
KINDS = {
    "Q4_0": (4, 32, False), "Q4_1": (4, 32, True), "Q5_0": (8, 32, False), "Q5_1": (8, 32, True),
    "Q8_0": (8, 32, False), "Q2_K": (4, 16, True, 80, 82), "Q3_K": (4, 16, False, 108), "Q4_K": (4, 32, True, 0, 2),
    "Q5_K": (8, 32, True, 0, 2), "Q6_K": (8, 16, False, 208), "IQ4_NL": (8, 32, False, 0), "IQ4_XS": (8, 32, False, 0),
}  # fmt: skip


def blocks(kind: str, shape: tuple[int, int], seed: int = 3) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """Returns the bytes of a matrix in blocks, quantized by the library or, where it cannot, random."""
    block_type = gguf.GGMLQuantizationType[kind]
    random = np.random.default_rng(seed)
    if not (scales := KINDS[kind][3:]):
        return gguf.quantize(random.standard_normal(shape).astype("float32") / 8, block_type), block_type
    elements, size = gguf.GGML_QUANT_SIZES[block_type]
    data = random.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=np.uint8)
    for start in scales:
        data[:, start : start + 2] = np.array([2e-4], "float16").view(np.uint8)
    return data.reshape(shape[0], -1), block_type


@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_found_again(kind: str) -> None:
    values = gguf.dequantize(*blocks(kind, (24, 512))).reshape(24, 512)
    kernel = found_levels(values)
    assert kernel is not None
    assert (kernel.bits, kernel.block, kernel.offsets is not None) == KINDS[kind][:3]
    assert np.abs(kernel.values() - values).max() <= 1e-6 * np.abs(values).max()


def test_floats_have_no_levels() -> None:
    values = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    assert found_levels(values) is None and found_levels(values.astype("float16").astype("float32")) is None


VALUES = {
    "context_length": 64, "block_count": 1,
    "attention.head_count": 4, "attention.head_count_kv": 4, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
KERNELS = {
    "attn_q": (1, 1), "attn_k": (1, 1), "attn_v": (1, 1), "attn_output": (1, 1), "ffn_gate": (2, 1), "ffn_up": (2, 1),
    "ffn_down": (1, 2),
}  # fmt: skip
"""Shapes as multiples of the size of hidden states."""


def model(path: Path, table: str, *kinds: str, tied: bool = True) -> Path:
    """Writes a LLaMA whose token table has one type of blocks, and whose kernels have others in turn."""
    size = 256 if any("_K" in kind for kind in kinds) else 64  # which are multiples of a block
    tensors: dict[str, Any] = {"token_embd.weight": blocks(table, (96, size))}
    if not tied:
        tensors["output.weight"] = blocks(table, (96, size), seed=4)
    norms = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    tensors |= {f"{name}.weight": np.ones(size, "float32") for name in norms}
    for index, (name, (rows, columns)) in enumerate(KERNELS.items()):
        kind, shape = kinds[index % len(kinds)], (rows * size, columns * size)
        random = np.random.default_rng(index).standard_normal(shape).astype("float32") / 8
        tensors[f"blk.0.{name}.weight"] = random if kind == "F32" else blocks(kind, shape, seed=index)
    values = {**VALUES, "embedding_length": size, "feed_forward_length": 2 * size, **vocabulary(96)}
    return write(path, "llama", values, tensors)


@pytest.mark.parametrize(
    ("kinds", "tied", "format", "profile", "rounded"),
    [
        (("Q8_0", "Q4_1", "Q8_0", "Q4_0", "Q5_1", "F32"), True, "onnx", "ort", 0),
        (("Q4_1", "Q4_0"), True, "onnx", "ort", 0),
        (("Q5_0", "Q4_1"), False, "onnx", "ort", 0),
        (("Q8_0", "Q6_K", "Q4_K", "Q2_K", "Q3_K", "Q5_K"), True, "onnx", "ort", 0),
        (("Q8_0", "Q4_0", "Q4_1"), True, "litert", None, 1),
        (("Q4_0", "Q4_0", "Q8_0", "Q5_1", "F32"), False, "litert", None, 5),
        (("Q4_0", "Q4_1", "Q4_0", "F32"), False, "onnx", "portable", 7),
    ],
    ids=str,
)
def test_a_file_keeps_its_levels(
    kinds: tuple[str, ...], tied: bool, format: str, profile: str | None, rounded: int, tmp_path: Path
) -> None:
    """Only matrices that the format cannot hold are rounded, and without these the answers are those of float32."""
    path = model(tmp_path / "model.gguf", *kinds, tied=tied)
    options: Any = {} if profile is None else {"profile": profile, "opset": 21}
    bundle = export(path, tmp_path / "out", format, capacity=32, **options)
    recipe, figures = bundle.manifest.recipe, bundle.manifest.fidelity
    assert recipe["name"] == "stored"
    assert sum(row["matrices"] for row in recipe["stored"] if not row["kept"]) == rounded
    assert sum(row["matrices"] for row in recipe["stored"]) == len(KERNELS) + 1 + (not tied)
    exact = rounded == 0 and format == "onnx"  # scales of LiteRT have eight significant bits
    assert figures["max_error"] < (1e-3 if exact else 0.05)  # 8 bits for activations: 0.02
    assert "levels in the checkpoint" in (tmp_path / "out" / "README.md").read_text()


def test_a_model_without_levels_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path / "model.gguf", "Q4_0", "Q4_0")
    loaded = kf.load(path)
    for variable in loaded.variables:
        variable.assign(np.random.default_rng(0).standard_normal(variable.shape))
    with pytest.raises(ExportError, match="not on a grid of levels"):
        loaded.export(tmp_path / "out", "onnx", "stored", capacity=32)
