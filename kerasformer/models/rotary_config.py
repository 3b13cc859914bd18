"""Rotary settings of a `config.json`: `rope_parameters`, or `rope_theta` and `rope_scaling` of older files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.layers import Rotary, RotaryScaling
from kerasformer.models.config import Config, ConfigWarning, hf
from kerasformer.models.config_types import fits

_NUMBERS = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "attention_factor": "attention_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
}
"""Numeric fields of `RotaryScaling`, by Hugging Face's names."""
_LISTS = {"short_factor": "short_factors", "long_factor": "long_factors"}
_OTHERS = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "truncate", "mscale", "mscale_all_dim")
DEFAULT_BASE = 10000.0


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(Config):
    """Base of the configurations of models with rotary positions.

    Attributes:
        partial: Whether the architecture supports `partial_rotary_factor`, which rotates only part of each head.
        interleaved: Arrangement of pairs, see `Rotary`.
        rope: Content of `rope_parameters`.
    """

    partial: ClassVar[bool] = False
    interleaved: ClassVar[bool] = False

    rope: dict[str, Any] = hf("rope_parameters", {"rope_theta": DEFAULT_BASE, "rope_type": "default"})

    def __post_init__(self) -> None:
        """Validates the rotary settings."""
        super().__post_init__()
        _ = self.rotary

    @classmethod
    def from_hf(cls, content: Mapping[str, Any]) -> Self:
        """See `Config.from_hf`; converts the rotary settings of older files to `rope_parameters`."""
        content = dict(content)
        theta, scaling = content.pop("rope_theta", None), content.pop("rope_scaling", None)
        partial = content.pop("partial_rotary_factor", None)
        parameters = scaling or content.get("rope_parameters") or {}
        if isinstance(parameters, Mapping):
            rope = {name: value for name, value in parameters.items() if name != "type"}
            rope.setdefault("rope_type", parameters.get("type", "default"))
            rope.setdefault("rope_theta", DEFAULT_BASE if theta is None else theta)
            if partial is not None:
                rope.setdefault("partial_rotary_factor", partial)
            content["rope_parameters"] = rope
        return super().from_hf(content)

    @property
    def head_size(self) -> int:
        """Size of a head."""
        config: Any = self
        size: int = config.hidden_dim // config.num_heads if config.head_dim is None else config.head_dim
        return size

    @property
    def longest_text(self) -> int:
        """Maximum length of a text in tokens; some kinds of scaling extend `max_position_embeddings`."""
        config: Any = self
        scaling, limit = self.rotary.scaling, int(config.max_length)
        if scaling is None or scaling.kind not in ("dynamic", "yarn"):
            return limit
        return max(limit, int(scaling.original_length * scaling.factor))

    @property
    def rotary(self) -> Rotary:
        """The rotary position embedding of all layers."""
        config: Any = self
        share = self.rope.get("partial_rotary_factor", 1.0)
        if share != 1.0 and not self.partial:
            raise UnsupportedConfigError(
                f"{self.model_type} supports only partial_rotary_factor=1.0. Received: {share!r}"
            )
        return rotary_of(self.rope, self.head_size, config.max_length, interleaved=self.interleaved)


def rotary_of(
    parameters: Mapping[str, Any], head_dim: int, max_length: int | None, *, interleaved: bool = False
) -> Rotary:
    """Creates a `Rotary` from `rope_parameters` of a `config.json`.

    Args:
        parameters: Content of `rope_parameters`.
        head_dim: Size of a head.
        max_length: Content of `max_position_embeddings`, optional.
        interleaved: Arrangement of pairs, see `Rotary`.

    Raises:
        UnsupportedConfigError: a kind of scaling or a value is unsupported.
    """
    unknown = sorted(set(parameters) - {*_NUMBERS, *_LISTS, *_OTHERS})
    if unknown:
        warnings.warn(
            f"rope_parameters has unsupported keys, which are ignored: {', '.join(unknown)}. "
            "If one of them affects the outputs of the model, they will be wrong.",
            ConfigWarning,
            stacklevel=2,
        )
    numbers = [*_NUMBERS, "rope_theta", "partial_rotary_factor", "mscale", "mscale_all_dim"]
    kinds: dict[str, Any] = {name: float for name in numbers} | {name: list[float] for name in _LISTS}
    for name, kind in kinds.items():
        if not fits(kind | None, parameters.get(name)):
            raise UnsupportedConfigError(
                f"{name} in rope_parameters must be {'numbers' if name in _LISTS else 'a number'}. "
                f"Received: {parameters[name]!r}"
            )
    values = {name: value for name, value in parameters.items() if value is not None}
    kind = values.get("rope_type", "default")
    dim = int(head_dim * values.get("partial_rotary_factor", 1.0))
    try:
        scaling = None if kind == "default" else _scaling(kind, values, max_length)
        return Rotary(dim=dim, base=values.get("rope_theta", DEFAULT_BASE), interleaved=interleaved, scaling=scaling)
    except InputError as error:
        raise UnsupportedConfigError(f"rope_parameters with rope_type={kind!r} cannot be used. {error}") from error


def _scaling(kind: str, parameters: Mapping[str, Any], max_length: int | None) -> RotaryScaling:
    """Creates a `RotaryScaling`, with the defaults of `transformers` for missing values."""
    names = {**_NUMBERS, **_LISTS}
    values = {field: parameters[name] for name, field in names.items() if name in parameters}
    if max_length is not None and (kind == "dynamic" or "original_length" not in values):
        values["original_length"] = max_length
    if "factor" not in values and max_length is not None and kind in ("yarn", "longrope"):
        values["factor"] = max_length / values["original_length"]
    scales = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if kind == "yarn" and "attention_factor" not in values and all(scales):
        numerator, denominator = (0.1 * scale * math.log(max(values["factor"], 1.0)) + 1.0 for scale in scales if scale)
        values["attention_factor"] = numerator / denominator
    return RotaryScaling(kind=kind, truncate=parameters.get("truncate", True), **values)
