"""Process-wide settings, for applications, and the return of freed memory.

Opening or running a bundle never changes the settings, and an export restores what it changes. The command line applies
them; a script or a server may do the same.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import BinaryIO

_MEGABYTE = 1 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD, … of glibc's malloc.h
_MAPPED_BLOCKS = 65_536  # glibc's limit of blocks that are taken from the system one by one


def silence_native_logs() -> None:
    """Discards everything that native code writes to standard error; output to Python's `sys.stderr` is kept.

    LiteRT logs when models are opened and when the process ends, and its Python package has no setting to prevent it;
    TensorFlow logs when it is imported. This function redirects file descriptor 2 to the null device and gives
    `sys.stderr` a new descriptor. It affects the whole process and child processes that inherit descriptor 2, includes
    crash messages of native code, and cannot be undone.

    Call it before loggers are configured: they keep a reference to the old stream, whose output is discarded.
    """
    try:
        original = os.dup(2)
    except OSError:  # the process has no standard error
        return
    if sys.stderr is not None and _descriptor(sys.stderr) == 2:
        sys.stderr.flush()
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        stream = open(original, "w", buffering=1, encoding=encoding, errors=errors)
        sys.stderr = sys.__stderr__ = stream  # type: ignore[misc]
    else:
        os.close(original)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


_LOG_LINE = re.compile(
    rb"([IW]\d{4} [\d:.]+ +\d+ \w+\.(cc|h):\d+\] |(VERBOSE|INFO|WARNING): \[\w+\.cc:\d+\] "
    rb"|INFO: Created TensorFlow Lite |WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions: |E\d{4} [\d:.]+ +\d+ cuda_\w+\.cc:\d+\] failed call to cuInit)[^\n]*\n?"
)
"""What TensorFlow and LiteRT log below errors, and that there is no GPU, to the end of a line that other code may have
begun."""
_INTERVAL = 0.2
_hidden = threading.Lock()
_blocks, _hiding = 0, ExitStack()


@contextmanager
def hidden_native_logs() -> Iterator[None]:
    """Discards the lines below errors that TensorFlow and LiteRT log to standard error within the block.

    LiteRT has no setting for it, and TensorFlow reads its own only when it is imported. Within the block, file
    descriptor 2 is a temporary file. All other lines that are written to it reach standard error with a delay of up to
    0.2 seconds, and Python's `sys.stderr` without one. Lines of native code just before a crash are lost. Blocks of
    several threads may overlap; after the last of them, everything is as before.
    """
    global _blocks
    with _hidden:
        if _blocks == 0:
            _hiding.enter_context(_redirected())
        _blocks += 1
    try:
        yield
    finally:
        with _hidden:
            _blocks -= 1
            if _blocks == 0:
                _hiding.close()


def quiet_runtimes() -> AbstractContextManager[None]:
    """Returns `hidden_native_logs` for a block that loads a runtime or its first model, unless the logs are wanted.

    `TF_CPP_MIN_LOG_LEVEL=0` and `KERASFORMER_DEBUG` in the environment mean that they are.
    """
    wanted = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" or os.environ.get("KERASFORMER_DEBUG")
    return nullcontext() if wanted else hidden_native_logs()


@contextmanager
def _redirected() -> Iterator[None]:
    """Redirects descriptor 2 to a file from which a thread copies all lines except logs to the standard error."""
    try:
        original = os.dup(2) if hasattr(os, "pread") else None  # Windows has no `pread`
    except OSError:  # the process has no standard error
        original = None
    if original is None:
        yield
        return
    python, ended = sys.stderr, threading.Event()
    with tempfile.TemporaryFile(buffering=0) as log:

        def forward() -> None:
            position = 0
            while not ended.wait(_INTERVAL):
                position = _copy_lines(log, position, original, whole=True)
            _copy_lines(log, position, original, whole=False)

        if python is not None and _descriptor(python) == 2:
            python.flush()
            encoding, errors = python.encoding, python.errors
            sys.stderr = open(original, "w", buffering=1, encoding=encoding, errors=errors, closefd=False)
        own = sys.stderr
        thread = threading.Thread(target=forward, daemon=True)
        thread.start()
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            if python is not None:
                python.flush()
            os.dup2(original, 2)
            if sys.stderr is own:
                sys.stderr = python
            ended.set()
            thread.join()
            if own is not python and own is not None:
                own.flush()
            os.close(original)


def _copy_lines(log: BinaryIO, position: int, target: int, whole: bool) -> int:
    """Copies the lines of a file from a position, except logs; returns the position after them.

    Args:
        log: The file, to whose end other code writes.
        position: Number of bytes that were copied before.
        target: Descriptor of the output.
        whole: Whether to leave a last line without its end for the next call.
    """
    content = os.pread(log.fileno(), os.fstat(log.fileno()).st_size - position, position)
    if whole:
        content = content[: content.rfind(b"\n") + 1]
    kept = _LOG_LINE.sub(b"", content)
    with suppress(OSError):  # nobody reads standard error any more
        while kept:
            kept = kept[os.write(target, kept) :]
    return position + len(content)


def _descriptor(stream: object) -> int | None:
    """Returns the file descriptor of a stream; `None` if it has none, like that of a notebook."""
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None


def free_tensors() -> None:
    """Makes TensorFlow free the memory of tensors that are no longer used, instead of keeping it for other tensors.

    On x86, the allocator of oneDNN keeps it by default. This sets an environment variable, for this process and its
    children, and has an effect only before TensorFlow's first operation. `kerasformer export` calls it, since the
    weights of the Keras model are not needed while a file is written and verified.
    """
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")


def return_memory() -> None:
    """Returns freed memory to the system, also where it lies between blocks in use. Only glibc supports this."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


