"""TFLite files with float weights in place of integers: on a CPU, they compute what the integers do on a GPU.

Called by `tools.gpu`, by exports for a GPU, and by `kerasformer verify` for their bundles. The CPU's kernels for
integer weights round activations, which the GPU's do not.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kerasformer.bundle import GPU, Manifest
from kerasformer.engines.litert.flatbuffer_schema import names, schema

_LARGEST = 2**31 - 1


@contextmanager
def computing_on_cpu(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """Yields a folder whose files compute on the CPU what those of a bundle compute on their processor.

    Args:
        folder: Folder of the bundle.
        manifest: Its manifest.

    Returns:
        The folder; for a bundle for a GPU, a temporary copy with float weights.
    """
    if manifest.accelerator != GPU:
        yield folder
        return
    with TemporaryDirectory(ignore_cleanup_errors=True) as copy:
        copied = Path(shutil.copytree(folder, copy, dirs_exist_ok=True))
        for file in {signature.file for signature in manifest.signatures.values()}:
            if (content := with_float_weights((copied / file).read_bytes())) is not None:
                (copied / file).write_bytes(content)
        yield copied


def with_float_weights(content: bytes) -> bytes | None:
    """Returns a copy of a TFLite file in which integer weights are floats of the same values.

    Args:
        content: The file.

    Returns:
        The copy; `None` if no weight is an integer, or if the copy would be larger than 2 GB, which TFLite cannot hold.
    """
    import flatbuffers

    model = schema().ModelT.InitFromPackedBuf(content, 0)
    kinds = names(schema().BuiltinOperator)
    codes = [kinds[code.builtinCode] for code in model.operatorCodes]
    if not _widen(model, codes):
        return None
    if sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None) > _LARGEST:
        return None
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _widen(model: Any, codes: list[str]) -> bool:
    """Turns integer weights of products and tables with float results into floats; returns whether there are any."""
    types, places = schema().TensorType, {"FULLY_CONNECTED": 1, "EMBEDDING_LOOKUP": 1}
    floats: dict[int, int] = {}
    for graph in model.subgraphs:
        for op in graph.operators:
            place = places.get(codes[op.opcodeIndex])
            if place is None or graph.tensors[op.outputs[0]].type != types.FLOAT32:
                continue
            tensor = graph.tensors[op.inputs[place]]
            if tensor.type not in (types.INT8, types.INT4):
                continue
            if tensor.buffer not in floats:
                buffer = schema().BufferT()
                buffer.data = np.frombuffer(_values(model, graph, tensor, types).tobytes(), np.uint8)
                model.buffers.append(buffer)
                floats[tensor.buffer] = len(model.buffers) - 1
            tensor.buffer, tensor.type, tensor.quantization = floats[tensor.buffer], types.FLOAT32, None
    return bool(floats)


def _values(model: Any, graph: Any, tensor: Any, types: Any) -> np.ndarray:
    """Returns the numbers of a weight of 8 or 4 bits with a scale for each row or each block of a row."""
    data, shape = np.asarray(model.buffers[tensor.buffer].data, np.uint8), tuple(map(int, tensor.shape))
    levels = data.view(np.int8)
    if tensor.type == types.INT4:  # two in a byte, the lower half first
        levels = np.stack([data << 4, data], axis=-1).reshape(-1).view(np.int8)[: int(np.prod(shape))] >> 4
    values = levels.reshape(shape).astype("float32")
    scale, details = tensor.quantization.scale, tensor.quantization.details
    if scale is None or not len(scale):
        stored = graph.tensors[details.scales]
        blocks = np.asarray(model.buffers[stored.buffer].data, np.uint8).view("float16").astype("float32")
        factors = np.repeat(blocks.reshape(shape[0], -1), details.blockSize, axis=1)[:, : shape[1]]
    else:
        factors = np.asarray(scale, "float32").reshape(-1, 1)
    return values * factors
