"""Bundles with attention weights, exported once in a session."""

from __future__ import annotations

from pathlib import Path

import kerasformer as kf
from tests import shared
from tests.core.export.text_models import LENGTHS, shared_model, size_options


def attention_bundle(name: str, format: str) -> Path:
    """Returns the bundle of a small model of `tests.core.export.text_models`; tests must not change it."""
    model = shared_model(name)
    sizes = size_options(model, format, LENGTHS[1:], 64)
    if model.generates and format == "tflite":
        sizes |= {"cache_lengths": (), "batch_sizes": (), "verify_lengths": ()}
    return shared.once(
        f"attention-{name}-{format}",
        lambda folder: kf.export.export(model, folder, format, outputs=("attentions",), progress=False, **sizes),
    )
