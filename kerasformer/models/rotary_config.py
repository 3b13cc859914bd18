"""Rotary settings of a `config.json`: `rope_parameters`, or `rope_theta` and `rope_scaling` of older files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kerasformer.basics.arguments import check, kind_of
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.layers import Rotary, RotaryScaling
from kerasformer.models.config import Config, ConfigWarning, hf

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
_OF_IMAGES = ("mrope_section", "mrope_interleaved")
"""Keys of frequencies that belong to one of three positions, which are equal for a token of a text."""
DEFAULT_BASE = 10000.0


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(Config):
    """Base of the configurations of models with rotary positions.

    Attributes:
        rotated_share: Default of `partial_rotary_factor`, the share of each head that is rotated; `None` for
            architectures that rotate whole heads only.
        base_keys: Keys of the base in older files.
        share_keys: Keys of `partial_rotary_factor` in older files.
        interleaved: Arrangement of pairs, see `Rotary`.
        default_base: Base of the frequencies if a file has none.
        rope: Content of `rope_parameters`; by default without scaling.
    """

    rotated_share: ClassVar[float | None] = None
    base_keys: ClassVar[tuple[str, ...]] = ("rope_theta",)
    share_keys: ClassVar[tuple[str, ...]] = ("partial_rotary_factor",)
    interleaved: ClassVar[bool] = False
    default_base: ClassVar[float] = DEFAULT_BASE

    rope: JsonObject | None = hf("rope_parameters", None)

    def __post_init__(self) -> None:
        """Sets the default rotary settings and validates them."""
        super().__post_init__()
        if self.rope is None:
            object.__setattr__(self, "rope", _default_rope(self.default_base))
        if self.rotated_share is not None and self.rope is not None:
            object.__setattr__(self, "rope", {"partial_rotary_factor": self.rotated_share, **self.rope})
        _ = self.rotary

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """See `Config.from_hf`; converts the rotary settings of older files to `rope_parameters`."""
        content = dict(content)
        theta, scaling = _popped(content, cls.base_keys), content.pop("rope_scaling", None)
        partial = _popped(content, cls.share_keys)
        parameters = scaling or content.get("rope_parameters") or {}
        if isinstance(parameters, Mapping):
            rope = _with_type(parameters)
            rope.setdefault("rope_theta", cls.default_base if theta is None else theta)
            if partial is not None:
                rope.setdefault("partial_rotary_factor", partial)
            content["rope_parameters"] = rope
        return super().from_hf(content)

    @property
    def longest_text(self) -> int:
        """Maximum length of a text in tokens; some kinds of scaling extend `max_position_embeddings`."""
        config: Any = self
        return _longest_text(self.rotary, int(config.max_length))

    @property
    def rotary(self) -> Rotary:
        """The rotary position embedding of all layers."""
        config: Any = self
        if self.rotated_share is None:
            _refuse_partial(self.model_type, config.rope)
        return rotary_of(config.rope, head_size(config), config.max_length, interleaved=self.interleaved)


@dataclass(frozen=True, kw_only=True)
class LayerRotaryConfig(Config):
    """Base of the configurations of models whose layers differ in type, with separate rotary positions for each type.

    Attributes:
        bases: Types of layers. For each type, the key of its base in older files, and the default base. An older file
            with the value null uses the base of the first type.
        scaled: Types of layers to which `rope_scaling` of older files applies; all by default.
        layer_types: Type of each layer; `None` for those of `default_layer_types`.
        rope: Content of `rope_parameters`, a dictionary for each type.
    """

    bases: ClassVar[Mapping[str, tuple[str, float]]]
    scaled: ClassVar[tuple[str, ...] | None] = None

    layer_types: list[str] | None = hf("layer_types", None)
    rope: dict[str, JsonObject] | None = hf("rope_parameters", None)

    def __post_init__(self) -> None:
        """Sets the default types and bases and validates them."""
        super().__post_init__()
        config: Any = self
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", self.default_layer_types())
        if self.rope is None:
            object.__setattr__(
                self, "rope", {layer_type: _default_rope(base) for layer_type, (_, base) in self.bases.items()}
            )
        check_layer_types(config.layer_types, config.num_layers, self.bases)
        if set(config.rope) != set(self.bases):
            raise UnsupportedConfigError(
                f"rope_parameters of {self.model_type} must have one entry for each of {', '.join(self.bases)}. "
                f"Received: {config.rope}"
            )
        _ = [self.rotary(layer_type) for layer_type in self.bases]

    def default_layer_types(self) -> list[str]:
        """Returns the type of each layer of a file without `layer_types`."""
        raise NotImplementedError

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """See `Config.from_hf`; converts the rotary settings of older files to `rope_parameters`."""
        content = dict(content)
        given, scaling = content.get("rope_parameters") or {}, content.pop("rope_scaling", None) or {}
        if not kind_of(dict[str, JsonObject]).accepts(given) or not kind_of(JsonObject).accepts(scaling):
            raise UnsupportedConfigError(
                f"rope_parameters of {cls.model_type} must be a dictionary with a dictionary for each of "
                f"{', '.join(cls.bases)}, and rope_scaling a dictionary. Received: {given!r} and {scaling!r}"
            )
        bases = {layer_type: content.pop(key, base) for layer_type, (key, base) in cls.bases.items()}
        rope = dict(given)
        for layer_type, base in bases.items():
            older = scaling if cls.scaled is None or layer_type in cls.scaled else {}
            own = {name: value for name, value in {**given.get(layer_type, {}), **older}.items() if value is not None}
            rope[layer_type] = {
                **_default_rope(next(iter(bases.values())) if base is None else base),
                **_with_type(own),
            }
        return super().from_hf({**content, "rope_parameters": rope})

    def to_hf(self) -> JsonObject:
        """See `Config.to_hf`; also writes the bases by the keys of older files, which older programs read."""
        config: Any = self
        return {
            **super().to_hf(),
            **{key: config.rope[layer_type]["rope_theta"] for layer_type, (key, _) in self.bases.items()},
        }

    @property
    def longest_text(self) -> int:
        """Maximum length of a text in tokens; the scaling of the first type of layers may extend it."""
        config: Any = self
        return _longest_text(self.rotary(next(iter(self.bases))), int(config.max_length))

    def rotary(self, layer_type: str) -> Rotary:
        """Returns the rotary position embedding of layers of a type."""
        config: Any = self
        _refuse_partial(self.model_type, config.rope[layer_type])
        return rotary_of(config.rope[layer_type], head_size(config), config.max_length)


def head_size(config: Any) -> int:
    """Returns the size of a head: `head_dim` of a configuration, if it has one."""
    head_dim: int | None = getattr(config, "head_dim", None)
    return int(config.hidden_dim // config.num_heads) if head_dim is None else head_dim


def check_layer_types(types: Any, count: int, expected: Collection[str]) -> None:
    """Validates the types of layers.

    Args:
        types: Content of `layer_types`.
        count: Number of layers.
        expected: Supported types.

    Raises:
        UnsupportedConfigError: the number of types is not that of the layers, or a type is unsupported.
    """
    if len(types) != count or not set(types) <= set(expected):
        raise UnsupportedConfigError(
            f"layer_types must have the type of each of the {count} layers, one of {', '.join(expected)}. "
            f"Received: {types}"
        )


def _default_rope(base: float | None) -> JsonObject:
    return {"rope_type": "default", "rope_theta": base}


def _popped(content: JsonObject, keys: Sequence[str]) -> Any:
    """Removes keys with the same meaning and returns their value, `None` if there is none."""
    values = {key: content.pop(key) for key in keys if key in content}
    set_values = [value for value in values.values() if value is not None]
    if any(value != set_values[0] for value in set_values):
        raise UnsupportedConfigError(f"{' and '.join(values)} must be equal. Received: {values}")
    return set_values[0] if set_values else None


def _with_type(parameters: JsonMapping) -> JsonObject:
    """Renames the key `type` of older files."""
    rope = {name: value for name, value in parameters.items() if name != "type"}
    rope.setdefault("rope_type", parameters.get("type", "default"))
    return rope


def _refuse_partial(model_type: str, rope: JsonMapping) -> None:
    """Raises an error for the rotation of a part of each head."""
    share = rope.get("partial_rotary_factor", 1.0)
    if share != 1.0:
        raise UnsupportedConfigError(f"{model_type} supports only partial_rotary_factor=1.0. Received: {share!r}")


def _longest_text(rotary: Rotary, limit: int) -> int:
    """Returns the maximum length of a text, which some kinds of scaling extend beyond `max_position_embeddings`."""
    scaling = rotary.scaling
    if scaling is None or scaling.kind not in ("dynamic", "yarn"):
        return limit
    return max(limit, int(scaling.original_length * scaling.factor))


def rotary_of(parameters: JsonMapping, head_dim: int, max_length: int | None, *, interleaved: bool = False) -> Rotary:
    """Creates a `Rotary` from `rope_parameters` of a `config.json`.

    Args:
        parameters: Content of `rope_parameters`.
        head_dim: Size of a head.
        max_length: Content of `max_position_embeddings`, optional.
        interleaved: Arrangement of pairs, see `Rotary`.

    Raises:
        UnsupportedConfigError: a kind of scaling or a value is unsupported.
    """
    unknown = sorted(set(parameters) - {*_NUMBERS, *_LISTS, *_OTHERS, *_OF_IMAGES})
    if unknown:
        warnings.warn(
            f"rope_parameters has unsupported keys, which are ignored: {', '.join(unknown)}. "
            "If one of them affects the outputs of the model, they will be wrong.",
            ConfigWarning,
            stacklevel=2,
        )
    numbers = [*_NUMBERS, "rope_theta", "partial_rotary_factor", "mscale", "mscale_all_dim"]
    hints: dict[str, Any] = {name: float for name in numbers} | {name: list[float] for name in _LISTS}
    for name, hint in hints.items():
        check(f"{name} in rope_parameters", parameters.get(name), kind_of(hint | None), error=UnsupportedConfigError)
    values = {name: value for name, value in parameters.items() if value is not None}
    rope_type = values.get("rope_type", "default")
    dim = int(head_dim * values.get("partial_rotary_factor", 1.0))
    try:
        scaling = None if rope_type == "default" else _scaling(rope_type, values, max_length)
        return Rotary(dim=dim, base=values.get("rope_theta", DEFAULT_BASE), interleaved=interleaved, scaling=scaling)
    except InputError as error:
        raise UnsupportedConfigError(f"rope_parameters with rope_type={rope_type!r} cannot be used. {error}") from error


def _scaling(rope_type: str, parameters: JsonMapping, max_length: int | None) -> RotaryScaling:
    """Creates a `RotaryScaling`, with the defaults of `transformers` for missing values."""
    names = {**_NUMBERS, **_LISTS}
    values = {field: parameters[name] for name, field in names.items() if name in parameters}
    if max_length is not None and (rope_type == "dynamic" or "original_length" not in values):
        values["original_length"] = max_length
    if "factor" not in values and max_length is not None and rope_type in ("yarn", "longrope"):
        values["factor"] = max_length / values["original_length"]
    scales = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if rope_type == "yarn" and "attention_factor" not in values and all(scales):
        numerator, denominator = (0.1 * scale * math.log(max(values["factor"], 1.0)) + 1.0 for scale in scales if scale)
        values["attention_factor"] = numerator / denominator
    return RotaryScaling(kind=rope_type, truncate=parameters.get("truncate", True), **values)
