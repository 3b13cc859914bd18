"""`SavedModelForward`: encoders on TensorFlow. Batch and lengths are free."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    INPUT_IDS,
)
from kerasformer.decoding.arrays import text_arrays
from kerasformer.errors import BundleError
from kerasformer.runtime.saved_model.loaded_model import LoadedModel, check_length


class SavedModelForward:
    """An encoder's bundle; offers `kerasformer.decoding.protocols.Forward`. It may be used by several threads.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signature that takes `input_ids` is used.
        num_threads: CPU threads of TensorFlow; it must not have started with others.
    Raises:
        BundleError: no such signature, or a folder that TensorFlow cannot load.
        InputError: TensorFlow has started with other threads.
    """

    def __init__(self, folder: Path, manifest: Manifest, num_threads: int | None = None) -> None:
        readers = [name for name, signature in manifest.signatures.items() if INPUT_IDS in signature.inputs]
        if not readers:
            raise BundleError(f"No signature takes input_ids. Received: {list(manifest.signatures)} in {folder}")
        self._loaded, self._name = LoadedModel(folder, manifest, num_threads), readers[0]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the model once.

        Args:
            inputs: `(B, T)` integers: `input_ids`, and what else the model takes. A missing `attention_mask` is all
                ones, missing `token_type_ids` are zeros.

        Returns:
            float32 arrays.

        Raises:
            CapacityError: the texts are longer than the model reads.
            InputError: an input that the model does not take, or of another shape.
        """
        info = self._loaded.manifest.info
        given = text_arrays(inputs, self._loaded.signature(self._name).inputs, info.counts)
        check_length(given[INPUT_IDS].shape[1], info.max_length)
        return {name: tensor.numpy() for name, tensor in self._loaded.call(self._name, given).items()}
