"""Engines that run bundles, one for each runtime, and the protocols that every engine implements.

Called by `pipelines.opening` for a bundle, and by `export.verify`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kerasformer import bundle
from kerasformer.basics.arguments import STRING, Arguments, check, instance, integer, optional, sequence
from kerasformer.bundle import Manifest, Role
from kerasformer.engines import weight_cache
from kerasformer.engines.arrays import left_padded, right_padded
from kerasformer.engines.distribution import log_softmax, softmax
from kerasformer.engines.fidelity.comparison import SAME_DIRECTION
from kerasformer.engines.fidelity.references import (
    DEFAULT_TEXTS,
    ENDS_OF_SPANS,
    inputs_of,
    is_hidden_state,
    output_names,
    recorded_entries,
)
from kerasformer.engines.fidelity.verification import verify
from kerasformer.engines.likelihood import log_probabilities, next_distributions, next_log_probabilities
from kerasformer.engines.litert.float_weights import computing_on_cpu, with_float_weights
from kerasformer.engines.litert.gpu_rules import gpu_findings
from kerasformer.engines.protocols import (
    AdaptableEngine,
    Forward,
    JointStep,
    ResumableStep,
    State,
    Step,
    can_rewind,
    check_capacity,
    continues_prompts,
    input_vocab_size,
    read_by_start,
)
from kerasformer.engines.saved_state import SavedState
from kerasformer.engines.weight_cache import user_folder
from kerasformer.engines.whole_texts import WholeTexts
from kerasformer.errors import InputError

__all__ = [
    "AdaptableEngine",
    "DEFAULT_TEXTS",
    "ENDS_OF_SPANS",
    "ENGINES",
    "Forward",
    "JointStep",
    "ResumableStep",
    "SAME_DIRECTION",
    "SavedState",
    "State",
    "Step",
    "WholeTexts",
    "can_rewind",
    "check_capacity",
    "computing_on_cpu",
    "continues_prompts",
    "gpu_findings",
    "input_vocab_size",
    "inputs_of",
    "is_hidden_state",
    "left_padded",
    "log_probabilities",
    "log_softmax",
    "next_distributions",
    "next_log_probabilities",
    "open_engine",
    "output_names",
    "read_by_start",
    "recorded_entries",
    "right_padded",
    "softmax",
    "user_folder",
    "verify",
    "weight_cache",
    "with_float_weights",
]

ENGINES = {"tflite": "litert", "onnx": "onnx", "saved-model": "tensorflow", "table": "numpy"}
"""Engine of each format."""


def open_engine(
    folder: Path,
    manifest: Manifest | None = None,
    num_threads: int | None = None,
    *,
    cache_dir: str | Path | bool | None = None,
    accelerator: str | None = None,
    providers: Sequence[str] | None = None,
) -> Forward | Step:
    """Opens a bundle in its runtime.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle, if it has been read already.
        num_threads: Number of CPU threads; the runtime's default if `None`. TensorFlow uses one setting per process,
            and a table one thread.
        cache_dir: Folder for packed weights, which make later loads faster; `True` for the user's cache folder. Nothing
            is cached by default.
        accelerator: For LiteRT: `"gpu"` or `"npu"`, if the device has one.
        providers: For ONNX Runtime: execution providers in order of preference.

    Returns:
        A `Step` for a model that generates, a `Forward` for any other.

    Raises:
        BundleError: the folder is not a complete bundle.
        InputError: an option that the runtime of the bundle does not support.
        MissingExtraError: the runtime is not installed.
    """
    num_threads = check("num_threads", num_threads, optional(integer(1, max_threads())))
    check("cache_dir", cache_dir, optional(instance("a folder, True or False", str, Path, bool)))
    check("accelerator", accelerator, optional(STRING))
    providers = check("providers", providers, optional(sequence(STRING, least=1)))
    if manifest is None:
        options: Arguments = {"cache_dir": cache_dir, "accelerator": accelerator, "providers": providers}
        return bundle.load(folder, lambda path, loaded: open_engine(path, loaded, num_threads, **options))
    generates = bool(manifest.of_role(Role.DECODE))
    if manifest.format == "tflite":
        _check_absent(manifest, "ONNX", providers=providers)
        from kerasformer.engines.litert import LiteRTForward, LiteRTStep

        litert = LiteRTStep if generates else LiteRTForward
        return litert(folder, manifest, num_threads, cache_dir=cache_dir, accelerator=accelerator)
    _check_absent(manifest, "TFLite", accelerator=accelerator)
    if manifest.format in ("saved-model", "table"):
        _check_absent(manifest, "ONNX", providers=providers)
    if manifest.format == "table":
        from kerasformer.engines.token_table import TableForward

        return TableForward(folder, manifest)
    if manifest.format == "saved-model":
        from kerasformer.engines.saved_model import SavedModelForward, SavedModelStep

        return (SavedModelStep if generates else SavedModelForward)(folder, manifest, num_threads)
    from kerasformer.engines.onnx import OnnxForward, OnnxStep

    onnx = OnnxStep if generates else OnnxForward
    return onnx(folder, manifest, num_threads, providers=providers, cache_dir=cache_dir)


def max_threads() -> int:
    """Returns the maximum number of threads: more than a machine can use, but not so many that runtimes fail."""
    return max(64, 4 * (os.cpu_count() or 1))


def _check_absent(manifest: Manifest, supported: str, **options: object) -> None:
    """Raises `InputError` for options that only bundles of another format support."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} is for {supported} bundles. Expected: {name}=None for the format {manifest.format!r}. "
                f"Received: {name}={value!r}"
            )
