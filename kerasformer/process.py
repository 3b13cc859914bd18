"""Settings of the whole process, for programs that own theirs.

Opening or running a bundle changes none of them. The command line makes both; a script or a server may do the same.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MEGABYTE = 1 << 20
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h


def silence_native_logs() -> None:
    """Discards what native code writes to standard error from now on; Python's `sys.stderr` still arrives.

    LiteRT logs some thirty lines when the first model is opened, a few for each further one and two when the process
    ends, and has no setting for it in Python; TensorFlow logs when it is imported. This sends file descriptor 2 to the
    null device and gives `sys.stderr` a descriptor of its own. It holds for the whole process, its threads and the
    child processes that inherit descriptor 2, for crash messages of native code too, and is not undone.

    Loggers that were set up before keep the stream they were given, which is discarded: call this first.
    """
    try:
        own = os.dup(2)
    except OSError:  # the process has no standard error
        return
    if sys.stderr is not None and _descriptor(sys.stderr) == 2:
        sys.stderr.flush()
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = sys.__stderr__ = open(own, "w", buffering=1, encoding=encoding, errors=errors)  # type: ignore[misc]
    else:
        os.close(own)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def _descriptor(stream: object) -> int | None:
    """The file descriptor of a stream; `None` if it has none, such as a notebook's."""
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None


@contextmanager
def compact_loading() -> Iterator[None]:
    """Lowers the peak memory of opening ONNX bundles within the block, by settings of glibc's allocator.

    ONNX Runtime lays weights out anew one by one. glibc takes ever larger blocks from its heap once a large one was
    freed, and keeps the holes that the old layouts leave. Within the block, freed blocks of 1 MB and more go back to
    the system at once. Afterwards blocks of up to 32 MB come from the heap, and up to 64 MB of it are kept: those are
    the limits that glibc's own adjustment ends at, but it no longer adjusts them, for the whole process. Speed is the
    same. Does nothing where the C library is not glibc.

        with kerasformer.process.compact_loading():
            pipe = kerasformer.pipeline("text-generation", "out")
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        yield
        return
    mallopt(_MMAP_THRESHOLD, _MEGABYTE)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, 32 * _MEGABYTE)
        mallopt(_TRIM_THRESHOLD, 64 * _MEGABYTE)
