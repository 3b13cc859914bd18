"""`TableForward`: static embeddings, a table of token vectors and their mean, in NumPy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kerasformer.bundle import SENTENCE_EMBEDDING, Manifest
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    INPUT_IDS,
    LAST_HIDDEN_STATE,
    MODEL,
    TABLE,
    TABLE_BITS,
    TABLE_SCALES,
    TABLE_SKIPPED,
)
from kerasformer.engines.text_inputs import text_inputs
from kerasformer.errors import BundleError
from kerasformer.files.sources import inside
from kerasformer.files.tensors import mapped_tensors


class TableForward:
    """Runs a bundle of static embeddings; implements `kerasformer.engines.protocols.Forward`. It is thread-safe.

    The file is mapped into memory, and only the rows of a text's tokens are read.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; the signature `model` is used.
    Raises:
        BundleError: there is no such signature, or the table does not have the shape that the manifest states.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        if MODEL not in manifest.signatures:
            raise BundleError(f"The signature {MODEL} was expected. Received: {list(manifest.signatures)} in {folder}")
        self._info, self._signature = manifest.info, manifest.signatures[MODEL]
        path = inside(folder, self._signature.file)
        self._tensors = mapped_tensors(path)
        self._bits = next((bits for bits, name in TABLE_BITS.items() if name in self._tensors), 32)
        self._skipped = self._tensors.get(TABLE_SKIPPED, np.zeros(0, np.int32))
        (output,) = self._signature.outputs.values()
        self._size = int(output.shape[-1])
        expected: dict[str, tuple[int, ...]] = {TABLE: (self._info.vocab_size, self._size)}
        if self._bits != 32:
            width = -(-self._size * self._bits // 8)
            expected = {TABLE_BITS[self._bits]: (self._info.vocab_size, width), TABLE_SCALES: (self._info.vocab_size,)}
        received = {name: self._tensors[name].shape for name in self._tensors if name != TABLE_SKIPPED}
        if received != expected:
            raise BundleError(
                f"{path} must have a row for each token of the vocabulary. Expected: {expected}. Received: {received}. "
                "Export the model again"
            )

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Looks up the tokens' vectors and averages them.

        Args:
            inputs: Integer arrays `(B, T)`: `input_ids` and `attention_mask`, which is 1 by default.

        Returns:
            By the output's name, the embeddings `(B, E)`, or the vectors of the tokens `(B, T, E)`: float32.

        Raises:
            InputError: an input is unknown or has a wrong shape, or an id is not in the vocabulary.
        """
        arrays = text_inputs(inputs, self._signature, self._info.counts)
        ids, mask = arrays[INPUT_IDS], arrays[ATTENTION_MASK]
        if LAST_HIDDEN_STATE in self._signature.outputs:
            return {LAST_HIDDEN_STATE: self._rows(ids)}
        counted = (mask > 0) & ~np.isin(ids, self._skipped)
        means = np.zeros((len(ids), self._size), np.float32)
        for mean, row, chosen in zip(means, ids, counted, strict=True):
            if chosen.any():
                mean[:] = self._rows(row[chosen]).mean(axis=0)
        if self._info.embedding is not None and self._info.embedding.normalized:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        return {SENTENCE_EMBEDDING: means}

    def _rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns the vectors of tokens `(…)` as float32 `(…, E)`."""
        if self._bits == 32:
            return np.asarray(self._tensors[TABLE][ids])
        levels = self._tensors[TABLE_BITS[self._bits]][ids]
        if self._bits == 4:
            levels = np.stack([levels & 0x0F, levels >> 4], axis=-1).reshape(*ids.shape, -1)[..., : self._size]
        centred = levels.astype(np.float32) - (1 << (self._bits - 1))
        rows: np.ndarray = centred * self._tensors[TABLE_SCALES][ids][..., None]
        return rows
