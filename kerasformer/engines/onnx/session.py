"""ONNX Runtime session of an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import BundleError, InputError
from kerasformer.extras import require

if TYPE_CHECKING:
    import onnxruntime

CPU = "CPUExecutionProvider"
_IN_PLACE = "kerasformer.in_place"
"""Key of the metadata in files of earlier versions: names of inputs separated by spaces."""


class OnnxSession:
    """A loaded ONNX file, which several threads may run concurrently.

    Nothing is cached for later loads: exported files already contain fused operators, and reading packed weights would
    cost as much time in checksums as it saves.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        name: Name of the signature whose file is loaded.
        num_threads: Number of CPU threads; ONNX Runtime's default, all cores, if `None`.
        providers: Execution providers of ONNX Runtime in order of preference; the CPU by default.

    Raises:
        BundleError: there is no such signature, or ONNX Runtime cannot load the file.
        InputError: the installed ONNX Runtime lacks a provider.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        name: str,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        onnxruntime = _onnxruntime()
        if name not in manifest.signatures:
            raise BundleError(
                f"An ONNX bundle of this kind must have the signature {name!r}. Received: {list(manifest.signatures)} "
                f"in {folder}. Export it again"
            )
        self.signature: Signature = manifest.signatures[name]
        requested = list(providers or [CPU])
        available = onnxruntime.get_available_providers()
        if absent := [provider for provider in requested if provider not in available]:
            raise InputError(
                f"providers must be among those of the installed ONNX Runtime: {', '.join(available)}. "
                f"Received: {', '.join(absent)}. Install a build of onnxruntime that has them"
            )
        self._path = path = Path(folder) / self.signature.file
        try:
            self._session = onnxruntime.InferenceSession(str(path), _options(num_threads), providers=requested)
        except Exception as error:  # ONNX Runtime's errors have no common base class
            raise BundleError(f"ONNX Runtime cannot load {path}: {error}. Export the model again") from error
        self._held: dict[str, Any] = {}
        in_place = self.signature.in_place()
        if in_place is None:  # bundles of earlier versions describe this only in the file
            metadata = self._session.get_modelmeta().custom_metadata_map
            in_place = frozenset(metadata.get(_IN_PLACE, "").split())
        self.in_place = in_place
        """Names of inputs that may share a buffer with the output that continues them."""
        self.on_cpu = self._session.get_providers() == [CPU]
        """Whether the CPU is the only execution provider."""

    def hold(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Binds arrays to inputs of every later run, which reads what they contain then; other names are ignored."""
        self._held = {name: tensor(array) for name, array in arrays.items() if name in self.signature.inputs}

    def binding(self) -> onnxruntime.IOBinding:
        """Returns an `IOBinding` for `run`; the caller must keep bound arrays alive."""
        binding = self._session.io_binding()
        for name, value in self._held.items():
            binding.bind_ortvalue_input(name, value)
        return binding

    def run(self, binding: onnxruntime.IOBinding) -> None:
        """Computes the bound outputs.

        Raises:
            BundleError: ONNX Runtime cannot run the file, for example because an operator does not match its tensors.
        """
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # ONNX Runtime's errors have no common base class
            raise BundleError(f"ONNX Runtime cannot run {self._path}: {error}. Export the model again") from error

    def call(
        self, inputs: Mapping[str, np.ndarray | onnxruntime.OrtValue], outputs: Sequence[str]
    ) -> list[onnxruntime.OrtValue]:
        """Computes the named outputs.

        Args:
            inputs: Arrays or `OrtValue`s by name.
            outputs: Names of outputs.
        Returns:
            The outputs as `OrtValue`s.
        """
        binding = self.binding()
        # Kept alive until the end, as a binding does not own the memory of arrays.
        tensors = {name: tensor(value) for name, value in inputs.items()}
        for name, value in tensors.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, "cpu")
        self.run(binding)
        return list(binding.get_outputs())


def tensor(value: np.ndarray | onnxruntime.OrtValue) -> onnxruntime.OrtValue:
    """Returns an `OrtValue` that shares the memory of an array and keeps it alive, or a given `OrtValue` as it is."""
    if not isinstance(value, np.ndarray):
        return value
    return _onnxruntime().OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))


@cache
def _onnxruntime() -> ModuleType:
    return require("onnxruntime", "onnx")


def _options(num_threads: int | None) -> onnxruntime.SessionOptions:
    onnxruntime = _onnxruntime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    # Threads that wait for each other spin for up to 1 ms before they sleep, also from one step of a text to the next,
    # which makes steps some per cent faster; ONNX Runtime's default is to spin longer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    return options
