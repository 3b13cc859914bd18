"""Refusal of generation settings that a runtime ignores or interprets differently from Keras."""

from __future__ import annotations

from collections.abc import Sequence

from kerasformer.errors import ExportError
from kerasformer.generation import GenerationConfig


def refuse(target: str, reason: str, generation: GenerationConfig, names: Sequence[str]) -> None:
    """Raises an error if any settings are unsupported.

    Args:
        target: Name of the target.
        reason: What its runtime does, such as `"transformers 4.57 does not support these settings"`.
        generation: The model's generation settings.
        names: Names of the unsupported settings.

    Raises:
        ExportError: `names` is not empty.
    """
    if names:
        received = ", ".join(f"{name}={getattr(generation, name)!r}" for name in names)
        defaults = ", ".join(f"{name}=None" for name in names)
        raise ExportError(
            f"target={target!r} cannot reproduce model.generation_config: {reason}. Received: {received}. "
            f"Restore the defaults: model.generation_config = model.generation_config.replace({defaults})"
        )
