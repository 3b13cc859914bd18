"""Runs TFLite files on LiteRT's GPU delegate and compares every output with the CPU.

`delegate.py` is the process that opens the file, since the delegate may end it; `check.py` starts it and reads its log;
`driver.py` finds a Vulkan driver, if need be one in software.
"""

from kerasformer.tools.gpu.check import GpuOutput, GpuReport, check_gpu
from kerasformer.tools.gpu.driver import find_driver

__all__ = ["GpuOutput", "GpuReport", "check_gpu", "find_driver"]
