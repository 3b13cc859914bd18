"""Memory of this process, from the system's own accounts."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Most memory that this process has had resident, files mapped into it included, in 10^6 bytes."""
    if _STATUS.exists():
        # Not getrusage: on Linux its figure begins with that of the parent process.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource  # not on Windows

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def forget_peak() -> None:
    """Lets `peak_mb` begin anew from what is resident now, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
