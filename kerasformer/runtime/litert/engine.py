"""LiteRT itself, behind two methods: run a signature, and hold tensors that stay in place between runs.

`CompiledEngine` is LiteRT's compiled model, whose buffers a signature may read and write at once: a cache is then
updated in place, and nothing is copied. `InterpreterEngine` is the older interpreter, for platforms without it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kerasformer.errors import BundleError, InputError, MissingExtraError, require

_ACCELERATORS = ("gpu", "npu")

Held = Any
"""A tensor that an engine keeps between runs."""


class Engine(Protocol):
    """A loaded model file."""

    def hold(self, signature: str, name: str) -> Held:
        """A tensor of zeros for this input or output, which any run may then read, write, or both."""
        ...

    def copy(self, source: Held, target: Held, count: int) -> None:
        """Overwrites `target`, `(1, H, S, D)` as `source`, or at least its first `count` positions."""
        ...

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, Held] | None = None
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: Its name.
            inputs: int32 or float32 arrays of exactly the declared shapes.
            held: Tensors, by the name of the input, the output, or the input and output that they are.

        Returns:
            The outputs that are not held.
        """
        ...


def open_engine(
    path: Path, num_threads: int | None = None, cache_file: Path | None = None, accelerator: str | None = None
) -> Engine:
    """Loads a TFLite file.

    Args:
        path: The file.
        num_threads: CPU threads; the number of CPUs this process may use, at most 8, by default.
        cache_file: Where to keep the weights in the layout of the CPU kernels, so that the next start neither computes
            them nor holds them in memory of its own. It must be another one for every file and version of LiteRT.
        accelerator: `"gpu"` or `"npu"`. Where there is none, a warning says so and the CPU does the work.
    Raises:
        BundleError: the file is no model that LiteRT can run.
        InputError: an unknown accelerator.
        MissingExtraError: LiteRT is not installed.
    """
    if accelerator is not None and accelerator not in _ACCELERATORS:
        raise InputError(f"accelerator must be one of {', '.join(_ACCELERATORS)}, or None. Received: {accelerator!r}")
    require("ai_edge_litert", "litert")
    threads = num_threads or _available_threads()
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
        _tell(accelerator, engine, reasons)
        return engine
    raise _unloadable(path, " | ".join(reasons))


def _unloadable(path: Path, reason: str) -> BundleError:
    return BundleError(f"LiteRT cannot load this file. Expected: a TFLite model. Received: {path}. {reason}")


def _verify(path: Path) -> None:
    """Refuses a file whose tables lead out of it: the compiled model would follow them, and end the process.

    The interpreter checks them before it builds anything, and reads no weights for it.

    Raises:
        BundleError: the file is none.
    """
    interpreter = require("ai_edge_litert.interpreter", "litert")
    resolver = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter.Interpreter(str(path), experimental_op_resolver_type=resolver)
    except (ValueError, RuntimeError, OSError) as error:
        raise _unloadable(path, str(error)) from error


def _tell(accelerator: str | None, engine: Engine, reasons: list[str]) -> None:
    """Warns where an accelerator was asked for and the CPU does some or all of the work."""
    if accelerator is None:
        return
    if reasons:
        message = f"LiteRT has no {accelerator.upper()} for this model here: the CPU runs it. {reasons[0]}"
        warnings.warn(message, UserWarning, stacklevel=2)
    elif isinstance(engine, CompiledEngine) and not engine.is_fully_accelerated:
        message = f"The {accelerator.upper()} does not run all of this model, or none of it: the CPU runs the rest."
        warnings.warn(message, UserWarning, stacklevel=2)


