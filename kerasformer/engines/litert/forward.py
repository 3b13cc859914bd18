"""`LiteRTForward`: encoders on LiteRT.

Shapes in a TFLite file are static. The texts of a batch are therefore processed one by one, each by the signature with
the smallest sufficient length.
"""

from __future__ import annotations

from pathlib import Path
from threading import RLock

import numpy as np

from kerasformer.bundle import Manifest, Role
from kerasformer.bundle.adapters import Adapter
from kerasformer.bundle.interface import OWN_LENGTHS
from kerasformer.engines.arrays import row_lengths, row_slots
from kerasformer.engines.litert.held_adapter import HeldAdapter
from kerasformer.engines.litert.signatures import (
    by_length,
    holding,
    open_file,
    per_token,
    smallest,
)
from kerasformer.engines.text_inputs import text_inputs


class LiteRTForward:
    """Runs the bundle of an encoder; implements `kerasformer.engines.protocols.Forward`.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; signatures of the role `forward` are used.
        num_threads: Number of CPU threads; by default the number of CPUs, at most 8.
        cache_dir: Folder for packed weights, which make later loads faster and take as much disk space as the model.
        accelerator: `"gpu"` or `"npu"`.
    Raises:
        BundleError: there is no such signature, or LiteRT cannot load the file.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        *,
        cache_dir: str | Path | bool | None = None,
        accelerator: str | None = None,
    ) -> None:
        self._signatures = by_length(manifest, Role.FORWARD)
        self._per_token = per_token(self._signatures)
        self._pad, self._counts = manifest.info.input_padding, manifest.info.counts
        self._engine = open_file(folder, manifest, num_threads, cache_dir, accelerator)
        self._lock = RLock()
        self._adapter = HeldAdapter(self._engine, manifest)

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`."""
        with self._lock:
            self._adapter.set(adapter)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs each row at the smallest sufficient length.

        Args:
            inputs: Integer arrays `(B, T)`: `input_ids` and the other inputs of the model. A missing `attention_mask`
                defaults to ones, other missing arrays to those of the manifest, or zeros.

        Returns:
            float32 arrays `(B, …)` by name; outputs with an entry for each token are `(B, T, …)`, zero for padding.

        Raises:
            CapacityError: a text is longer than the longest signature.
            InputError: an input is unknown or has a wrong shape.
        """
        arrays, lengths = self._checked(inputs)
        batch, width = arrays["input_ids"].shape
        results: dict[str, np.ndarray] = {}
        with self._lock:
            for row, length in enumerate(lengths):
                sizes = {key: row_slots(arrays[key][row]) for key in OWN_LENGTHS if key in arrays}
                size, name, signature = smallest(holding(self._signatures, sizes), length, "text")
                padded = self._padded(arrays, row, length, size)
                for key, count in sizes.items():
                    padded[key] = np.full((1, int(signature.inputs[key].shape[1])), -1, np.int32)
                    padded[key][0, :count] = arrays[key][row, :count]
                outputs = self._engine.run(name, padded, self._adapter.held[name])
                for key in signature.outputs:
                    value = outputs[key]
                    if sizes:
                        words, labels = sizes.values()
                        if key not in results:
                            widths = (arrays[name].shape[1] for name in OWN_LENGTHS)
                            results[key] = np.zeros((batch, next(widths), value.shape[2], next(widths)), np.float32)
                        results[key][row, :words, :, :labels] = value[0, :words, :, :labels]
                        continue
                    tokens = key in self._per_token
                    if key not in results:
                        shape = (batch, width, *value.shape[2:]) if tokens else (batch, *value.shape[1:])
                        results[key] = np.zeros(shape, np.float32)
                    if tokens:
                        results[key][row, :length] = value[0, :length]
                    else:
                        results[key][row] = value[0]
        return results

    def _checked(self, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[int]]:
        """Returns all inputs of the signatures, and the length of each row without padding on its right."""
        arrays = text_inputs(inputs, next(iter(self._signatures.values()))[1], self._counts)
        mask = arrays.get("attention_mask")
        return arrays, row_lengths(np.ones_like(arrays["input_ids"]) if mask is None else mask).tolist()

    def _padded(self, arrays: dict[str, np.ndarray], row: int, length: int, size: int) -> dict[str, np.ndarray]:
        padded = {}
        for name, array in arrays.items():
            if name in OWN_LENGTHS:
                continue
            padded[name] = np.full((1, size), self._pad if name == "input_ids" else 0, np.int32)
            padded[name][0, :length] = array[row, :length]
        return padded
