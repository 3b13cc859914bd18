"""The description of one attention: plain numbers, from which Keras and every exporter render it.

Shape letters: `B` batch, `T` query length, `D` head size, `R` rotated entries of a head.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers.tensor import Tensor

SCALING_KINDS = ("linear", "dynamic", "yarn", "llama3", "longrope")
"""Kinds of rotary scaling that are implemented, by the names of Hugging Face's `rope_type`."""


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """How rotary frequencies are changed for texts longer than those of the pretraining.

    Attributes:
        kind: One of `SCALING_KINDS`. `dynamic` and `longrope` depend on the length of the text: with a cache, keys keep
            the angles with which they were computed, as in `transformers`.
        factor: How many times longer texts may be.
        original_length: Maximum length of the pretraining, in tokens; all kinds but `linear` read it.
        low_frequency_factor: `llama3`: wavelengths above `original_length / low_frequency_factor` are divided by
            `factor`.
        high_frequency_factor: `llama3`: wavelengths below `original_length / high_frequency_factor` are kept.
        attention_factor: `yarn` and `longrope`: factor of cosines and sines, and thus of the vectors that are rotated;
            what the papers recommend for `factor` by default.
        beta_fast: `yarn`: frequencies of at least this many rotations in the original length are kept.
        beta_slow: `yarn`: frequencies of at most this many rotations are divided by `factor`.
        truncate: `yarn`: the indices between which frequencies are mixed are rounded to whole ones.
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
        """Refuses a kind that is not implemented, and numbers that cannot be."""
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
        object.__setattr__(self, "short_factors", tuple(self.short_factors))  # a list, if it was read from a file
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
        """The frequencies `(R / 2,)` after scaling, for a text of `length` tokens."""
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "dynamic":
            return frequencies * self.growth(max(length, self.original_length)) ** self.exponents(len(frequencies))
        if self.kind == "yarn":
            kept = self._kept(len(frequencies), base)
            return frequencies * (kept + (1 - kept) / self.factor)
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

    def growth(self, length: Any) -> Any:
        """`dynamic`: factor of the base, before its exponent, for a length of at least `original_length`."""
        return self.factor * length / self.original_length - (self.factor - 1)

    def exponents(self, count: int) -> np.ndarray:
        """`dynamic`: each of the `R / 2` frequencies is multiplied by the growth to this power."""
        return -np.arange(count) / (count - 1)

    def _kept(self, count: int, base: float) -> np.ndarray:
        """`yarn`: the share of each frequency that is not divided, `(R / 2,)`."""

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
        dim: Number `R` of entries that are rotated, the first ones of each head; even.
        base: Base of the frequencies (`rope_theta`).
        interleaved: Pairs are `(x[0], x[1]), (x[2], x[3]), …` as in GPT-J; otherwise `(x[i], x[i + R / 2])` as in
            GPT-NeoX and LLaMA.
        scaling: Change of the frequencies for long texts, optional.

    Raises:
        InputError: `dim` is not a positive even number, or `longrope` has not a factor for each pair.

    Reference: Su et al. 2021, arXiv:2104.09864.
    """

    dim: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        """Refuses a number of entries that cannot form pairs, and scalings of another number."""
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
        """The angle of a position depends on the length of the text, if that exceeds the original length."""
        return self.scaling is not None and self.scaling.kind in ("dynamic", "longrope")

    @property
    def magnitude(self) -> float:
        """Factor of cosines and sines, see `RotaryScaling.attention_factor`."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    def frequencies(self, length: int = 1) -> np.ndarray:
        """Radians a position for each pair, float32 `(R / 2,)`; `length` of the text, where they depend on it."""
        plain = 1.0 / self.base ** (np.arange(0, self.dim, 2) / self.dim)
        scaled = plain if self.scaling is None else self.scaling.scaled(plain, self.base, length)
        return scaled.astype("float32")

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of integer positions `(B, T)`, float32 `(B, 1, T, R)` each.

        The rotated vector is `x * cosine + swapped(x) * sine`, where `swapped` exchanges the entries of each pair: the
        minus sign of the first entry is part of the sine, which saves a negation in each layer. Where the frequencies
        depend on the length, that of a row is its last position.
        """
        batch, length = ops.shape(positions)
        cosine, sine = self.cosines_and_sines(positions)
        if not self.interleaved:
            return ops.concatenate([cosine, cosine], axis=-1), ops.concatenate([-sine, sine], axis=-1)
        shape = (batch, 1, length, self.dim)
        pairs = ops.stack([cosine, cosine], axis=-1), ops.stack([-sine, sine], axis=-1)
        return ops.reshape(pairs[0], shape), ops.reshape(pairs[1], shape)

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
    """What one attention computes.

    Attributes:
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads; each is shared by a group of query heads.
        head_dim: Size `D` of a head.
        scale: Factor of the scores, usually `1 / sqrt(D)`.
        softcap: Scores are limited to this range by `softcap * tanh(scores / softcap)`; optional (Gemma 2).
        rotary: Rotary position embedding of queries and keys, optional.
        query_key_norm: Queries and keys of each head are normalized before they are rotated (Qwen 3, Gemma 3).
        window: Sliding window, optional. Causal: a token sees this many tokens, itself included. Bidirectional: it
            sees this many on each side.
    """

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    softcap: float | None = None
    rotary: Rotary | None = None
    query_key_norm: bool = False
    window: int | None = None

    @property
    def group_size(self) -> int:
        """Query heads that share one key and value head."""
        return self.num_heads // self.num_key_value_heads

    @property
    def features(self) -> dict[str, Any]:
        """What goes beyond scaled dot products of separate heads, by attribute: what a runtime may not support."""
        found = {name: getattr(self, name) for name in ("softcap", "rotary", "window") if getattr(self, name)}
        if self.rotary is not None and self.rotary.scaling is not None:
            found["rotary_scaling"] = self.rotary.scaling.kind
        if self.query_key_norm:
            found["query_key_norm"] = True
        if self.group_size > 1:
            found["num_key_value_heads"] = self.num_key_value_heads
        return found


def rotary_to_config(rotary: Rotary | None) -> dict[str, Any] | None:
    """A rotary description as plain values, for `get_config` of a layer."""
    return None if rotary is None else asdict(rotary)


def rotary_from_config(config: Any) -> Rotary | None:
    """The description from what `rotary_to_config` returned."""
    if config is None or isinstance(config, Rotary):
        return config
    scaling = config.get("scaling")
    return Rotary(**{**config, "scaling": None if scaling is None else RotaryScaling(**scaling)})
