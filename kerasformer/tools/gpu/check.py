"""Runs a TFLite file on LiteRT's GPU delegate in a process of its own, and reads what it did."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kerasformer import bundle
from kerasformer.bundle import GpuFinding
from kerasformer.engines import gpu_findings
from kerasformer.errors import BundleError, InputError
from kerasformer.extras import require
from kerasformer.tools.gpu import delegate
from kerasformer.tools.gpu.driver import find_driver

MAX_ERROR = 1e-3
"""Largest difference of an output, relative to its largest value, with weights and activations in float32."""
SHARES = (1.0, 0.7, 0.1)
"""Shares of a mask that are tokens; one text without padding, one with some and one with much."""
_SPLIT = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+) operations will run on the CPU")
_REFUSED = re.compile(r"^([A-Z0-9_]+): .+", re.MULTILINE)
_LEVELS = ("INFO", "WARNING", "ERROR", "VERBOSE")
_FATAL = re.compile(r"(?:Check failed|^F\d{4} |RuntimeError|ValueError|ERROR: )(.*)")
_ADAPTER = re.compile(r"Selected adapter: ([^,\n]+)")


@dataclass(frozen=True)
class GpuOutput:
    """An output of a signature, on the GPU and on the CPU.

    Attributes:
        signature: Name of the signature.
        output: Name of the output.
        error: Largest difference, relative to the largest value of the CPU; of all samples.
        not_finite: Numbers that only the GPU has as infinite or NaN.
        choices: Rows whose largest entry is another one, apart from ties.
    """

    signature: str
    output: str
    error: float
    not_finite: int
    choices: int

    def is_right(self, limit: float = MAX_ERROR) -> bool:
        """Returns whether the GPU computed what the CPU did, within the limit of the relative error."""
        return self.error <= limit and not self.not_finite and not self.choices


@dataclass(frozen=True)
class GpuReport:
    """What LiteRT's GPU delegate did with a file.

    Attributes:
        path: The file.
        adapter: The GPU, as its driver names it; empty if none was opened.
        findings: What the rules found in the file; see `kerasformer.bundle.GpuFinding`.
        refused: Operators that the delegate left to the CPU, each with its reason.
        on_cpu: Number of these operators, in all signatures.
        outputs: The outputs of all signatures; those before a failure, if there was one.
        failure: Why the file could not be run to its end; `None` if it was.
        seconds: How long it took, most of it to compile shaders.
    """

    path: Path
    adapter: str
    findings: tuple[GpuFinding, ...]
    refused: tuple[str, ...]
    on_cpu: int
    outputs: tuple[GpuOutput, ...]
    failure: str | None
    seconds: float

    def is_right(self, limit: float = MAX_ERROR) -> bool:
        """Returns whether every output is what the CPU computed, within the limit of the relative error."""
        return self.failure is None and all(output.is_right(limit) for output in self.outputs)

    def worst_outputs(self) -> list[GpuOutput]:
        """Returns the output of each signature that differs most from the CPU."""
        worst: dict[str, GpuOutput] = {}
        for output in self.outputs:
            known = worst.setdefault(output.signature, output)
            worst[output.signature] = max(known, output, key=lambda one: (one.not_finite, one.choices, one.error))
        return list(worst.values())

    def verdict(self, limit: float = MAX_ERROR) -> str:
        """Returns a sentence on whether the GPU computed what the CPU did."""
        if self.failure is not None:
            return f"not run to its end: {self.failure}"
        wrong = [output for output in self.outputs if not output.is_right(limit)]
        if wrong:
            return f"wrong: {len(wrong)} of {len(self.outputs)} outputs differ by more than {limit:g} of their values"
        return f"right: the largest error of {len(self.outputs)} outputs is at most {limit:g} of their largest values"

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON values."""
        return {**asdict(self), "path": str(self.path)}


