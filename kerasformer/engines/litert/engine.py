"""Wrappers of LiteRT that run signatures and hold tensors, such as caches, between runs.

`CompiledEngine` uses LiteRT's compiled model, whose buffers can be input and output of the same run: caches are updated
in place, without copies. `InterpreterEngine` uses the older interpreter, for platforms without the compiled model.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasformer.errors import BundleError, InputError, MissingExtraError
from kerasformer.extras import require
from kerasformer.process import quiet_runtimes

if TYPE_CHECKING:
    from ai_edge_litert.environment import Environment
    from ai_edge_litert.tensor_buffer import TensorBuffer

_ACCELERATORS = ("gpu", "npu")

KeptTensor = Any
"""A tensor that an engine keeps between runs."""


class Engine(Protocol):
    """A loaded model file."""

    def hold(self, signature: str, name: str) -> KeptTensor:
        """Returns a tensor of zeros for this input or output, which later runs may read, write, or both."""
        ...

    def write(self, target: KeptTensor, value: np.ndarray) -> None:
        """Replaces the content of a held tensor by an array of its shape."""
        ...

    def copy(self, source: KeptTensor, target: KeptTensor, count: int) -> None:
        """Copies at least the first `count` slots of `source` to `target`, both `(1, H, S, D)`."""
        ...

    def content(self, source: KeptTensor) -> np.ndarray:
        """Returns the content, which may be a view that later runs change."""
        ...

    def fill(self, target: KeptTensor, slots: np.ndarray) -> None:
        """Writes the first slots `(1, H, N, D)` of a tensor `(1, H, S, D)`; the content of the others is undefined."""
        ...

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, KeptTensor] | None = None
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: Name of the signature.
            inputs: int32, float32 or int8 arrays of the declared shapes.
            held: Kept tensors by the name of an input, an output, or both if the input and the output have one name.

        Returns:
            Outputs that are not in `held`, by name.

        Raises:
            BundleError: LiteRT cannot run the signature, for example because an operator does not match its tensors.
        """
        ...


def open_engine(
    path: Path, num_threads: int | None = None, cache_file: Path | None = None, accelerator: str | None = None
) -> Engine:
    """Loads a TFLite file.

    Args:
        path: Path of the file.
        num_threads: Number of CPU threads; by default the number of CPUs available to the process, at most 8.
        cache_file: File for weights in the layout of the CPU kernels, which the next start maps instead of computing
            them. Each model file and each version of LiteRT needs a different one.
        accelerator: `"gpu"` or `"npu"`. If it is not available, a warning is issued and the CPU is used.
    Raises:
        BundleError: the file is not a model that LiteRT can run.
        InputError: an unknown accelerator.
        MissingExtraError: LiteRT is not installed.
    """
    if accelerator is not None and accelerator not in _ACCELERATORS:
        raise InputError(f"accelerator must be one of {', '.join(_ACCELERATORS)}, or None. Received: {accelerator!r}")
    require("ai_edge_litert", "litert")
    threads = num_threads or _available_threads()
    with quiet_runtimes():
        return _opened(path, threads, cache_file, accelerator)


def _opened(path: Path, threads: int, cache_file: Path | None, accelerator: str | None) -> Engine:
    _verify(path)
    makers: list[Callable[[], Engine]] = [
        lambda: CompiledEngine(path, threads, cache_file),
        lambda: InterpreterEngine(path, threads),
    ]
    if accelerator is not None:
        makers.insert(0, lambda: CompiledEngine(path, threads, cache_file, accelerator))
    reasons = []
    for make in makers:
        try:
            engine = make()
        except (ImportError, MissingExtraError, RuntimeError, ValueError, OSError) as error:
            reasons.append(str(error))
            continue
        _warn(accelerator, engine, reasons)
        return engine
    raise _unloadable(path, " | ".join(reasons))


def _unloadable(path: Path, reason: str) -> BundleError:
    return BundleError(f"LiteRT cannot load this file. Expected: a TFLite model. Received: {path}. {reason}")


def _failed(path: Path, signature: str, error: RuntimeError) -> BundleError:
    """Returns the error for a file that LiteRT loads, but cannot run: kernels check shapes only when they prepare."""
    return BundleError(
        f"LiteRT cannot run the signature {signature!r} of this file. Expected: a model whose operators match their "
        f"tensors. Received: {path}. {error}. Export the model again"
    )


