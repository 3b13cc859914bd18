"""One ONNX file, loaded by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import BundleError, InputError, require

CPU = "CPUExecutionProvider"


class OnnxSession:
    """A loaded file, which several threads may run at once.

    Nothing is kept for the next load. For GPT-2 in int8, an optimized graph would save 0.02 of 0.34 s, as files come
    with fused operators; weights as the processor wants them 0.2 s, which checking twice the file's bytes takes again.

    Args:
        folder: The bundle.
        manifest: Its manifest.
        name: Of the signature, whose file is loaded.
        num_threads: CPU threads; ONNX Runtime's choice, all cores, by default.
        providers: ONNX Runtime's execution providers, the preferred one first; the CPU by default.

    Raises:
        BundleError: no such signature, or a file that ONNX Runtime cannot load.
        InputError: a provider that this build of ONNX Runtime lacks.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        name: str,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        onnxruntime = require("onnxruntime", "onnx")
        if name not in manifest.signatures:
            raise BundleError(
                f"An ONNX bundle of this kind has the signature {name!r}. Received: {list(manifest.signatures)} "
                f"in {folder}. Export it again"
            )
        self.signature: Signature = manifest.signatures[name]
        wanted = list(providers or [CPU])
        available = onnxruntime.get_available_providers()
        if absent := [provider for provider in wanted if provider not in available]:
            raise InputError(
                f"providers must be among those of the installed ONNX Runtime: {', '.join(available)}. "
                f"Received: {', '.join(absent)}. Install a build of onnxruntime that has them"
            )
        self._run_options = onnxruntime.RunOptions()
        # Not the output projection while a prompt is read, say.
        self._run_options.only_execute_path_to_fetches = True
        path = Path(folder) / self.signature.file
        try:
            self._session = onnxruntime.InferenceSession(str(path), _options(num_threads), providers=wanted)
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise BundleError(f"ONNX Runtime cannot load {path}: {error}. Export it again") from error
        self.in_place = frozenset(self._session.get_modelmeta().custom_metadata_map.get(IN_PLACE, "").split())
        """Inputs whose buffer may be that of the output which continues them."""
        self.on_cpu = self._session.get_providers() == [CPU]
        """Nothing has to be moved to another device."""

    def binding(self) -> Any:
        """What a run reads and writes, to be filled and given to `run`; arrays in it must be kept alive."""
        return self._session.io_binding()

    def run(self, binding: Any) -> None:
        """Computes the outputs that are bound, and no more than they need."""
        self._session.run_with_iobinding(binding, self._run_options)

    def call(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
        """Runs what `outputs` need; arrays or ONNX Runtime's tensors in, its tensors out."""
        binding = self.binding()
        # Held to the end, as a binding does not hold the memory of arrays.
        given = {name: tensor(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, "cpu")
        self.run(binding)
        return list(binding.get_outputs())


IN_PLACE = "kerasformer.in_place"
"""Key of a file's metadata: names of such inputs, with spaces between them."""


def tensor(array: np.ndarray) -> Any:
    """ONNX Runtime's tensor in the memory of an array, which it keeps alive."""
    return require("onnxruntime", "onnx").OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _options(num_threads: int | None) -> Any:
    onnxruntime = require("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    # Threads wait by spinning from one operator to the next, which takes a quarter off a step of GPT-2, but no longer:
    # elsewhere they would only take the cores from others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "50")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    return options
