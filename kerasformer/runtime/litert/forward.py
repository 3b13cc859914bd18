"""`LiteRTForward`: encoders on LiteRT.

A TFLite file has static shapes. Texts of a batch are therefore read one by one, each at the smallest length that it
fits.
"""

from __future__ import annotations

from pathlib import Path
from threading import RLock

import numpy as np

from kerasformer.bundle import Manifest, Role
from kerasformer.decoding.arrays import text_arrays
from kerasformer.runtime.litert.signatures import (
    by_length,
    open_file,
    per_token,
    row_lengths,
    smallest,
)


class LiteRTForward:
    """An encoder's bundle; offers `kerasformer.decoding.protocols.Forward`.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signatures of the role `forward` are used.
        num_threads: CPU threads; as many as there are CPUs, at most 8, by default.
        cache_dir: Folder for packed weights, which make the next start faster at the cost of as much disk.
        accelerator: `"gpu"` or `"npu"`.
    Raises:
        BundleError: no such signature, or a file that LiteRT cannot load.
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
        self._pad, self._counts = manifest.info.pad_token_id or 0, manifest.info.counts
        self._engine = open_file(folder, manifest, num_threads, cache_dir, accelerator)
        self._lock = RLock()

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs every row at the smallest length that holds it.

        Args:
            inputs: `(B, T)` integers: `input_ids`, and what else the model takes. A missing `attention_mask` is all
                ones, missing `token_type_ids` are zeros.

        Returns:
            float32 `(B, …)`; outputs with an entry for each token are `(B, T, …)`, zeros for padding.

        Raises:
            CapacityError: a text is longer than the longest signature.
            InputError: an input that the model does not take, or of another shape.
        """
        arrays, lengths = self._checked(inputs)
        batch, width = arrays["input_ids"].shape
        results: dict[str, np.ndarray] = {}
        with self._lock:
            for row, length in enumerate(lengths):
                size, name, signature = smallest(self._signatures, length, "text")
                outputs = self._engine.run(name, self._padded(arrays, row, length, size))
                for key in signature.outputs:
                    value = outputs[key]
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
        """All inputs that the signatures take, and the length of each row without the padding on its right."""
        arrays = text_arrays(inputs, next(iter(self._signatures.values()))[1].inputs, self._counts)
        mask = arrays.get("attention_mask")
        return arrays, row_lengths(np.ones_like(arrays["input_ids"]) if mask is None else mask)

    def _padded(self, arrays: dict[str, np.ndarray], row: int, length: int, size: int) -> dict[str, np.ndarray]:
        padded = {}
        for name, array in arrays.items():
            padded[name] = np.full((1, size), self._pad if name == "input_ids" else 0, np.int32)
            padded[name][0, :length] = array[row, :length]
        return padded