class CompiledEngine:
    """`ai_edge_litert.compiled_model`; held tensors are its `TensorBuffer`s.

    Args:
        path: The file.
        num_threads: CPU threads.
        cache_file: As for `open_engine`.
        accelerator: Likewise; the CPU does what it cannot do.
    """

    def __init__(
        self, path: Path, num_threads: int, cache_file: Path | None = None, accelerator: str | None = None
    ) -> None:
        options = require("ai_edge_litert.options", "litert")
        # Without a cache the kernels pack the weights once for every signature; ":memory" shares them within the
        # process. It needs anonymous files, which Linux has.
        packed = str(cache_file) if cache_file else ":memory" if sys.platform == "linux" else ""
        cpu = options.CpuOptions(num_threads=num_threads, xnnpack_weight_cache_path=packed)
        units = options.HardwareAccelerator.CPU
        if accelerator is not None:
            units |= getattr(options.HardwareAccelerator, accelerator.upper())
        self._model = require("ai_edge_litert.compiled_model", "litert").CompiledModel.from_file(
            str(path),
            environment=_environment(accelerator is not None),
            options=options.Options(units, cpu_options=cpu),
        )
        # The CPU's kernels may write where they read. What an accelerator does then, nobody promises.
        self._in_place = accelerator is None
        names = self._model.get_signature_list()
        self._inputs = {name: self._model.get_input_tensor_details(name) for name in names}
        self._outputs = {name: self._model.get_output_tensor_details(name) for name in names}
        self._own: dict[tuple[str, str, str], _Tensor] = {}

    def hold(self, signature: str, name: str) -> _Tensor:
        """A tensor of zeros."""
        tensor = self._tensor(signature, "input" if name in self._inputs[signature] else "output", name)
        tensor.clear()
        return tensor

    def copy(self, source: _Tensor, target: _Tensor, count: int) -> None:
        """Copies the first positions, or all through host memory: LiteRT has no copy from buffer to buffer."""
        if source.array is None or target.array is None:
            target.write(source.read())
        else:
            target.array[:, :, :count] = source.array[:, :, :count]

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, _Tensor] | None = None
    ) -> dict[str, np.ndarray]:
        """See `Engine.run`."""
        held = held or {}
        written = held if self._in_place else self._twins(signature, held)
        given, results = dict(held), dict(written)
        for name in self._inputs[signature].keys() - given.keys():
            given[name] = self._kept(signature, "input", name)
            given[name].write(inputs[name])
        own = self._outputs[signature].keys() - results.keys()
        results |= {name: self._kept(signature, "output", name) for name in own}
        self._model.run_by_name(
            signature,
            {name: given[name].buffer for name in self._inputs[signature]},
            {name: results[name].buffer for name in self._outputs[signature]},
        )
        for tensor, twin in {id(held[name]): (held[name], twin) for name, twin in written.items()}.values():
            if tensor is not twin:
                tensor.swap(twin)
        return {name: results[name].read() for name in own}

    @property
    def is_fully_accelerated(self) -> bool:
        """Every operator runs on the accelerator that was asked for."""
        return bool(self._model.is_fully_accelerated())

    def _twins(self, signature: str, held: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
        """Second tensors for those that this signature would read and write at once."""
        both = held.keys() & self._outputs[signature].keys()
        return {name: self._kept(signature, "output", name) for name in both}

    def _kept(self, signature: str, kind: str, name: str) -> _Tensor:
        """The engine's own tensor for this input or output."""
        key = (signature, kind, name)
        if key not in self._own:
            self._own[key] = self._tensor(*key)
        return self._own[key]

    def _tensor(self, signature: str, kind: str, name: str) -> _Tensor:
        create = getattr(self._model, f"create_{kind}_buffer_by_name")
        details = (self._inputs if kind == "input" else self._outputs)[signature][name]
        return _Tensor(create(signature, name), tuple(details["shape"]), np.dtype(details["dtype"]))


class _Tensor:
    """A `TensorBuffer`, whose memory NumPy sees directly where it is the processor's.

    Attributes:
        buffer: LiteRT's.
        array: Its memory; `None` if that is an accelerator's.
    """

    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.buffer, self._shape, self._dtype = buffer, shape, dtype
        self.array = _memory(buffer, shape, dtype)

    def swap(self, other: _Tensor) -> None:
        """Exchanges what the two hold."""
        self.buffer, other.buffer = other.buffer, self.buffer
        self.array, other.array = other.array, self.array

    def write(self, value: np.ndarray) -> None:
        """Overwrites it."""
        if self.array is None:
            self.buffer.write(value)
        else:
            self.array[...] = value

    def read(self) -> np.ndarray:
        """A copy."""
        if self.array is not None:
            return self.array.copy()
        return np.asarray(self.buffer.read(int(np.prod(self._shape)), self._dtype)).reshape(self._shape)

    def clear(self) -> None:
        """Fills it with zeros. Memory that is fresh from the system holds them, and takes no room until written."""
        if self.array is None:
            self.write(np.zeros(self._shape, self._dtype))
        else:
            bits = self.array.view(np.int32).reshape(-1, self._shape[-1])  # as floats they might be NaN
            bits[bits.any(axis=1)] = 0


def _memory(buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray | None:
    """The memory of a `TensorBuffer`, which Python's LiteRT has no way to show, through its C interface."""
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
def _library() -> Any:
    """LiteRT's C library, the one that the Python package has loaded; `None` if it is not there."""
    folder = Path(str(require("ai_edge_litert", "litert").__file__)).parent
    try:
        library = ctypes.CDLL(str(next(folder.glob("libLiteRt.*"))))
        return library if library.LiteRtGetTensorBufferHostMemory and library.LiteRtGetTensorBufferSize else None
    except (StopIteration, OSError, AttributeError):
        return None


@cache
def _capsule_pointer() -> Any:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return function


class InterpreterEngine:
    """`ai_edge_litert.interpreter`; held tensors are arrays, copied in and out at every run.

    Args:
        path: The file.
        num_threads: CPU threads.
    """

    def __init__(self, path: Path, num_threads: int) -> None:
        interpreter = require("ai_edge_litert.interpreter", "litert")
        self._interpreter = interpreter.Interpreter(str(path), num_threads=num_threads)
        self._runners = {n: self._interpreter.get_signature_runner(n) for n in self._interpreter.get_signature_list()}

    def hold(self, signature: str, name: str) -> Held:
        """An array of zeros."""
        runner = self._runners[signature]
        details = {**runner.get_output_details(), **runner.get_input_details()}[name]
        return np.zeros(details["shape"], details["dtype"])

    def copy(self, source: Held, target: Held, count: int) -> None:
        """Copies the first positions."""
        target[:, :, :count] = source[:, :, :count]

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], held: Mapping[str, Held] | None = None
    ) -> dict[str, np.ndarray]:
        """See `Engine.run`."""
        held = held or {}
        runner = self._runners[signature]
        results = runner(**{name: held[name] if name in held else inputs[name] for name in runner.get_input_details()})
        for name in results.keys() & held.keys():
            np.copyto(held[name], results[name])
        return {name: value for name, value in results.items() if name not in held}


def runtime_version() -> str:
    """Version of the installed LiteRT."""
    return metadata.version("ai-edge-litert")


def _available_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(8, len(affinity(0)) if affinity else os.cpu_count() or 1)


@cache
def _environment(accelerated: bool) -> Any:
    """LiteRT's environment, one for the process: creating it loads and registers every accelerator.

    Args:
        accelerated: Look for compilers and dispatchers of accelerators too, which LiteRT would load, log and give up
            for every model that the CPU runs.
    """
    module = require("ai_edge_litert.environment", "litert")
    folder = os.path.dirname(str(module.__file__))
    # An empty path means all folders of the package, and a folder is searched with those below it.
    plugins = "" if accelerated else os.path.join(folder, "none")
    options = module.EnvironmentOptions(folder, compiler_plugin_path=plugins, dispatch_library_path=plugins)
    environment = module.Environment.create(options=options)
    # Never destroyed: models that are alive when the process ends still use it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment))
    return environment
