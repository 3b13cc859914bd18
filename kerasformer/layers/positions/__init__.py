"""Sinusoidal and relative positions and ALiBi; rotary positions are part of the attention (`Rotary`)."""

from kerasformer.layers.positions.alibi import alibi_bias, alibi_slopes
from kerasformer.layers.positions.relative import RelativePositionBias, relative_buckets
from kerasformer.layers.positions.sinusoidal import SinusoidalPositions, sinusoids

__all__ = ["RelativePositionBias", "SinusoidalPositions", "alibi_bias", "alibi_slopes", "relative_buckets", "sinusoids"]
