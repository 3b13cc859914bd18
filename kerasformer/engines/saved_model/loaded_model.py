"""A SavedModel loaded by TensorFlow, whose signatures are called by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kerasformer.bundle import Manifest, Signature
from kerasformer.errors import BundleError, InputError
from kerasformer.extras import require

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


class LoadedModel:
    """A loaded SavedModel.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle.
        num_threads: Number of CPU threads of TensorFlow; all cores by default.
    Raises:
        BundleError: TensorFlow cannot load the folder, or it lacks a signature.
        InputError: TensorFlow has started with another number of threads.
    """

    def __init__(self, folder: Path, manifest: Manifest, num_threads: int | None) -> None:
        tf = require("tensorflow", "tensorflow")
        if num_threads is not None:
            _set_threads(tf, num_threads)
        if any("text" in signature.inputs for signature in manifest.signatures.values()):
            require("tensorflow_text", "tftext")  # registers the operators
        self.manifest = manifest
        try:
            self._model = tf.saved_model.load(str(folder))
        except Exception as error:  # TensorFlow's errors have no common base class
            raise BundleError(f"TensorFlow cannot load {folder}: {error}. Export the model again") from error
        if missing := sorted(set(manifest.signatures) - set(self._model.signatures)):
            raise BundleError(
                f"The SavedModel lacks the signatures {missing}. Received: {folder}. Export the model again"
            )

    def signature(self, name: str) -> Signature:
        """Returns the description of a signature in the manifest."""
        if name not in self.manifest.signatures:
            raise BundleError(
                f"A SavedModel of this kind must have the signature {name!r}. "
                f"Received: {list(self.manifest.signatures)}. Export the model again"
            )
        return self.manifest.signatures[name]

    def call(self, name: str, inputs: Mapping[str, np.ndarray | tf.Tensor]) -> dict[str, tf.Tensor]:
        """Runs a signature.

        Args:
            name: Name of the signature.
            inputs: Arrays or tensors by name.
        Returns:
            Tensors by name.
        """
        tf, infos = require("tensorflow", "tensorflow"), self.signature(name).inputs
        tensors = {key: tf.convert_to_tensor(inputs[key], info.dtype) for key, info in infos.items()}
        return dict(self._model.signatures[name](**tensors))


def _set_threads(tf: ModuleType, threads: int) -> None:
    """Sets the number of CPU threads of TensorFlow, which is a setting of the process."""
    settings = tf.config.threading
    if settings.get_intra_op_parallelism_threads() == threads:
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise InputError(
            "num_threads must be set before TensorFlow is first used in a process. "
            f"Received: num_threads={threads!r} afterwards. Leave it out, or open this bundle first"
        ) from error
