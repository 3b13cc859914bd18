"""Quantization-aware training, see `kerasformer.export.quantization.quantization_aware`."""

from __future__ import annotations

from kerasformer.export import QuantizationAware
from kerasformer.models import PretrainedModel


def quantization_aware(
    model: PretrainedModel,
    quantize: str = "int8",
    format: str = "litert",
    *,
    profile: str | None = None,
    steps: int = 16,
) -> QuantizationAware:
    """Returns a Keras model that trains a model with the rounded weights of its later bundle.

        aware = kf.training.quantization_aware(model, "int4", "onnx")
        aware.compile("adamw", loss)
        aware.fit(batch, labels)
        aware.export("bundle")

    Args:
        model: A model of the zoo, which is trained.
        quantize: `"int8"` or `"int4"`.
        format: Format of the bundle, `"litert"` or `"onnx"`.
        profile: Profile of the format, as for the export; optional.
        steps: Number of steps after which the scales are computed again.

    Raises:
        InputError: an argument is invalid, or the model has an adapter.
    """
    return QuantizationAware(model, quantize, format, profile=profile, steps=steps)