@contextmanager
def keep_memory() -> Iterator[None]:
    """Keeps freed memory for later blocks, which makes training on a CPU faster. Only glibc supports this.

    By default, large blocks are taken from the system and given back, at each of the thousands of tensors of a training
    step, and the system clears every page again. `kerasformer train` and `kerasformer shrink` use it. Within this
    context, the process keeps the memory of its largest step. Afterwards, the limits of `compact_loading` hold.

        with kerasformer.process.keep_memory():
            model.fit(data)
    """
    mallopt = _mallopt()
    if mallopt is None:
        yield
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        mallopt(_MMAP_MAX, _MAPPED_BLOCKS)
        _limit_heap(mallopt)
        return_memory()


def _limit_heap(mallopt: Callable[[int, int], object]) -> None:
    """Sets the limits that the dynamic adjustment of glibc converges to; they cannot be read, so as to be restored."""
    mallopt(_MMAP_THRESHOLD, 32 * _MEGABYTE)
    mallopt(_TRIM_THRESHOLD, 64 * _MEGABYTE)


def _mallopt() -> Callable[[int, int], object] | None:
    """Returns the function of glibc that changes settings of its allocator; `None` with another C library."""
    return getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None


@contextmanager
def compact_loading() -> Iterator[None]:
    """Lowers the peak memory of opening ONNX bundles within the block, by settings of glibc's allocator.

    ONNX Runtime repacks weights one by one. After a large block is freed, glibc allocates ever larger blocks from its
    heap and keeps the holes that the old weights leave. Within this context, freed blocks of 1 MB and more are returned
    to the system at once. Afterwards, blocks of up to 32 MB are allocated from the heap, and up to 64 MB of it are
    retained. These are the limits that glibc's dynamic adjustment converges to, but the adjustment itself stays
    disabled for the whole process. Speed is unaffected. Has no effect if the C library is not glibc.

        with kerasformer.process.compact_loading():
            pipe = kerasformer.pipeline("out", "text-generation")
    """
    mallopt = _mallopt()
    if mallopt is None:
        yield
        return
    mallopt(_MMAP_THRESHOLD, _MEGABYTE)
    try:
        yield
    finally:
        _limit_heap(mallopt)
