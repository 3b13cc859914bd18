"""Bundles in their runtimes: one engine each, behind the protocols of `kerasformer.decoding`."""

from __future__ import annotations

from pathlib import Path

from kerasformer import bundle
from kerasformer.bundle import Manifest
from kerasformer.decoding import Forward, Step

__all__ = ["open_engine"]


def open_engine(folder: Path, manifest: Manifest | None = None, num_threads: int | None = None) -> Forward | Step:
    """The engine for a bundle.

    Args:
        folder: The bundle.
        manifest: Its manifest, if it has been read already.
        num_threads: Threads of the runtime; all cores by default.

    Raises:
        BundleError: the folder is no whole bundle.
        MissingExtraError: its runtime is not installed.
    """
    manifest = manifest or bundle.read(folder)
    writes = any("logits" in signature.outputs and _has_cache(signature) for signature in manifest.signatures.values())
    if manifest.format == "tflite":
        from kerasformer.runtime.litert import LiteRTForward, LiteRTStep

        return (LiteRTStep if writes else LiteRTForward)(folder, manifest, num_threads)
    from kerasformer.runtime.onnx_runtime import OnnxForward, OnnxStep

    return (OnnxStep if writes else OnnxForward)(folder, manifest, num_threads)


def _has_cache(signature: bundle.Signature) -> bool:
    return any(name.startswith(("kv_cache", "past_key_values")) for name in signature.inputs)
