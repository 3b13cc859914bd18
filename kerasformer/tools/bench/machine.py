"""The machine and the software of a measurement, and the memory of the current process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_PACKAGES = (
    "kerasformer",
    "numpy",
    "ai-edge-litert",
    "litert-lm-api",
    "onnxruntime",
    "onnxruntime-genai",
    "keras",
    "tensorflow",
)


def machine() -> dict[str, object]:
    """Returns the processor, the number of CPUs available to this process, and the system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return {"cpu": model, "cpus": cpus, "system": platform.platform(), "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    installed = {}
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


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


def reset_peak() -> None:
    """Resets the value of `peak_mb` to the memory that is resident now; has an effect on Linux only."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
