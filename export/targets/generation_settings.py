"""Settings of generation that a runtime would not follow: a bundle that says them would not answer as Keras does."""

from __future__ import annotations

from collections.abc import Sequence

from kerasformer.decoding import GenerationConfig
from kerasformer.errors import ExportError, argument


def refuse(target: str, reason: str, generation: GenerationConfig, names: Sequence[str]) -> None:
    """Refuses settings, if there are any.

    Args:
        target: Name of the target.
        reason: What its runtime does, such as `"transformers 4.57 does not know these settings"`.
        generation: The model's settings.
        names: Of those that are refused.
    Raises:
        ExportError: with the reason, and how to do without them.
    """
    if names:
        received = ", ".join(f"{name}={getattr(generation, name)!r}" for name in names)
        defaults = ", ".join(f"{name}=None" for name in names)
        raise ExportError(
            f"{argument('target', target)} cannot keep model.generation_config: {reason}. Received: {received}. "
            f"Put the defaults back: model.generation_config = model.generation_config.replace({defaults})"
        )
