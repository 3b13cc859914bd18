"""A SavedModel, loaded by TensorFlow: its signatures are called by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import BundleError, CapacityError, InputError, argument, require


class LoadedModel:
    """A SavedModel and its signatures.

    Args:
        folder: The bundle.
        manifest: Its manifest.
        num_threads: CPU threads of TensorFlow, all cores by default.
    Raises:
        BundleError: TensorFlow cannot load it.
        InputError: TensorFlow has started with other threads.
    """

    def __init__(self, folder: Path, manifest: Manifest, num_threads: int | None) -> None:
        tf = require("tensorflow", "tensorflow")
        if num_threads is not None:
            _limit(tf, num_threads)
        if any("text" in signature.inputs for signature in manifest.signatures.values()):
            require("tensorflow_text", "tftext")  # registers the operators
        self.manifest = manifest
        try:
            self._model = tf.saved_model.load(str(folder))
        except Exception as error:  # TensorFlow's errors have no common base
            raise BundleError(f"TensorFlow cannot load {folder}: {error}. Export it again") from error
        if missing := sorted(set(manifest.signatures) - set(self._model.signatures)):
            raise BundleError(f"The SavedModel lacks the signatures {missing}. Received: {folder}. Export it again")

    def signature(self, name: str) -> Signature:
        """What the manifest says of a signature."""
        if name not in self.manifest.signatures:
            raise BundleError(
                f"A SavedModel of this kind has the signature {name!r}. Received: {list(self.manifest.signatures)}. "
                "Export it again"
            )
        return self.manifest.signatures[name]

    def call(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a signature; arrays or tensors in, tensors out."""
        tf, infos = require("tensorflow", "tensorflow"), self.signature(name).inputs
        given = {key: tf.convert_to_tensor(inputs[key], info.dtype) for key, info in infos.items()}
        return dict(self._model.signatures[name](**given))


def _limit(tf: Any, threads: int) -> None:
    """CPU threads of TensorFlow, which are those of the process."""
    settings = tf.config.threading
    if settings.get_intra_op_parallelism_threads() == threads:
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise InputError(
            "num_threads must be set before TensorFlow does anything in a process. "
            f"Received: {argument('num_threads', threads)} afterwards. Leave it out, or open this bundle first"
        ) from error


def check_length(length: int, limit: int | None) -> None:
    """Raises `CapacityError` for a text that is longer than the model reads."""
    if limit is not None and length > limit:
        raise CapacityError(f"The model reads {limit} tokens at most. Received: {length}. Shorten the text")
