"""Backends of `transformers.exporters`: a model in memory becomes a bundle that was compared with Keras.

Importing this module registers the formats `litert` and `kerasformer`, with which `AutoHfExporter` makes bundles for
LiteRT and ONNX Runtime.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.bundle import Bundle, Role
from kerasformer.engines import open_engine
from kerasformer.errors import InputError
from kerasformer.extras import require

torch = require("torch", "transformers-exporters")
_exporters = require("transformers.exporters", "transformers-exporters")
_base = require("transformers.exporters.base", "transformers-exporters")
_metadata = require("transformers.exporters.metadata", "transformers-exporters")
_runners = require("transformers.exporters.runners.base", "transformers-exporters")
_outputs = require("transformers.utils", "transformers-exporters").ModelOutput


@dataclass
class LiteRTConfig(_exporters.ExportConfigMixin):  # type: ignore[misc, name-defined]
    """Configuration of an export for LiteRT.

    Attributes:
        export_format: Name of the backend.
        quantize: Recipe, such as `"int8"`.
        task: Task of the bundle; by default, that of the model's class.
        tokenizer: Tokenizer of `transformers` that the bundle shall contain; without one, it takes ids.
        options: Further arguments of `kerasformer.export.export`, such as `lengths`.
    """

    export_format: str = "litert"
    quantize: str = "none"
    task: str | None = None
    tokenizer: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def to_json_string(self) -> str:
        """Returns what describes the export, without the tokenizer, which is in the bundle."""
        return json.dumps({name: value for name, value in self if name != "tokenizer"}, default=repr)


@dataclass
class OnnxRuntimeConfig(LiteRTConfig):
    """Configuration of an export for ONNX Runtime, with the attributes of `LiteRTConfig`."""

    export_format: str = "kerasformer"


class LiteRTExporter(_exporters.HfExporter):  # type: ignore[misc, name-defined]
    """Exports models as bundles for LiteRT; the program of an export is the `Bundle`."""

    export_format, config_class, format = "litert", LiteRTConfig, "litert"
    program_suffix = ".zip"
    required_packages = ["keras", "tensorflow"]

    def export_program(self, model: Any, sample_inputs: Mapping[str, Any], config: LiteRTConfig) -> tuple[Bundle, Any]:
        """Writes a bundle to a temporary folder, which exists as long as the returned object."""
        from kerasformer.export import export
        from kerasformer.zoo import load

        loaded = load(model, config.task, tokenizer=config.tokenizer)
        folder = tempfile.mkdtemp(prefix="kerasformer-")
        export(loaded, Path(folder) / "bundle", self.format, config.quantize, **config.options)
        inputs = {name: {"shape": list(np.shape(value))} for name, value in sample_inputs.items()}
        described = _metadata.ExportMetadata(type(model).__name__, export_dtype="float32", kwargs=inputs)
        return _bundle(folder), described

    def export_for_generation(self, model: Any, sample_inputs: Any, config: Any, **options: Any) -> Any:
        """Exports a model that generates as one bundle, with caches and tokenizer: `exported.program.pipeline()`."""
        return self.export(model, sample_inputs, config)

    @classmethod
    def save_program(cls, program: Bundle, path: str | Path) -> None:
        """Writes the files of a bundle to an archive."""
        shutil.make_archive(str(path).removesuffix(cls.program_suffix), "zip", program.path.parent, "bundle")

    @classmethod
    def load_program(cls, path: str | Path) -> Bundle:
        """Unpacks a bundle to a temporary folder."""
        folder = tempfile.mkdtemp(prefix="kerasformer-")
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)  # no member leaves the folder
        return _bundle(folder)


class OnnxRuntimeExporter(LiteRTExporter):
    """Exports models as bundles for ONNX Runtime."""

    export_format, config_class, format = "kerasformer", OnnxRuntimeConfig, "onnx"


class BundleRunner(_runners.ModelRunner):  # type: ignore[misc, name-defined]
    """Runs a bundle that does not generate on tensors of PyTorch.

    Args:
        metadata: What the export recorded.
        engine: Engine of the bundle; `None` for one that generates, which runs as a pipeline.
    """

    def __init__(self, metadata: Any, engine: Any) -> None:
        self.metadata, self.engine = metadata, engine

    @property
    def device(self) -> Any:
        """The CPU."""
        return torch.device("cpu")

    @classmethod
    def from_program(cls, program: Bundle, metadata: Any, device: Any = None) -> BundleRunner:
        """Opens a bundle in its runtime.

        Raises:
            InputError: another device than the CPU.
        """
        if device is not None and torch.device(device).type != "cpu":
            raise InputError(f"A bundle runs on the CPU here. Received: device={device!r}")
        if program.manifest.of_role(Role.DECODE):
            return cls(metadata, None)
        return cls(metadata, open_engine(program.path, program.manifest))

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any) -> Any:
        """Returns the outputs of the bundle, float32, by their names in `transformers`.

        Raises:
            InputError: The model generates: `exported.program.pipeline()` does.
        """
        if self.engine is None:
            raise InputError(
                "A model that generates runs as a pipeline, with its loop and its caches: "
                "exported.program.pipeline()(TEXT). Received: a forward pass"
            )
        arrays = {name: np.asarray(value, "int32") for name, value in kwargs.items()}
        return _outputs({name: torch.from_numpy(value) for name, value in self.engine.run(arrays).items()})


def _bundle(folder: str) -> Bundle:
    """Returns the bundle in a temporary folder, which is removed after it."""
    made = Bundle(Path(folder) / "bundle")
    weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
    return made


for _exporter in (LiteRTExporter, OnnxRuntimeExporter):
    _exporters.register_backend(_exporter, BundleRunner)
