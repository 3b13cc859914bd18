"""Runs a model file for the Kotlin tests: reads calls from the standard input, writes their outputs; see Remote.kt."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from kerasformer import telemetry

Run = Callable[[str, Mapping[str, np.ndarray], Sequence[str]], list[np.ndarray]]


def opened(path: str) -> Run:
    """Returns a function of a signature, its inputs and the names of the outputs."""
    if path.endswith(".onnx"):
        with telemetry.switched_off():
            import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda _, inputs, outputs: session.run(list(outputs), dict(inputs))
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)

    def run(signature: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
        runner = interpreter.get_signature_runner(signature)
        shapes = {name: tuple(detail["shape"]) for name, detail in runner.get_input_details().items()}
        results = runner(**{name: values.reshape(shapes[name]) for name, values in inputs.items()})
        return [results[name] for name in outputs]

    return run


def main() -> None:
    """Answers calls until the input ends."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    run = opened(sys.argv[1])
    while head := source.read(2):
        signature = source.read(struct.unpack(">H", head)[0]).decode()
        inputs = {_text(source): _values(source) for _ in range(_integer(source))}
        outputs = [_text(source) for _ in range(_integer(source))]
        for values in run(signature, inputs, outputs):
            name, data = str(values.dtype).encode(), np.ascontiguousarray(values).tobytes()
            head = struct.pack(f">H{len(name)}sI", len(name), name, values.ndim)
            target.write(head + struct.pack(f">{values.ndim + 1}I", *values.shape, len(data)) + data)
        target.flush()


def _integer(source: BinaryIO) -> int:
    return int(struct.unpack(">I", source.read(4))[0])


def _text(source: BinaryIO) -> str:
    return source.read(struct.unpack(">H", source.read(2))[0]).decode()


def _values(source: BinaryIO) -> np.ndarray:
    dtype = _text(source)
    shape = [_integer(source) for _ in range(_integer(source))]
    data = np.frombuffer(source.read(_integer(source)), dtype)
    return data.reshape(shape) if shape else data


if __name__ == "__main__":
    main()