def check_gpu(
    source: str | Path,
    half: bool = False,
    shares: Sequence[float] = SHARES,
    window: int | None = None,
    timeout: float = 300.0,
) -> GpuReport:
    """Runs every signature of a TFLite file on LiteRT's GPU delegate and on the CPU, and compares their outputs.

    Inputs are random, masks have several shares of padding, and positions are at the beginning, in the middle and at
    the end of the window. The delegate runs in a process of its own, which it may end. Without a GPU, it runs on a
    driver in software; other GPUs, with OpenCL instead of Vulkan, may give other results.

    Args:
        source: Folder of a bundle, or path of any TFLite file.
        half: Whether to compute in 16-bit floats, as phones do by default, instead of 32-bit floats.
        shares: Shares of each mask that are tokens.
        window: Number of positions of a decoder; by default, that of the bundle, or of the caches of a file.
        timeout: Seconds after which the process is ended.

    Raises:
        InputError: There is no Vulkan driver, or the shares are not between 0 and 1.
        BundleError: The folder is no TFLite bundle, or the file is none of TFLite.
        MissingExtraError: LiteRT is not installed.
    """
    require("ai_edge_litert", "litert")
    if not shares or not all(0 < share <= 1 for share in shares):
        raise InputError(f"shares must be numbers above 0, up to 1. Received: {tuple(shares)}")
    path, capacity = _file(Path(source))
    findings = gpu_findings(path)
    question = {"path": str(path), "half": half, "window": window or capacity, "shares": list(shares), "num_threads": 2}
    start = time.perf_counter()
    process = [sys.executable, str(Path(delegate.__file__)), json.dumps(question)]
    environment = {**os.environ, **find_driver(), "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        ended = subprocess.run(
            process, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment
        )
        output, log, code = ended.stdout, ended.stderr, ended.returncode
    except subprocess.TimeoutExpired as error:
        output, log = (_text(stream) for stream in (error.stdout, error.stderr))
        code = None
    failure = None if code == 0 else _failure(log, code, timeout)
    adapter = _ADAPTER.search(log)
    if failure is None and adapter is None:
        failure = "no GPU was opened: the delegate could not be loaded, or the driver refused it"
    refused = {
        match.group()
        for part in log.split("not supported by GPU delegate:\n")[1:]
        for match in _REFUSED.finditer(part)
        if match.group(1) not in _LEVELS
    }
    return GpuReport(
        path,
        adapter.group(1) if adapter else "",
        findings,
        tuple(sorted(refused)),
        sum(int(match.group(2)) for match in _SPLIT.finditer(log)),
        _outputs(output),
        failure,
        time.perf_counter() - start,
    )


def _file(source: Path) -> tuple[Path, int | None]:
    """Returns the file to run, and the number of tokens of its window, if the manifest has it."""
    if source.is_file():
        return source, None
    manifest = bundle.read(source)
    if manifest.format != "tflite":
        raise BundleError(
            f"A check on the GPU is for bundles of the format tflite. Received: {manifest.format}, in {source}"
        )
    files = sorted({signature.file for signature in manifest.signatures.values()})
    return source / files[0], manifest.capacity


def _text(stream: bytes | str | None) -> str:
    return stream.decode(errors="replace") if isinstance(stream, bytes) else stream or ""


def _failure(log: str, code: int | None, timeout: float) -> str:
    """Returns why the process ended early."""
    if code is None:
        return f"it did not end within {timeout:.0f} seconds: its shaders take longer to compile, or it hangs"
    reasons = [line.strip() for line in log.splitlines() if _FATAL.search(line) and "plugin" not in line]
    how = f"the delegate ended the process ({signal.Signals(-code).name})" if code < 0 else "LiteRT refused it"
    return f"{how}: {reasons[-1][:300] if reasons else 'it gave no reason'}"


def _outputs(output: str) -> tuple[GpuOutput, ...]:
    """Returns the outputs, each with the largest values of all its samples."""
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in output.splitlines():
        if line.startswith(delegate.RESULT):
            row = json.loads(line.removeprefix(delegate.RESULT))
            samples.setdefault((row["signature"], row["output"]), []).append(row)
    return tuple(
        GpuOutput(
            signature,
            name,
            max(row["error"] / (row["largest"] or 1.0) for row in rows),
            sum(row["not_finite"] for row in rows),
            sum(row["choices"] for row in rows),
        )
        for (signature, name), rows in samples.items()
    )