def _verify(path: Path) -> None:
    """Checks that the offsets in a file are within it: an invalid offset makes the compiled model crash the process.

    The interpreter verifies them when it is created, without reading weights.

    Raises:
        BundleError: the file is not a valid TFLite model.
    """
    interpreter = require("ai_edge_litert.interpreter", "litert")
    resolver = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter.Interpreter(str(path), experimental_op_resolver_type=resolver)
    except (ValueError, RuntimeError, OSError) as error:
        raise _unloadable(path, str(error)) from error


def _warn(accelerator: str | None, engine: Engine, reasons: list[str]) -> None:
    """Warns if an accelerator was requested and the CPU runs some or all of the model."""
    if accelerator is None:
        return
    if reasons:
        message = f"LiteRT has no {accelerator.upper()} for this model here: the CPU runs it. {reasons[0]}"
        warnings.warn(message, UserWarning, stacklevel=2)
    elif isinstance(engine, CompiledEngine) and not engine.is_fully_accelerated:
        message = f"The {accelerator.upper()} runs only part of this model, or none of it: the CPU runs the rest."
        warnings.warn(message, UserWarning, stacklevel=2)


class CompiledEngine:
    """Engine on `ai_edge_litert.compiled_model`; held tensors wrap its `TensorBuffer`s.

    Args:
        path: Path of the file.
        num_threads: Number of CPU threads.
        cache_file: File for packed weights, as for `open_engine`.
        accelerator: `"gpu"` or `"npu"`; the CPU runs operators that it does not support.
    """

    def __init__(
        self, path: Path, num_threads: int, cache_file: Path | None = None, accelerator: str | None = None
    ) -> None:
        self._path = path
        options = require("ai_edge_litert.options", "litert")
        # Without a weight cache, the kernels pack the weights once per signature; ":memory" shares them between
        # signatures, but needs anonymous files, which only Linux has.
        weight_cache = str(cache_file) if cache_file else ":memory" if sys.platform == "linux" else ""
        cpu = options.CpuOptions(num_threads=num_threads, xnnpack_weight_cache_path=weight_cache)
        units = options.HardwareAccelerator.CPU
        if accelerator is not None:
            units |= getattr(options.HardwareAccelerator, accelerator.upper())
        self._model = require("ai_edge_litert.compiled_model", "litert").CompiledModel.from_file(
            str(path),
            environment=_environment(accelerator is not None),
            options=options.Options(units, cpu_options=cpu),
        )
        # CPU kernels can write to the buffers that they read; accelerators do not guarantee this.
        self._in_place = accelerator is None
        self._names = self._model.get_signature_list()
        self._inputs = {name: self._model.get_input_tensor_details(name) for name in self._names}
        self._outputs = {name: self._model.get_output_tensor_details(name) for name in self._names}
        self._tensors: dict[tuple[str, str, str], _Tensor] = {}
        self._calls: dict[str, _Call] = {}
        self._has_run = False

    def hold(self, signature: str, name: str) -> _Tensor:
        """Returns a tensor of zeros."""
        try:
            tensor = self._new_tensor(signature, "input" if name in self._inputs[signature] else "output", name)
        except RuntimeError as error:
            raise _failed(self._path, signature, error) from error
        tensor.clear()
        return tensor

    def write(self, target: _Tensor, value: np.ndarray) -> None:
        """See `Engine.write`."""
        target.write(value)

    def copy(self, source: _Tensor, target: _Tensor, count: int) -> None:
        """Copies the first slots, or everything by way of host memory: LiteRT cannot copy between buffers."""
        if source.array is None or target.array is None:
            target.write(source.read())
        else:
            target.array[:, :, :count] = source.array[:, :, :count]

    def content(self, source: _Tensor) -> np.ndarray:
        """Returns a view of the content, or a copy if it is not in host memory."""
        return source.read() if source.array is None else source.array

    def fill(self, target: _Tensor, slots: np.ndarray) -> None:
        """Writes the first slots."""
        if target.array is None:
            content = target.read()
            content[:, :, : slots.shape[2]] = slots
            target.write(content)
        else:
            target.array[:, :, : slots.shape[2]] = slots

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, _Tensor] | None = None
    ) -> dict[str, np.ndarray]:
        """See `Engine.run`. The same mapping in the next run saves preparing the call."""
        call = self._calls.get(signature)
        try:
            if call is None or call.held is not held:
                call = self._call(signature, held)
                if self._in_place:
                    self._calls[signature] = call
            for name, tensor in call.inputs.items():
                tensor.write(inputs[name])
            with nullcontext() if self._has_run else quiet_runtimes():  # LiteRT prepares its tensors at the first run
                self._model.run_by_index(call.index, call.sources, call.results)
            self._has_run = True
        except RuntimeError as error:
            raise _failed(self._path, signature, error) from error
        for tensor, target in call.replaced:
            tensor.swap(target)
        return {name: tensor.read() for name, tensor in call.outputs.items()}

    def _call(self, signature: str, held_tensors: Mapping[str, _Tensor] | None) -> _Call:
        held = held_tensors or {}
        targets = held if self._in_place else self._output_tensors(signature, held)
        inputs = {n: self._tensor(signature, "input", n) for n in self._inputs[signature].keys() - held.keys()}
        outputs = {n: self._tensor(signature, "output", n) for n in self._outputs[signature].keys() - targets.keys()}
        sources, results = {**held, **inputs}, {**held, **targets, **outputs}
        names = self._names[signature]
        return _Call(
            held_tensors,
            self._model.get_signature_index(signature),
            [sources[name].buffer for name in names["inputs"]],
            [results[name].buffer for name in names["outputs"]],
            inputs,
            outputs,
            list({id(held[n]): (held[n], target) for n, target in targets.items() if target is not held[n]}.values()),
        )

    @property
    def is_fully_accelerated(self) -> bool:
        """Whether every operator runs on the requested accelerator."""
        return bool(self._model.is_fully_accelerated())

    def _output_tensors(self, signature: str, held: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
        """Returns separate output tensors for held tensors that this signature would read and write in one run."""
        both = held.keys() & self._outputs[signature].keys()
        return {name: self._tensor(signature, "output", name) for name in both}

    def _tensor(self, signature: str, kind: str, name: str) -> _Tensor:
        """Returns the engine's tensor for this input or output, created once."""
        key = (signature, kind, name)
        if key not in self._tensors:
            self._tensors[key] = self._new_tensor(*key)
        return self._tensors[key]

    def _new_tensor(self, signature: str, kind: str, name: str) -> _Tensor:
        create = getattr(self._model, f"create_{kind}_buffer_by_name")
        details = (self._inputs if kind == "input" else self._outputs)[signature][name]
        return _Tensor(create(signature, name), tuple(details["shape"]), np.dtype(details["dtype"]))


@dataclass(frozen=True, eq=False)
class _Call:
    """A run of a signature.

    Attributes:
        held: Kept tensors by the name of an input or output, as they were passed.
        index: Index of the signature.
        sources: Buffers of all inputs.
        results: Buffers of all outputs.
        inputs: Tensors of inputs that are not held.
        outputs: Tensors of outputs that are not held.
        replaced: Kept tensors that are read, with others that the results are written to.
    """

    held: Mapping[str, _Tensor] | None
    index: int
    sources: list[TensorBuffer]
    results: list[TensorBuffer]
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]
    replaced: list[tuple[_Tensor, _Tensor]]


