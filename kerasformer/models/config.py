"""Model configurations: frozen dataclasses that read and write Hugging Face's `config.json`.

A field is declared once, with `hf("name_in_config_json", default)`, and serves both directions. Nothing in a file is
passed over in silence: a key is mapped to a field, required to have a value that the code implements, ignored because
it changes no number, or named in a warning.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import warnings
from collections.abc import Mapping
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.config_types import MOST_LABELS, TokenId, described, fits, is_layers

logger = logging.getLogger("kerasformer")


class ConfigWarning(UserWarning):
    """A key of a `config.json` that this package does not know."""


def hf(name: str, default: Any, *older: str) -> Any:
    """A field that `config.json` calls `name`; `older` names are read too. Dots lead into nested objects.

    Args:
        name: The key that is written, and read first.
        default: The reference class's default.
        older: Names under which other versions wrote it.
    """
    metadata = {"hf": (name, *older)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Keys that every configuration may have and that change no number of a forward pass here.
_IGNORED = frozenset(
    """_name_or_path _attn_implementation architectures auto_map bos_token attn_implementation
    chunk_size_feed_forward cross_attention_hidden_size dtype eos_token finetuning_task gradient_checkpointing
    is_encoder_decoder label2id license model_type n_ctx num_labels output_attentions output_hidden_states
    output_past predict_special_tokens prefix return_dict sep_token tokenizer_class torch_dtype torchscript
    transformers_version use_bfloat16 use_cache use_return_dict vocab_file initializer_factor""".split()
) | frozenset(
    # Settings of the decoding, which older files keep here; see `Config.generation_settings`.
    """bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping
    encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    output_scores remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature
    top_k top_p typical_p""".split()
)


_REQUIRED: Mapping[str, tuple[Any, ...]] = {"pruned_heads": ({}, None)}
"""Keys of any architecture whose other values are not implemented."""

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What all configurations share.

    Attributes:
        model_type: The architecture's name; also the name of its file.
        ignored: Keys that change no number in this architecture.
        required: Keys whose other values are not implemented, each with the values that are.
        same_as: Fields that have the value of another field where they are `None`.
    """

    model_type: ClassVar[str]
    ignored: ClassVar[frozenset[str]] = frozenset()
    required: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    same_as: ClassVar[Mapping[str, str]] = {}

    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})
    problem_type: ProblemType | None = hf("problem_type", None)
    pad_token_id: TokenId | None = hf("pad_token_id", None)
    bos_token_id: TokenId | None = hf("bos_token_id", None)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", None)
    sep_token_id: TokenId | None = hf("sep_token_id", None)
    task_specific_params: dict[str, dict[str, Any]] | None = hf("task_specific_params", None)

    def __post_init__(self) -> None:
        """Completes the fields of `same_as`, and refuses values of the wrong type or range, all in one error."""
        for name, other in self.same_as.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(self, other))
        problems = [
            f"{_named(field)} must be {described(kind)}. Received: {_short(getattr(self, field.name))}"
            for field, kind in _kinds(type(self)).items()
            if not fits(kind, getattr(self, field.name))
        ]
        problems += [] if problems else _further_problems(self)
        if problems:
            raise UnsupportedConfigError(
                f"{len(problems)} value(s) in the configuration of a {self.model_type} cannot be used:\n  "
                + "\n  ".join(problems)
            )

    @property
    def layer_counts(self) -> dict[str, int]:
        """How many layers with tensors of their own there are to be, by the name in `config.json`."""
        counts = {field: kind for field, kind in _kinds(type(self)).items() if is_layers(kind)}
        return {field.metadata["hf"][0]: getattr(self, field.name) or 0 for field in counts}

    @property
    def num_labels(self) -> int:
        """Classes of a classification head."""
        return len(self.id2label)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        return tuple(self.id2label[i] for i in range(len(self.id2label)))

    @property
    def longest_text(self) -> int | None:
        """Longest text in tokens, or `None` if positions have no end."""
        return getattr(self, "max_length", None)

    def with_tied_output(self, tied: bool) -> Self:
        """The configuration of a model that generates, with another `tied`; nothing else is computed otherwise."""
        changes: dict[str, Any] = {"tied": tied}
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, content: Mapping[str, Any]) -> Self:
        """Reads the content of a `config.json`.

        Raises:
            UnsupportedConfigError: a value that this architecture does not implement, or of the wrong type.
        """
        content = _with_labels(content)
        values: dict[str, Any] = {}
        kinds = _kinds(cls)
        required = {**_REQUIRED, **cls.required}
        known = set(_IGNORED | cls.ignored | set(required))
        for field in _fields(cls):
            known.update(name.split(".")[0] for name in field.metadata["hf"])
            for name in field.metadata["hf"]:
                found, value = _find(content, name)
                if found:
                    values[field.name] = _converted(field, kinds[field], value)
                    break
        for key, allowed in required.items():
            if key in content and content[key] not in allowed:
                expected = " or ".join(map(repr, allowed))
                raise UnsupportedConfigError(
                    f"{cls.model_type} is implemented for {key}={expected} only. Received: {key}={content[key]!r}"
                )
        unknown = sorted(set(content) - known)
        if unknown:
            warnings.warn(
                f"config.json of a {cls.model_type} has keys that are not known here and have no effect: "
                f"{', '.join(unknown)}. If one of them changes the model's numbers, they will differ.",
                ConfigWarning,
                stacklevel=2,
            )
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json`, without what depends on the task (`architectures`)."""
        content: dict[str, Any] = {"model_type": self.model_type}
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            *parents, last = field.metadata["hf"][0].split(".")
            place = content
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = {str(k): v for k, v in value.items()} if field.name == "id2label" else value
        content["label2id"] = {label: index for index, label in self.id2label.items()}
        return content

    def generation_settings(self, content: Mapping[str, Any] | None = None, forced: bool = True) -> dict[str, Any]:
        """Generation settings that a configuration holds, by the names of `generation_config.json`.

        An encoder-decoder that names no first token of its decoder begins with its begin token, or with padding.

        Args:
            content: Of the `config.json`, for names that the configuration has no field for.
            forced: Includes tokens that are forced at the begin and the end. A checkpoint with a
                `generation_config.json` has them there alone, as in `transformers`.
        """
        names = ["decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"]
        names += ["forced_bos_token_id", "forced_eos_token_id"] if forced else []
        known = {**(content or {}), **self.to_hf()}
        found = {name: known[name] for name in names if known.get(name) is not None}
        if any(field.name == "decoder_start_token_id" for field in _fields(type(self))):
            start = [found[name] for name in ("bos_token_id", "pad_token_id") if name in found]
            found.setdefault("decoder_start_token_id", start[0] if start else 0)
        return found

    @classmethod
    def create(cls, **values: Any) -> Self:
        """A configuration from values under this package's names.

        Raises:
            UnsupportedConfigError: a name that the configuration does not have.
        """
        names = {field.name for field in _fields(cls)}
        if "num_labels" in values:
            count = values.pop("num_labels")
            check_label_count(count)
            values.setdefault("id2label", numbered_labels(count))
        for name in sorted(set(values) - names):
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            known = ", ".join(sorted(names))
            raise UnsupportedConfigError(
                f"{cls.model_type} has no setting of that name. Expected some of {known}. Received: {name!r}.{hint}"
            )
        return cls(**values)


def _fields(cls: type[Config]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if "hf" in field.metadata]


def _kinds(cls: type[Config]) -> dict[dataclasses.Field[Any], Any]:
    """What the value of each field must be."""
    hints = get_type_hints(cls, include_extras=True)
    return {field: hints[field.name] for field in _fields(cls)}


def _named(field: dataclasses.Field[Any]) -> str:
    name = field.metadata["hf"][0]
    return field.name if field.name == name else f"{field.name} ({name} in config.json)"


def _further_problems(config: Config) -> list[str]:
    problems = []
    if sorted(config.id2label) != list(range(len(config.id2label))) or not config.id2label:
        problems.append(f"id2label must name the classes 0, 1, 2 … Received: {_short(config.id2label)}")
    for task, values in (config.task_specific_params or {}).items():
        if not isinstance(values.get("prefix", ""), str | NoneType):
            problems.append(f"the prefix of {task!r} must be of type str. Received: {_short(values['prefix'])}")
    return problems


def _find(content: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    place: Any = content
    for part in name.split("."):
        if not isinstance(place, Mapping) or part not in place:
            return False, None
        place = place[part]
    return True, place


def _converted(field: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """`value` as the field holds it: null stands for a default, keys may be strings, a float may lack its point."""
    if value is None and not fits(kind, None):
        return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if field.name == "id2label":
        return _labels(value)
    return float(value) if _is_float(kind) and fits(float, value) else value


def _is_float(kind: Any) -> bool:
    return kind is float or any(_is_float(each) for each in get_args(kind))


def _labels(value: Any) -> Any:
    """Names by number; what is neither stays as it is, to be refused by the name of its field."""
    try:
        return {int(key): label if isinstance(label, dict | list) else str(label) for key, label in value.items()}
    except (AttributeError, TypeError, ValueError):
        return value


def _with_labels(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files name only the number of labels; where both are given, the number counts, as in `transformers`."""
    count, labels = content.get("num_labels"), content.get("id2label")
    if count is None:
        return content
    check_label_count(count)
    if isinstance(labels, Mapping) and len(labels) != count:
        logger.warning(
            "config.json says num_labels=%s and names %s classes in id2label; the number counts, as in transformers, "
            "and the classes are named LABEL_0, LABEL_1, … Pass labels= for other names",
            count,
            len(labels),
        )
    elif labels is not None:
        return content
    return {**content, "id2label": numbered_labels(count)}


def check_label_count(count: Any) -> None:
    """Refuses a number of classes that cannot be.

    Raises:
        UnsupportedConfigError: it is none from 1 to a million.
    """
    if not fits(int, count) or not 1 <= count <= MOST_LABELS:
        raise UnsupportedConfigError(
            f"num_labels must be of type int, from 1 to {MOST_LABELS}. Received: {_short(count)}"
        )


def numbered_labels(count: int) -> dict[int, str]:
    """Names for classes that have none."""
    return {index: f"LABEL_{index}" for index in range(count)}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
