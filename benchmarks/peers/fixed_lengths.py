"""TFLite files of fixed lengths, as exported by other libraries, run by LiteRT's `CompiledModel`, its fastest API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class FixedLengths:
    """An encoder with a file for each length.

    Args:
        folder: Folder of the files `{length}.tflite`.
        threads: Number of CPU threads; LiteRT's default if `None`.
    """

    def __init__(self, folder: Path, threads: int | None) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.options import CpuOptions, Options

        settings = {} if threads is None else {"num_threads": threads}
        options = Options(cpu_options=CpuOptions(**settings))
        self._models = {int(path.stem): CompiledModel.from_file(str(path), options=options) for path in _files(folder)}
        self._buffers = {length: _Buffers(model) for length, model in self._models.items()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs for ids, masks and segments `(1, T)`; inputs that the file does not have are ignored."""
        length = next(iter(inputs.values())).shape[1]
        return self._buffers[length].run(inputs)


class _Buffers:
    """Input and output buffers of one file, which are allocated once."""

    def __init__(self, model: Any) -> None:
        self._model = model
        (self._signature,) = model.get_signature_list()
        names = model.get_signature_list()[self._signature]
        self._inputs = {n: model.create_input_buffer_by_name(self._signature, n) for n in names["inputs"]}
        self._outputs = {n: model.create_output_buffer_by_name(self._signature, n) for n in names["outputs"]}
        self._details = model.get_output_tensor_details(self._signature)
        self._types = {n: d["dtype"] for n, d in model.get_input_tensor_details(self._signature).items()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, buffer in self._inputs.items():
            buffer.write(np.ascontiguousarray(inputs[name], self._types[name]))
        self._model.run_by_name(self._signature, self._inputs, self._outputs)
        outputs = []
        for name, buffer in self._outputs.items():
            shape, dtype = self._details[name]["shape"], np.dtype(self._details[name]["dtype"])
            outputs.append(buffer.read(int(np.prod(shape)), dtype).reshape(shape))
        return outputs


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tflite"))
