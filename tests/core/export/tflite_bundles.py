"""Functions as a TFLite file, with a manifest but without tokenizer and card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer.bundle import Manifest, ModelInfo, Signature, checksums
from kerasformer.bundle.recipes import recipe
from kerasformer.engines.litert.flatbuffer_schema import names, schema
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.graph.functions import Function


def write(
    folder: Path, model: keras.Model, functions: Sequence[Function], quantize: str, task: str = "", pad: int = 0
) -> Manifest:
    """Writes `model.tflite` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tflite(functions, model.variables, recipe(quantize), folder / "model.tflite")
    signatures = {f.name: Signature("model.tflite", f.inputs, f.outputs) for f in functions}
    info = ModelInfo(task, is_encoder_decoder="encoder_mask" in functions[-1].inputs, pad_token_id=pad)
    return Manifest("tflite", info, signatures, files=checksums(folder))


def operators(path: Path) -> dict[str, Counter[str]]:
    """Counts the operators of each signature."""
    model = schema().ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    known = names(schema().BuiltinOperator)
    codes = [known[code.builtinCode] for code in model.operatorCodes]
    return {
        signature.signatureKey.decode(): Counter(
            codes[op.opcodeIndex] for op in model.subgraphs[signature.subgraphIndex].operators
        )
        for signature in model.signatureDefs
    }


def stored_matrices(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    """Returns storage type and float32 values of each weight, dequantized without the writer's code."""
    model = schema().ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    types = names(schema().TensorType)
    found: dict[str, tuple[str, np.ndarray]] = {}
    for graph in model.subgraphs:
        inputs = {int(i) for i in (*graph.inputs, *graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            name, data = tensor.name.decode(), model.buffers[tensor.buffer].data
            if not name or index in inputs or data is None or types[tensor.type] == "INT32":
                continue
            if not name.endswith("/scales"):
                found[name] = (types[tensor.type].lower(), _widened(model, graph, tensor))
    return found


def _widened(model: Any, graph: Any, tensor: Any) -> np.ndarray:
    content = bytes(model.buffers[tensor.buffer].data)
    shape, kind = tuple(int(size) for size in tensor.shape), names(schema().TensorType)[tensor.type]
    if kind.startswith("FLOAT"):
        return np.frombuffer(content, kind.lower()).reshape(shape).astype("float32")
    levels = np.frombuffer(content, np.int8)
    if kind == "INT4":
        levels = np.stack([(levels << 4) >> 4, levels >> 4], axis=-1)
    levels = levels.reshape(shape).astype("float32")
    details = tensor.quantization.details
    if details is None:
        assert not np.any(tensor.quantization.zeroPoint)
        return levels * np.asarray(tensor.quantization.scale)[:, None]
    scales = graph.tensors[details.scales]
    halves = np.frombuffer(bytes(model.buffers[scales.buffer].data), np.float16).reshape(tuple(scales.shape))
    return levels * np.repeat(halves.astype("float32"), details.blockSize, axis=1)
