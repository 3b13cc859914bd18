"""The Vulkan driver on which LiteRT's GPU delegate runs: that of the machine, or one in software of a browser."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Mapping
from glob import glob
from pathlib import Path

from kerasformer.errors import InputError

DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Variables of Vulkan's loader that name drivers; the second is the older one."""
_SYSTEM = ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_DEVICES = ("/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/dxg")
"""Files of GPUs in Linux, for Mesa's drivers, NVIDIA's, and in Windows' subsystem."""
_SOFTWARE = (
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib64/chromium-browser/vk_swiftshader_icd.json",
    "/opt/google/chrome/vk_swiftshader_icd.json",
)
_HELP = "on Debian: apt-get install --no-install-recommends libvulkan1 chromium, whose SwiftShader needs no GPU"


def find_driver(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that a process needs to find a Vulkan driver.

    Variables that are set are kept. Without them, the machine's own drivers come first if it has a GPU, and last if it
    has none: Mesa's driver in software may be too old for the delegate. SwiftShader is in Chromium and Chrome.

    Args:
        environment: Environment of this process.

    Raises:
        InputError: There is no Vulkan loader or no driver, or the system is not Linux.
    """
    if sys.platform != "linux":
        raise InputError(
            f"A check on the GPU needs Linux with a Vulkan driver. Received: {sys.platform}. Run it in a container"
        )
    if ctypes.util.find_library("vulkan") is None:
        raise InputError(f"A check on the GPU needs Vulkan's loader, libvulkan.so.1, which was not found; {_HELP}")
    for variable in DRIVER_VARIABLES:
        named = environment.get(variable)
        if named:
            missing = [path for path in named.split(os.pathsep) if not Path(path).exists()]
            if missing:
                raise InputError(f"{variable} must name files of Vulkan drivers. Received: {missing[0]}, which is none")
            return {variable: named}
    installed = any(next(Path(folder).glob("*.json"), None) for folder in _SYSTEM)
    if installed and any(glob(pattern) for pattern in _DEVICES):
        return {}
    for path in _SOFTWARE:
        if Path(path).exists():
            return {DRIVER_VARIABLES[1]: path}
    if installed:
        return {}
    searched = ", ".join((*_SYSTEM, *_SOFTWARE))
    raise InputError(f"A check on the GPU needs a Vulkan driver. Found: none in {searched}; {_HELP}")
