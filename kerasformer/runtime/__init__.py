"""Bundles in their runtimes: one engine each, behind the protocols of `kerasformer.decoding`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerasformer import bundle
from kerasformer.arguments import STRING, check, instance, integer, optional, sequence
from kerasformer.bundle import Manifest, Role
from kerasformer.decoding import Forward, Step
from kerasformer.errors import InputError

__all__ = ["ENGINES", "open_engine"]

ENGINES = {"tflite": "litert", "onnx": "onnx", "saved-model": "tensorflow"}
"""What runs each format."""


def open_engine(
    folder: Path,
    manifest: Manifest | None = None,
    num_threads: int | None = None,
    *,
    cache_dir: str | Path | bool | None = None,
    accelerator: str | None = None,
    providers: Sequence[str] | None = None,
) -> Forward | Step:
    """The engine for a bundle.

    Args:
        folder: The bundle.
        manifest: Its manifest, if it has been read already.
        num_threads: Threads of the runtime; all cores by default. TensorFlow has one number for a process.
        cache_dir: Folder for what the runtime prepares at a first load and finds at the next ones; `True` for that of
            the user. Nothing is kept by default.
        accelerator: For LiteRT: `"gpu"` or `"npu"`, where the device has one.
        providers: For ONNX Runtime: its execution providers, the preferred one first.

    Raises:
        BundleError: the folder is no whole bundle.
        InputError: an option that the runtime of the bundle does not have.
        MissingExtraError: its runtime is not installed.
    """
    num_threads = check("num_threads", num_threads, optional(integer(1, max_threads())))
    check("cache_dir", cache_dir, optional(instance("a folder, True or False", str, Path, bool)))
    check("accelerator", accelerator, optional(STRING))
    providers = check("providers", providers, optional(sequence(STRING, least=1)))
    if manifest is None:
        options: dict[str, Any] = {"cache_dir": cache_dir, "accelerator": accelerator, "providers": providers}
        return bundle.load(folder, lambda path, read: open_engine(path, read, num_threads, **options))
    writes = bool(manifest.of_role(Role.DECODE))
    if manifest.format == "tflite":
        _check_absent(manifest, "ONNX", providers=providers)
        from kerasformer.runtime.litert import LiteRTForward, LiteRTStep

        litert = LiteRTStep if writes else LiteRTForward
        return litert(folder, manifest, num_threads, cache_dir=cache_dir, accelerator=accelerator)
    _check_absent(manifest, "TFLite", accelerator=accelerator)
    if manifest.format == "saved-model":
        _check_absent(manifest, "ONNX", providers=providers)
        from kerasformer.runtime.saved_model import SavedModelForward, SavedModelStep

        return (SavedModelStep if writes else SavedModelForward)(folder, manifest, num_threads)
    from kerasformer.runtime.onnx import OnnxForward, OnnxStep

    onnx = OnnxStep if writes else OnnxForward
    return onnx(folder, manifest, num_threads, providers=providers, cache_dir=cache_dir)


def max_threads() -> int:
    """Most threads that a runtime is given: more than a machine has use for, and fewer than runtimes fail with."""
    return max(64, 4 * (os.cpu_count() or 1))


def _check_absent(manifest: Manifest, owner: str, **options: object) -> None:
    """Refuses options that only bundles of another format have."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} is for {owner} bundles. Expected: {name}=None for the format {manifest.format!r}. "
                f"Received: {name}={value!r}"
            )