class _Tensor:
    """A `TensorBuffer`, accessible as a NumPy array if it is in host memory.

    Attributes:
        buffer: The `TensorBuffer` of LiteRT.
        array: View of its memory; `None` if it is in the memory of an accelerator.
    """

    def __init__(self, buffer: TensorBuffer, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.buffer, self._shape, self._dtype = buffer, shape, dtype
        self.array = _memory(buffer, shape, dtype)

    def swap(self, other: _Tensor) -> None:
        """Exchanges the buffers of two tensors."""
        self.buffer, other.buffer = other.buffer, self.buffer
        self.array, other.array = other.array, self.array

    def write(self, value: np.ndarray) -> None:
        """Overwrites the content."""
        if self.array is None:
            self.buffer.write(value)
        else:
            self.array[...] = value

    def read(self) -> np.ndarray:
        """Returns a copy of the content."""
        if self.array is not None:
            return self.array.copy()
        return np.asarray(self.buffer.read(int(np.prod(self._shape)), self._dtype)).reshape(self._shape)

    def clear(self) -> None:
        """Fills the tensor with zeros; writes only where needed, as untouched zero pages take no physical memory."""
        if self.array is None:
            self.write(np.zeros(self._shape, self._dtype))
        else:
            integers = f"i{self.array.dtype.itemsize}"  # as floats may be NaN
            bits = self.array.view(integers).reshape(-1, self._shape[-1])
            bits[bits.any(axis=1)] = 0


def _memory(buffer: TensorBuffer, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """Returns a view of the memory of a `TensorBuffer`, by LiteRT's C API, since its Python API has no access to it."""
    library = _library()
    size, address = ctypes.c_size_t(), ctypes.c_void_p()
    count = int(np.prod(shape)) * dtype.itemsize
    if library is None:
        return None
    handle = ctypes.c_void_p(_capsule_pointer()(buffer.capsule, b"LiteRtTensorBuffer"))
    if (
        library.LiteRtGetTensorBufferSize(handle, ctypes.byref(size))
        or library.LiteRtGetTensorBufferHostMemory(handle, ctypes.byref(address))
        or size.value < count
        or not address.value
    ):
        return None
    content = memoryview((ctypes.c_char * count).from_address(address.value))
    return np.frombuffer(content, dtype).reshape(shape)


@cache
def _library() -> ctypes.CDLL | None:
    """Returns LiteRT's C library, as loaded by its Python package; `None` if it is not available."""
    folder = Path(str(require("ai_edge_litert", "litert").__file__)).parent
    try:
        library = ctypes.CDLL(str(next(folder.glob("libLiteRt.*"))))
        return library if library.LiteRtGetTensorBufferHostMemory and library.LiteRtGetTensorBufferSize else None
    except (StopIteration, OSError, AttributeError):
        return None


@cache
def _capsule_pointer() -> Callable[[object, bytes], int]:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return function


class InterpreterEngine:
    """Engine on `ai_edge_litert.interpreter`; held tensors are arrays, copied in and out at every run.

    Args:
        path: Path of the file.
        num_threads: Number of CPU threads.
    """

    def __init__(self, path: Path, num_threads: int) -> None:
        self._path = path
        interpreter = require("ai_edge_litert.interpreter", "litert")
        self._interpreter = interpreter.Interpreter(str(path), num_threads=num_threads)
        self._runners = {n: self._interpreter.get_signature_runner(n) for n in self._interpreter.get_signature_list()}

    def hold(self, signature: str, name: str) -> KeptTensor:
        """Returns an array of zeros."""
        runner = self._runners[signature]
        details = {**runner.get_output_details(), **runner.get_input_details()}[name]
        return np.zeros(details["shape"], details["dtype"])

    def write(self, target: KeptTensor, value: np.ndarray) -> None:
        """See `Engine.write`."""
        target[...] = value

    def copy(self, source: KeptTensor, target: KeptTensor, count: int) -> None:
        """Copies the first slots."""
        target[:, :, :count] = source[:, :, :count]

    def content(self, source: KeptTensor) -> np.ndarray:
        """Returns the array."""
        return np.asarray(source)

    def fill(self, target: KeptTensor, slots: np.ndarray) -> None:
        """Writes the first slots."""
        target[:, :, : slots.shape[2]] = slots

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, KeptTensor] | None = None
    ) -> dict[str, np.ndarray]:
        """See `Engine.run`."""
        held = held or {}
        runner = self._runners[signature]
        arguments = {name: held[name] if name in held else inputs[name] for name in runner.get_input_details()}
        try:
            results = runner(**arguments)
        except RuntimeError as error:
            raise _failed(self._path, signature, error) from error
        for name in results.keys() & held.keys():
            np.copyto(held[name], results[name])
        return {name: value for name, value in results.items() if name not in held}


def runtime_version() -> str:
    """Returns the version of the installed LiteRT."""
    return metadata.version("ai-edge-litert")


def _available_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(8, len(affinity(0)) if affinity else os.cpu_count() or 1)


@cache
def _environment(accelerated: bool) -> Environment:
    """Returns LiteRT's environment, created once per process, since its creation loads and registers accelerators.

    Args:
        accelerated: Whether to search for compiler plugins and dispatch libraries of accelerators. Without need, LiteRT
            would load, log and discard them for every model on the CPU.
    """
    module = require("ai_edge_litert.environment", "litert")
    folder = os.path.dirname(str(module.__file__))
    # An empty path means all folders of the package; folders are searched recursively.
    plugins = "" if accelerated else os.path.join(folder, "none")
    options = module.EnvironmentOptions(folder, compiler_plugin_path=plugins, dispatch_library_path=plugins)
    environment = module.Environment.create(options=options)
    # Never destroyed, since models that still exist when the process ends use it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment))
    return environment
