"""Descriptions of attention as plain values, which the Keras layers and all exporters implement.

Shape letters: `B` batch, `T` query length, `D` head size, `R` rotated entries of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.layer_types import LayerConfig
from kerasformer.layers.random_blocks import SparseBlocks
from kerasformer.layers.tensor import Tensor

SCALING_KINDS = ("linear", "dynamic", "yarn", "llama3", "longrope")
"""Supported kinds of rotary scaling, named as in Hugging Face's `rope_type`."""


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """Scaling of rotary frequencies for texts longer than those of the pretraining.

    Attributes:
        kind: One of `SCALING_KINDS`. `dynamic` and `longrope` depend on the length of the text; cached keys keep the
            angles with which they were computed, as in `transformers`.
        factor: Ratio of the maximum length to `original_length`.
        original_length: Maximum length of a text in pretraining, in tokens; unused by `linear`.
        low_frequency_factor: `llama3`: wavelengths above `original_length / low_frequency_factor` are divided by
            `factor`.
        high_frequency_factor: `llama3`: wavelengths below `original_length / high_frequency_factor` are
            unchanged.
        attention_factor: `yarn` and `longrope`: factor of cosines and sines, and therefore of the rotated vectors;
            the value that the papers recommend for `factor` by default.
        beta_fast: `yarn`: frequencies with at least this many rotations in the original length are unchanged.
        beta_slow: `yarn`: frequencies with at most this many rotations are divided by `factor`.
        truncate: `yarn`: rounds the bounds of the range in which frequencies are interpolated to integers.
        short_factors: `longrope`: divisor of each frequency for texts up to the original length, `R / 2` numbers.
        long_factors: `longrope`: likewise for longer texts.

    Raises:
        InputError: an unknown kind, or a length or factor that is not positive.

    Reference: `transformers.modeling_rope_utils`; YaRN: Peng et al. 2023, arXiv:2309.00071; LongRoPE: Ding et al. 2024,
    arXiv:2402.13753.
    """

    kind: str
    factor: float = 1.0
    original_length: int = 8192
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Validates the kind and the numbers."""
        if self.kind not in SCALING_KINDS:
            raise InputError(
                f"Unsupported rotary scaling. Expected one of {', '.join(SCALING_KINDS)}. Received: {self.kind!r}"
            )
        for name in ("factor", "original_length", "low_frequency_factor", "beta_fast", "beta_slow"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} of a rotary scaling must be positive. Received: {getattr(self, name)}")
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise InputError(
                "high_frequency_factor of a rotary scaling must be above low_frequency_factor. "
                f"Received: {self.high_frequency_factor} and {self.low_frequency_factor}"
            )
        object.__setattr__(self, "short_factors", tuple(self.short_factors))  # lists when read from a file
        object.__setattr__(self, "long_factors", tuple(self.long_factors))

    @property
    def magnitude(self) -> float:
        """Factor of cosines and sines."""
        if self.kind not in ("yarn", "longrope"):
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1:
            return 1.0
        if self.kind == "yarn":
            return 0.1 * math.log(self.factor) + 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))

    def scaled(self, frequencies: np.ndarray, base: float, length: int) -> np.ndarray:
        """Scales the frequencies `(R / 2,)` for a text of `length` tokens."""
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "dynamic":
            return frequencies * self.growth(max(length, self.original_length)) ** self.exponents(len(frequencies))
        if self.kind == "yarn":
            unscaled = self._unscaled_share(len(frequencies), base)
            return frequencies * (unscaled + (1 - unscaled) / self.factor)
        if self.kind == "longrope":
            return frequencies / np.array(self.long_factors if length > self.original_length else self.short_factors)
        wavelengths = 2 * math.pi / frequencies
        longest = self.original_length / self.low_frequency_factor
        shortest = self.original_length / self.high_frequency_factor
        smooth = (self.original_length / wavelengths - self.low_frequency_factor) / (
            self.high_frequency_factor - self.low_frequency_factor
        )
        between = (1 - smooth) * frequencies / self.factor + smooth * frequencies
        scaled = np.where(wavelengths > longest, frequencies / self.factor, between)
        return np.where(wavelengths < shortest, frequencies, scaled)

    def growth(self, length: int | Tensor) -> int | Tensor:
        """Growth of the base for `dynamic`, before its exponent; `length` is at least `original_length`."""
        return self.factor * length / self.original_length - (self.factor - 1)

    def exponents(self, count: int) -> np.ndarray:
        """Powers of the growth by which `dynamic` multiplies the `R / 2` frequencies."""
        return -np.arange(count) / (count - 1)

    def _unscaled_share(self, count: int, base: float) -> np.ndarray:
        """Share of each frequency that `yarn` does not divide by `factor`, `(R / 2,)`."""

        def index(rotations: float) -> float:
            return count * math.log(self.original_length / (rotations * 2 * math.pi)) / math.log(base)

        low, high = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * count - 1)
        high = high + 0.001 if low == high else high
        return 1 - np.clip((np.arange(count) - low) / (high - low), 0, 1)


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary position embedding: rotates pairs of entries of queries and keys by angles proportional to the position.

    Attributes:
        dim: Number `R` of rotated entries, the first ones of each head; even.
        base: Base of the frequencies (`rope_theta`).
        interleaved: Pairs are `(x[0], x[1]), (x[2], x[3]), …` as in GPT-J; otherwise `(x[i], x[i + R / 2])` as in
            GPT-NeoX and LLaMA.
        scaling: Scaling of the frequencies for long texts, optional.

    Raises:
        InputError: `dim` is not a positive even number, or `longrope` does not have one factor for each pair.

    Reference: Su et al. 2021, arXiv:2104.09864.
    """

    dim: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        """Validates the number of entries and of scaling factors."""
        if self.dim < 2 or self.dim % 2:
            raise InputError(f"Rotary positions need a positive, even dim. Received: dim={self.dim}")
        kind = None if self.scaling is None else self.scaling.kind
        if kind == "dynamic" and self.dim < 4:
            raise InputError(f"Dynamic rotary scaling needs a dim of at least 4. Received: dim={self.dim}")
        if self.scaling is not None and kind == "longrope":
            for name in ("short_factors", "long_factors"):
                factors = getattr(self.scaling, name)
                if len(factors) != self.dim // 2 or not all(factor > 0 for factor in factors):
                    raise InputError(
                        f"{name} of a rotary scaling must be {self.dim // 2} positive numbers. Received: {factors}"
                    )

    @property
    def depends_on_length(self) -> bool:
        """Whether the angle of a position depends on the length of the text, beyond the original length."""
        return self.scaling is not None and self.scaling.kind in ("dynamic", "longrope")

    @property
    def magnitude(self) -> float:
        """Factor of cosines and sines, see `RotaryScaling.attention_factor`."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    def frequencies(self, length: int = 1) -> np.ndarray:
        """Radians per position for each pair, float32 `(R / 2,)`, in a text of `length` tokens."""
        plain = 1.0 / self.base ** (np.arange(0, self.dim, 2) / self.dim)
        scaled = plain if self.scaling is None else self.scaling.scaled(plain, self.base, length)
        return scaled.astype("float32")

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of integer positions `(B, T)`, float32 `(B, 1, T, R)` each.

        The rotated vector is `x * cosine + swapped(x) * sine`, where `swapped` exchanges the entries of each pair: the
        minus sign of the first entry is part of the sine, which saves a negation in each layer. Where the frequencies
        depend on the length, the length of a row is its last position plus one.
        """
        cosine, sine = self.cosines_and_sines(positions)
        cosine, sine = ops.concatenate([cosine, cosine], axis=-1), ops.concatenate([-sine, sine], axis=-1)
        if not self.interleaved:
            return cosine, sine
        # Stacked pairs would have five axes, more than a phone's GPU has.
        order = np.arange(self.dim).reshape(2, -1).T.reshape(-1)
        return ops.take(cosine, order, axis=-1), ops.take(sine, order, axis=-1)

    def cosines_and_sines(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of integer positions `(B, T)`, float32 `(B, 1, T, R / 2)` each: one for each pair."""
        batch, length = ops.shape(positions)
        positions = ops.reshape(ops.cast(positions, "float32"), (batch, 1, length, 1))
        angle = positions * self._frequencies_of(positions)
        cosine, sine = ops.cos(angle), ops.sin(angle)
        return (cosine, sine) if self.magnitude == 1.0 else (cosine * self.magnitude, sine * self.magnitude)

    def _frequencies_of(self, positions: Tensor) -> Tensor:
        """Frequencies for positions `(B, 1, T, 1)`, broadcastable to `(B, 1, T, R / 2)`."""
        short = ops.convert_to_tensor(self.frequencies())
        if self.scaling is None or not self.depends_on_length:
            return short
        length = ops.max(positions, axis=2, keepdims=True) + 1.0
        original = float(self.scaling.original_length)
        if self.scaling.kind == "longrope":
            long = ops.convert_to_tensor(self.frequencies(self.scaling.original_length + 1))
            return ops.where(length > original, long, short)
        growth = ops.log(self.scaling.growth(ops.maximum(length, original)))
        return short * ops.exp(growth * ops.convert_to_tensor(self.scaling.exponents(self.dim // 2).astype("float32")))

    def tables(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of the positions 0 to `length - 1`, float32 `(length, R / 2)` each.

        Raises:
            InputError: the angles depend on the length of the text, and `length` exceeds the original length.
        """
        if self.scaling is not None and self.depends_on_length and length > self.scaling.original_length:
            raise InputError(
                f"Rotary scaling {self.scaling.kind!r} has no table of angles beyond the original length, since they "
                f"depend on the length of the text. Expected at most {self.scaling.original_length}. Received: {length}"
            )
        angle = np.arange(length, dtype="float32")[:, None] * self.frequencies()
        return np.cos(angle) * np.float32(self.magnitude), np.sin(angle) * np.float32(self.magnitude)


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Description of what an attention layer computes.

    Attributes:
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads; each is shared by a group of query heads.
        head_dim: Size `D` of a head.
        scale: Factor of the scores, usually `1 / sqrt(D)`.
        softcap: Limits the scores to this range by `softcap * tanh(scores / softcap)`; optional (Gemma 2).
        rotary: Rotary position embedding of queries and keys, optional.
        query_key_norm: Whether queries and keys of each head are normalized before rotation (Qwen 3, Gemma 3).
        window: Size of a sliding window in tokens, optional. In causal attention a token sees this many tokens, itself
            included; in bidirectional attention it sees this many on each side.
        blocks: Description of block-sparse attention, optional (BigBird).
        float32_scores: Whether the scores are computed in float32 if the layer computes in a smaller type (GPT-J,
            GPT-Neo), in which scores without a scale overflow.
    """

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    softcap: float | None = None
    rotary: Rotary | None = None
    query_key_norm: bool = False
    window: int | None = None
    blocks: SparseBlocks | None = None
    float32_scores: bool = False

    @property
    def group_size(self) -> int:
        """Number of query heads that share a key and value head."""
        return self.num_heads // self.num_key_value_heads

    @property
    def features(self) -> dict[str, object]:
        """Features beyond plain multi-head attention, by attribute, which a runtime may not support."""
        features: dict[str, object] = {
            name: getattr(self, name) for name in ("softcap", "rotary", "window", "blocks") if getattr(self, name)
        }
        if self.rotary is not None and self.rotary.scaling is not None:
            features["rotary_scaling"] = self.rotary.scaling.kind
        if self.query_key_norm:
            features["query_key_norm"] = True
        if self.group_size > 1:
            features["num_key_value_heads"] = self.num_key_value_heads
        return features


def rotary_from_config(config: Rotary | LayerConfig | None) -> Rotary | None:
    """Returns a `Rotary` from its attributes, as the config of a layer has them."""
    if config is None or isinstance(config, Rotary):
        return config
    scaling = config.get("scaling")
    return Rotary(**{**config, "scaling": None if scaling is None else RotaryScaling(**scaling)})
