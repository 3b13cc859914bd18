"""Process that runs a TFLite file on LiteRT's GPU delegate and on the CPU, and says by how much the outputs differ.

Its only argument is a JSON object with the arguments of `compare`. It prints a JSON object for each output of each
signature and sample, after `RESULT`, between the lines that LiteRT logs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.engines import with_float_weights

RESULT = "RESULT "
"""What begins a line with a result."""
_LOOKUPS = {"GATHER": (0, 1), "EMBEDDING_LOOKUP": (1, 0)}
"""Operators that look up rows: the places of the table and of the ids."""
_SAME_VALUES = ("RESHAPE", "EXPAND_DIMS", "SQUEEZE", "CAST")

Inputs = dict[str, np.ndarray]


def compare(path: str, half: bool, window: int | None, shares: list[float], num_threads: int) -> None:
    """Compares every signature of a file, with random inputs.

    The CPU's kernels for integer weights round activations, which the GPU's do not. The CPU therefore runs a copy of
    the file in which these weights are floats of the same values.

    Args:
        path: Path of the file.
        half: Whether the GPU computes in 16-bit floats, if its driver can.
        window: Number of tokens that the model can see; that of its caches by default.
        shares: Shares of each mask that are tokens; the rest is padding.
        num_threads: Number of threads of the CPU.
    """
    from ai_edge_litert import interpreter
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.options import GpuOptions, HardwareAccelerator, Options

    content, rows = _read(path)
    cpu = interpreter.Interpreter(model_content=content, num_threads=num_threads)
    units = HardwareAccelerator.GPU | HardwareAccelerator.CPU
    model = CompiledModel.from_file(path, options=Options(units, gpu_options=GpuOptions(enforce_f32=not half)))
    signatures = model.get_signature_list()
    for signature in sorted(signatures):
        on_cpu, names = cpu.get_signature_runner(signature), signatures[signature]
        index = model.get_signature_index(signature)
        sources, results = model.create_input_buffers(index), model.create_output_buffers(index)
        for sample in _samples(on_cpu.get_input_details(), rows.get(signature, {}), window, shares):
            expected = {name: np.array(value) for name, value in on_cpu(**sample).items()}
            for name, buffer in zip(names["inputs"], sources, strict=True):
                buffer.write(np.ascontiguousarray(sample[name]))
            model.run_by_index(index, sources, results)
            for name, buffer in zip(names["outputs"], results, strict=True):
                value = expected[name]
                received = np.asarray(buffer.read(value.size, value.dtype.type)).reshape(value.shape)
                seen = _seen(value, sample.get("attention_mask"))
                difference = _difference(np.where(seen, value, 0), np.where(seen, received, 0))
                row = {"signature": signature, "output": name, **difference}
                print(RESULT + json.dumps(row), flush=True)


def _samples(
    details: Mapping[str, Any], rows: Mapping[str, int], window: int | None, shares: list[float]
) -> Iterator[Inputs]:
    """Yields inputs: each share of padding, and the first and last positions of the window in turn."""
    shapes = {name: tuple(map(int, detail["shape"])) for name, detail in details.items()}
    slots = [shape[2] for name, shape in shapes.items() if len(shape) == 4]
    last = window or max(slots, default=1)
    for number, share in enumerate(shares):
        random, inputs = np.random.default_rng(number), Inputs()
        for name, shape in sorted(shapes.items()):
            value: np.ndarray
            dtype = np.dtype(details[name]["dtype"])
            if name.endswith("mask"):
                tokens = max(1, int(np.ceil(shape[-1] * share)))
                value = np.broadcast_to(np.arange(shape[-1]) < tokens, shape)
            elif name.endswith("pos"):
                end = max(0, last - shape[-1])
                value = np.broadcast_to((0, end, end // 2)[number % 3] + np.arange(shape[-1]), shape)
            elif dtype == np.int8:
                value = random.integers(-127, 128, shape)
            elif dtype.kind in "iu":
                value = random.integers(0, rows.get(name, 2), shape)
            elif dtype.kind == "b":
                value = random.random(shape) < share
            else:
                value = random.normal(size=shape)
            inputs[name] = value.astype(dtype)
        yield inputs


def _seen(output: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Returns which entries of an output are of tokens and not of padding, broadcastable to it.

    A query of padding may see no key. What masks add to its scores then rounds them to multiples of 0.002, and of 16
    in 16-bit floats: its weights, and so its output, are not determined, and nothing reads it.
    """
    if mask is None:
        return np.array(True)
    for axis in (1, 2):  # (B, T, …), or keys and values (B, H, T, D)
        if output.ndim > axis and (len(output), output.shape[axis]) == mask.shape:
            tokens = np.expand_dims(mask > 0, tuple(range(1, axis)))
            return tokens.reshape(tokens.shape + (1,) * (output.ndim - tokens.ndim))
    return np.array(True)


def _difference(expected: np.ndarray, received: np.ndarray) -> dict[str, float | int]:
    """Returns the largest difference, the largest value, and how many numbers and choices differ."""
    expected, received = expected.astype("float64"), received.astype("float64")
    finite = np.isfinite(expected)
    known = finite & np.isfinite(received)
    error = float(np.abs(np.where(known, received - expected, 0)).max(initial=0))
    choices = 0
    if expected.ndim > 1 and expected.shape[-1] > 1 and known.all():
        # A choice between values that are nearer to each other than the rounding of both is none.
        highest = np.take_along_axis(expected, received.argmax(-1)[..., None], -1)[..., 0]
        choices = int((expected.max(-1) - highest > 2 * error).sum())
    return {
        "error": error,
        "largest": float(np.abs(expected[finite]).max(initial=0)),
        "not_finite": int((finite & ~known).sum()),
        "choices": choices,
    }


def _read(path: str) -> tuple[bytes, dict[str, dict[str, int]]]:
    """Returns a copy of a file whose weights are floats, and the rows of the tables that its inputs choose from."""
    from ai_edge_litert import schema_py_generated as schema

    content = Path(path).read_bytes()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    kinds = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    codes = [kinds[code.builtinCode] for code in model.operatorCodes]
    rows = {
        signature.signatureKey.decode(): _rows(model.subgraphs[signature.subgraphIndex], signature, codes)
        for signature in model.signatureDefs or []
    }
    return with_float_weights(content) or content, rows


def _rows(graph: Any, signature: Any, codes: list[str]) -> dict[str, int]:
    """Returns, for each input of ids, how many rows the smallest table has that is read with it."""
    source = {entry.tensorIndex: entry.name.decode() for entry in signature.inputs}
    rows: dict[str, int] = {}
    for op in graph.operators:
        kind, read = codes[op.opcodeIndex], [int(index) for index in op.inputs]
        if kind in _SAME_VALUES and read[0] in source:
            source[int(op.outputs[0])] = source[read[0]]
        if kind in _LOOKUPS:
            table, ids = (read[place] for place in _LOOKUPS[kind])
            if ids in source:
                size, name = int(graph.tensors[table].shape[0]), source[ids]
                rows[name] = min(size, rows.get(name, size))
    return rows


if __name__ == "__main__":
    compare(**json.loads(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the end of a process with a delegate may crash
