"""`OnnxForward`: encoders on ONNX Runtime. Batch and lengths are free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import (
    INPUT_IDS,
    MODEL,
)
from kerasformer.decoding.arrays import text_arrays
from kerasformer.errors import CapacityError
from kerasformer.runtime.onnx.session import OnnxSession


class OnnxForward:
    """An encoder's bundle; offers `kerasformer.decoding.protocols.Forward`. It may be used by several threads.

    Args:
        folder: The bundle.
        manifest: Its manifest; the signature `model` is used.
        num_threads: CPU threads; ONNX Runtime's choice, all cores, by default.
        providers: ONNX Runtime's execution providers; the CPU by default.
        cache_dir: Taken as other engines take it; nothing is kept, as `OnnxSession` says.
    Raises:
        BundleError: no such signature, or a file that ONNX Runtime cannot load.
        InputError: a provider that the installed ONNX Runtime lacks.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        num_threads: int | None = None,
        providers: Sequence[str] | None = None,
        cache_dir: str | Path | bool | None = None,
    ) -> None:
        self._max_length, self._counts = manifest.info.max_length, manifest.info.counts
        self._session = OnnxSession(folder, manifest, MODEL, num_threads, providers)

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
        feeds = text_arrays(inputs, self._session.signature.inputs, self._counts, "int64")
        length = feeds[INPUT_IDS].shape[1]
        if self._max_length is not None and length > self._max_length:
            raise CapacityError(
                f"The model reads {self._max_length} tokens at most. Received: {length}. Shorten the text"
            )
        outputs = list(self._session.signature.outputs)
        return {name: value.numpy() for name, value in zip(outputs, self._session.call(feeds, outputs), strict=True)}
