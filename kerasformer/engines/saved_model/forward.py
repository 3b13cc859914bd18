"""`SavedModelForward`: encoders on TensorFlow, with any batch size and length."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    INPUT_IDS,
)
from kerasformer.engines.arrays import check_length
from kerasformer.engines.saved_model.loaded_model import LoadedModel
from kerasformer.engines.text_inputs import text_inputs
from kerasformer.errors import BundleError


class SavedModelForward:
    """Runs the bundle of an encoder; implements `kerasformer.engines.protocols.Forward`. It is thread-safe.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; the signature with the input `input_ids` is used.
        num_threads: Number of CPU threads; cannot be changed after TensorFlow has started.
    Raises:
        BundleError: there is no such signature, or TensorFlow cannot load the folder.
        InputError: TensorFlow has started with another number of threads.
    """

    def __init__(self, folder: Path, manifest: Manifest, num_threads: int | None = None) -> None:
        names = [name for name, signature in manifest.signatures.items() if INPUT_IDS in signature.inputs]
        if not names:
            raise BundleError(
                f"A signature with the input input_ids was expected. Received: {list(manifest.signatures)} in {folder}"
            )
        self._loaded, self._name = LoadedModel(folder, manifest, num_threads), names[0]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the model once.

        Args:
            inputs: Integer arrays `(B, T)`: `input_ids` and the other inputs of the model. A missing `attention_mask`
                defaults to ones, other missing arrays to those of the manifest, or zeros.

        Returns:
            float32 arrays by output name.

        Raises:
            CapacityError: the texts exceed the model's maximum length.
            InputError: an input is unknown or has a wrong shape.
        """
        info = self._loaded.manifest.info
        arrays = text_inputs(inputs, self._loaded.signature(self._name), info.counts)
        check_length(arrays[INPUT_IDS].shape[1], info.max_length)
        return {name: tensor.numpy() for name, tensor in self._loaded.call(self._name, arrays).items()}
