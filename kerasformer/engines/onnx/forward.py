"""`OnnxForward`: encoders on ONNX Runtime, with any batch size and length.

On a CPU, the hidden states of a large batch do not fit the caches of the cores, so that each text takes up to twice as
long as alone. The rows of a batch are therefore computed in groups of similar length, without padding.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kerasformer.bundle import Manifest
from kerasformer.bundle.adapters import Adapter
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    INPUT_IDS,
    MODEL,
    OWN_LENGTHS,
)
from kerasformer.engines.adapter_inputs import AdapterInputs
from kerasformer.engines.arrays import check_length, row_lengths, similar_rows
from kerasformer.engines.onnx.session import OnnxSession
from kerasformer.engines.text_inputs import text_inputs

_SLOTS_PER_THREAD = 64
"""Number of tokens of one call for each thread; a longer text is computed alone."""


class OnnxForward:
    """Runs the bundle of an encoder; implements `kerasformer.engines.protocols.Forward`. It is thread-safe.

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
        self._adapter = AdapterInputs(manifest.signatures.values(), manifest.info.name, rank_first=False)
        self._session.hold(self._adapter.arrays)
        self._slots = _SLOTS_PER_THREAD * (num_threads or os.cpu_count() or 1) if self._session.on_cpu else None

    def set_adapter(self, adapter: Adapter | None) -> None:
        """Runs the model with an adapter, or without; see `AdaptableEngine.set_adapter`.

        Not while another thread runs the model, which would read parts of both.
        """
        self._adapter.set(adapter)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the model: once, or on a CPU once for each group of rows of similar length.

        Args:
            inputs: Integer arrays `(B, T)`: `input_ids` and the other inputs of the model. A missing `attention_mask`
                defaults to ones, other missing arrays to those of the manifest, or zeros.

        Returns:
            float32 arrays `(B, …)` by output name. On a CPU, outputs with an entry for each token are zero for padding
            on the right.

        Raises:
            CapacityError: the texts exceed the model's maximum length.
            InputError: an input is unknown or has a wrong shape.
        """
        feeds = text_inputs(inputs, self._session.signature, self._counts, "int64")
        length = feeds[INPUT_IDS].shape[1]
        check_length(length, self._max_length)
        if self._slots is None:
            return self._call(feeds)
        mask = feeds.get(ATTENTION_MASK)
        lengths = row_lengths(np.ones_like(feeds[INPUT_IDS]) if mask is None else mask)
        groups = similar_rows(lengths, len(lengths), self._slots)
        results: dict[str, np.ndarray] = {}
        for rows in groups:
            width = int(lengths[rows].max())
            part = {name: array[rows] if name in OWN_LENGTHS else array[rows, :width] for name, array in feeds.items()}
            for name, value in self._call(part).items():
                per_token = name in self._per_token
                if name not in results:
                    shape = (length, *value.shape[2:]) if per_token else value.shape[1:]
                    results[name] = np.zeros((len(lengths), *shape), np.float32)
                if per_token:
                    value[np.arange(width) >= lengths[rows, None]] = 0
                    results[name][rows, :width] = value
                else:
                    results[name][rows] = value
        return results

    def _call(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = list(self._session.signature.outputs)
        return {name: value.numpy() for name, value in zip(outputs, self._session.call(feeds, outputs), strict=True)}

    @property
    def _per_token(self) -> set[str]:
        """Names of outputs with an entry for each token."""
        signature = self._session.signature
        axis = signature.inputs[INPUT_IDS].shape[1]
        return {name for name, info in signature.outputs.items() if len(info.shape) > 1 and info.shape[1] == axis}
