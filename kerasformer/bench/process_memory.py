"""Memory of the current process, as reported by the operating system."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from kerasformer.errors import InputError

_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Returns the peak resident memory of this process, including mapped files, in 10^6 bytes."""
    if _STATUS.exists():
        # Not getrusage: on Linux its value starts with that of the parent process.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource  # not available on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def resident_mb() -> float:
    """Returns the resident memory of this process, including mapped files, in 10^6 bytes; Linux only.

    Raises:
        InputError: the system is not Linux.
    """
    if not _STATUS.exists():
        raise InputError(f"The resident memory is read from {_STATUS}. Expected: Linux. Received: {sys.platform}")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024 / 1e6


def reset_peak() -> None:
    """Resets the value of `peak_mb` to the memory that is resident now; has an effect on Linux only."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
