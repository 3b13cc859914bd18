"""The matrices of an adapter in tensors that LiteRT keeps between runs."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.bundle.adapters import Adapter
from kerasformer.bundle.interface import ADAPTERS
from kerasformer.engines.adapter_inputs import AdapterInputs
from kerasformer.engines.litert.engine import Engine, KeptTensor


class HeldAdapter:
    """The inputs for adapters of all signatures, which share one tensor for each matrix.

    Args:
        engine: The loaded model file.
        manifest: Manifest of the bundle.

    Attributes:
        held: For each signature, the tensors by the name of the input.
    """

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine = engine
        self._inputs = AdapterInputs(manifest.signatures.values(), manifest.info.name, rank_first=True)
        self._tensors: dict[str, KeptTensor] = {}
        self.held: dict[str, dict[str, KeptTensor]] = {}
        for name, signature in manifest.signatures.items():
            names = signature.named(*ADAPTERS)
            for key in names:
                if key not in self._tensors:
                    self._tensors[key] = engine.hold(name, key)
            self.held[name] = {key: self._tensors[key] for key in names}

    @property
    def version(self) -> str:
        """Digest of the adapter; empty for the base model."""
        return self._inputs.version

    def set(self, adapter: Adapter | None) -> None:
        """Replaces the adapter; see `AdapterInputs.set`."""
        self._inputs.set(adapter)
        for name, value in self._inputs.arrays.items():
            self._engine.write(self._tensors[name], value)
