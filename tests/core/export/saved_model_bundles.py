"""Small models of the zoo as SavedModels, with a manifest but without tokenizer and card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest, Signature, checksums
from kerasformer.export.formats.registry import find_format
from kerasformer.export.formats.saved_model.convert import write_saved_model
from kerasformer.export.formats.saved_model.signatures import saved_model_functions
from kerasformer.export.options import resolve_options
from kerasformer.export.targets import find_target


def write(folder: Path, model: Any, capacity: int | None = None, length: int | None = None) -> Manifest:
    """Writes a model to a folder; `length` is the length of the longest text that an encoder-decoder reads."""
    longest = length if model.is_encoder_decoder and not model.max_length else None
    sizes = {"capacity": capacity, "encoder_capacity": longest}
    options = {name: size for name, size in sizes.items() if size is not None}
    job = resolve_options(model, options, find_format("saved-model"), find_target(None))
    functions = saved_model_functions(job)
    write_saved_model(functions, model.variables, folder)
    signatures = {
        function.name: Signature("saved_model.pb", function.inputs, function.outputs) for function in functions
    }
    return Manifest("saved-model", job.info, signatures, job.capacity, job.encoder_capacity, files=checksums(folder))
