"""`OnnxForward`: encoders on ONNX Runtime, with any batch size and length."""

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
    """Runs the bundle of an encoder; implements `kerasformer.decoding.protocols.Forward`. It is thread-safe.

    Args:
        folder: Folder of the bundle.
        manifest: Manifest of the bundle; the signature `model` is used.
        num_threads: Number of CPU threads; ONNX Runtime's default, all cores, if `None`.
        providers: Execution providers of ONNX Runtime; the CPU by default.
        cache_dir: Ignored; accepted for compatibility with other engines, see `OnnxSession`.
    Raises:
        BundleError: there is no such signature, or ONNX Runtime cannot load the file.
        InputError: the installed ONNX Runtime lacks a provider.
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
            inputs: Integer arrays `(B, T)`: `input_ids` and the other inputs of the model. A missing `attention_mask`
                defaults to ones, missing `token_type_ids` to zeros.

        Returns:
            float32 arrays by output name.

        Raises:
            CapacityError: the texts exceed the model's maximum length.
            InputError: an input is unknown or has a wrong shape.
        """
        feeds = text_arrays(inputs, self._session.signature.inputs, self._counts, "int64")
        length = feeds[INPUT_IDS].shape[1]
        if self._max_length is not None and length > self._max_length:
            raise CapacityError(
                f"The model accepts at most {self._max_length} tokens. Received: {length}. Shorten the text"
            )
        outputs = list(self._session.signature.outputs)
        return {name: value.numpy() for name, value in zip(outputs, self._session.call(feeds, outputs), strict=True)}
