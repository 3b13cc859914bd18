"""Model configurations: frozen dataclasses that read and write Hugging Face's `config.json`.

A field is declared once, with `hf("name_in_config_json", default)`, and serves both directions. Nothing in a file is
passed over in silence: a key is mapped to a field, required to have a value that the code implements, ignored because
it changes no number, or named in a warning.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from kerasformer.errors import UnsupportedConfigError


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
    # Settings of the decoding, which older files keep here; see `generation_settings`.
    """bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping
    encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    output_scores remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature
    top_k top_p typical_p""".split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What all configurations share.

    Attributes:
        model_type: The architecture's name; also the name of its file.
        ignored: Keys that change no number in this architecture.
        required: Keys whose other values are not implemented, each with the values that are.
    """

    model_type: ClassVar[str]
    ignored: ClassVar[frozenset[str]] = frozenset()
    required: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})
    problem_type: str | None = hf("problem_type", None)
    pad_token_id: int | None = hf("pad_token_id", None)
    bos_token_id: int | None = hf("bos_token_id", None)
    eos_token_id: int | list[int] | None = hf("eos_token_id", None)
    sep_token_id: int | None = hf("sep_token_id", None)
    task_specific_params: dict[str, Any] | None = hf("task_specific_params", None)

    @property
    def num_labels(self) -> int:
        """Classes of a classification head."""
        return len(self.id2label)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        return tuple(self.id2label[i] for i in range(len(self.id2label)))

    @classmethod
    def from_hf(cls, content: Mapping[str, Any]) -> Self:
        """Reads the content of a `config.json`.

        Raises:
            UnsupportedConfigError: a value that this architecture does not implement, or of the wrong type.
        """
        content = _with_labels(content)
        values: dict[str, Any] = {}
        known = set(_IGNORED | cls.ignored | set(cls.required))
        for field in _fields(cls):
            known.update(name.split(".")[0] for name in field.metadata["hf"])
            for name in field.metadata["hf"]:
                found, value = _find(content, name)
                if found:
                    values[field.name] = _checked(cls.model_type, field, name, value)
                    break
        for key, allowed in cls.required.items():
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

    @classmethod
    def create(cls, **values: Any) -> Self:
        """A configuration from values under this package's names.

        Raises:
            UnsupportedConfigError: a name that the configuration does not have.
        """
        names = {field.name for field in _fields(cls)}
        if "num_labels" in values:
            count = values.pop("num_labels")
            values.setdefault("id2label", {i: f"LABEL_{i}" for i in range(count)})
        for name in sorted(set(values) - names):
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            known = ", ".join(sorted(names))
            raise UnsupportedConfigError(
                f"{cls.model_type} has no setting of that name. Expected some of {known}. Received: {name!r}.{hint}"
            )
        return cls(**values)


def generation_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The decoding settings that a `config.json` itself holds, as older checkpoints do."""
    names = {"decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id"}
    return {name: content[name] for name in names if content.get(name) is not None}


def _fields(cls: type[Config]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if "hf" in field.metadata]


def _find(content: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    place: Any = content
    for part in name.split("."):
        if not isinstance(place, Mapping) or part not in place:
            return False, None
        place = place[part]
    return True, place


def _checked(model_type: str, field: dataclasses.Field[Any], name: str, value: Any) -> Any:
    """`value`, if it is of the kind that the field's default is."""
    default = field.default
    if field.name == "id2label":
        return {int(key): str(label) for key, label in value.items()}
    if default is None or default is dataclasses.MISSING or value is None:
        if value is None and isinstance(default, bool | int | float | str) and field.name not in ("problem_type",):
            return default
        return value
    kind: Any = type(default)
    fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not fits:
        raise UnsupportedConfigError(
            f"{name} in the config.json of a {model_type} must be of type {kind.__name__}. Received: {value!r}"
        )
    return value


def _with_labels(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files name only the number of labels."""
    if "num_labels" in content and "id2label" not in content:
        labels = {str(i): f"LABEL_{i}" for i in range(int(content["num_labels"]))}
        return {**content, "id2label": labels}
    return content
