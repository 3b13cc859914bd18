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

SCALING_KINDS = ("linear", "llama3")
"""Kinds of rotary scaling that are implemented, by the names of Hugging Face's `rope_type`."""


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """How rotary frequencies are changed for texts longer than those of the pretraining.

    Attributes:
        kind: One of `SCALING_KINDS`.
        factor: How many times longer texts may be.
        low_frequency_factor: `llama3`: wavelengths above `original_length / low_frequency_factor` are divided by
            `factor`.
        high_frequency_factor: `llama3`: wavelengths below `original_length / high_frequency_factor` are kept.
        original_length: `llama3`: the maximum length of the pretraining, in tokens.

    Raises:
        InputError: an unknown kind.

    Reference: `transformers.modeling_rope_utils`.
    """

    kind: str
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192

    def __post_init__(self) -> None:
        """Refuses a kind that is not implemented."""
        if self.kind not in SCALING_KINDS:
            raise InputError(
                f"Unsupported rotary scaling. Expected one of {', '.join(SCALING_KINDS)}. Received: {self.kind!r}"
            )

    def scaled(self, frequencies: np.ndarray) -> np.ndarray:
        """The frequencies after scaling, `(R / 2,)` like those given."""
        if self.kind == "linear":
            return frequencies / self.factor
        wavelengths = 2 * math.pi / frequencies
        longest = self.original_length / self.low_frequency_factor
        shortest = self.original_length / self.high_frequency_factor
        smooth = (self.original_length / wavelengths - self.low_frequency_factor) / (
            self.high_frequency_factor - self.low_frequency_factor
        )
        between = (1 - smooth) * frequencies / self.factor + smooth * frequencies
        scaled = np.where(wavelengths > longest, frequencies / self.factor, between)
        return np.where(wavelengths < shortest, frequencies, scaled)


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
        InputError: `dim` is not a positive even number.

    Reference: Su et al. 2021, arXiv:2104.09864.
    """

    dim: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        """Refuses a number of entries that cannot form pairs."""
        if self.dim < 2 or self.dim % 2:
            raise InputError(f"Rotary positions need a positive, even dim. Received: dim={self.dim}")

    def frequencies(self) -> np.ndarray:
        """Radians a position for each pair, float32 `(R / 2,)`."""
        plain = 1.0 / self.base ** (np.arange(0, self.dim, 2) / self.dim)
        return (plain if self.scaling is None else self.scaling.scaled(plain)).astype("float32")

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of integer positions `(B, T)`, float32 `(B, 1, T, R)` each.

        The rotated vector is `x * cosine + swapped(x) * sine`, where `swapped` exchanges the entries of each pair: the
        minus sign of the first entry is part of the sine, which saves a negation in each layer.
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
        angle = positions * ops.convert_to_tensor(self.frequencies())
        return ops.cos(angle), ops.sin(angle)

    def tables(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of the positions 0 to `length - 1`, float32 `(length, R / 2)` each."""
        angle = np.arange(length, dtype="float32")[:, None] * self.frequencies()
        return np.cos(angle), np.sin(angle)


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

    def cache_length(self, length: Any) -> Any:
        """Slots of a cache for texts of `length` tokens, a number or a symbol: those of the window where there is one.

        A symbolic length is kept, since a cache that grows is cut by its visibility.
        """
        return min(length, self.window) if self.window is not None and isinstance(length, int) else length

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
