"""Runs the signature of a bundle that returns attention weights, one text in a call, on LiteRT or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from kerasformer.bundle import Kind, Manifest, Role, TensorInfo
from kerasformer.bundle.interface import ADAPTERS, ATTENTIONS, DECODER_INPUT_IDS, INPUT_IDS
from kerasformer.engines.text_inputs import text_inputs
from kerasformer.errors import BundleError

EXPORT_OPTION = 'outputs=("attentions",)'
"""Option of an export that adds the signature."""


class WholeTexts:
    """The signatures of a bundle that return the attention weights of whole texts.

    Args:
        folder: Folder of the bundle.
        manifest: Its manifest.

    Attributes:
        engine: `"litert"` or `"onnx"`.

    Raises:
        BundleError: there are no such signatures, or the runtime cannot load the file.
        MissingExtraError: the runtime is not installed.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        signatures = manifest.of_role(Role.ATTENTION)
        if not signatures:
            raise BundleError(
                f"This bundle gives {', '.join(sorted(_outputs(manifest)))}, and no attention weights. Expected: a "
                f"bundle that was exported with {EXPORT_OPTION}, on the command line --outputs attentions. Received: "
                f"{manifest.info.name} in {manifest.format}, {folder}"
            )
        self._padding, self._counts = manifest.info.input_padding, manifest.info.counts
        self.engine = "litert" if manifest.format == "tflite" else "onnx"
        if self.engine == "litert":
            from kerasformer.engines.litert.signatures import by_length, open_file

            self._signatures = by_length(manifest, Role.ATTENTION)
            self._litert = open_file(folder, manifest, None, None, None)
        else:
            from kerasformer.engines.onnx.session import OnnxSession

            self._onnx = OnnxSession(folder, manifest, next(iter(signatures)))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[TensorInfo, np.ndarray]]:
        """Yields the attention weights of each layer with their description.

        Args:
            inputs: int32 `(1, T)` by Hugging Face's names: `input_ids`, `decoder_input_ids` if the signature has them,
                and others of the signature, which have their defaults if they are left out.

        Raises:
            CapacityError: a text is longer than the longest signature.
            InputError: an unknown or invalid input.
        """
        lengths = {name: array.shape[1] for name, array in inputs.items()}
        if self.engine == "litert":
            from kerasformer.engines.litert.signatures import smallest

            _, name, signature = smallest(self._signatures, max(lengths.values()), "text")
        else:
            signature = self._onnx.signature
        encoded = {key: array for key, array in inputs.items() if key != DECODER_INPUT_IDS}  # of another length
        arrays = {**text_inputs(encoded, signature, self._counts), **inputs}
        feeds = {
            key: _no_adapter(info) if info.kind in ADAPTERS else self._padded(key, arrays[key], info)
            for key, info in signature.inputs.items()
        }
        if self.engine == "litert":
            outputs = self._litert.run(name, feeds)
        else:
            keys = list(signature.outputs)
            outputs = {key: value.numpy() for key, value in zip(keys, self._onnx.call(feeds, keys), strict=True)}
        source = lengths[INPUT_IDS]
        target = lengths.get(DECODER_INPUT_IDS, source)
        pairs = ((source, source), (target, target), (target, source))
        sizes: dict[str | None, tuple[int, int]] = dict(zip(ATTENTIONS, pairs, strict=True))
        for key, info in signature.outputs.items():
            if info.kind in sizes:
                rows, columns = sizes[info.kind]
                yield info, np.asarray(outputs[key][:, :, :rows, :columns], np.float32)

    def _padded(self, name: str, array: np.ndarray, info: TensorInfo) -> np.ndarray:
        """Returns an input with the length of the signature; padding is hidden by the mask, or follows the text."""
        width = info.shape[1] if isinstance(info.shape[1], int) else array.shape[1]
        fill = self._padding if name == INPUT_IDS else 0
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill).astype(info.dtype)


def _no_adapter(info: TensorInfo) -> np.ndarray:
    """Returns the matrix of an adapter that changes nothing."""
    return np.zeros([size if isinstance(size, int) else 1 for size in info.shape], info.dtype)


def _outputs(manifest: Manifest) -> set[str]:
    """Returns the outputs of all signatures that are no caches."""
    return {
        name
        for signature in manifest.signatures.values()
        for name, info in signature.outputs.items()
        if info.kind in (Kind.LOGITS, Kind.MEMORY, Kind.OTHER)
    }
