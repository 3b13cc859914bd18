"""Description of the machine and the software of a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path

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


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    installed = {}
    for name in packages:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
