"""Model configurations: frozen dataclasses that read and write Hugging Face's `config.json`.

A field is declared once, with `hf("name_in_config_json", default)`, for reading and writing. No key of a file is
dropped silently: it is mapped to a field, required to have a supported value, ignored because it does not affect the
outputs, or named in a warning.

Called by `loading`, which reads `config.json`; layers and engines read the fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import warnings
from collections.abc import Mapping
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from kerasformer.basics.arguments import Arguments, Kind, check, integer, kind_of, shown
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.files.reading import JsonMapping, JsonObject
from kerasformer.models.config_types import LAYERS, MOST_LABELS, TOKEN_ID, TokenId

logger = logging.getLogger("kerasformer")


class ConfigWarning(UserWarning):
    """Warning about unsupported keys of a `config.json`."""


def hf(name: str, default: Any, *older: str) -> Any:
    """Declares a field and its keys in `config.json`. Dots in a key denote nested objects.

    Args:
        name: Key to write and to read.
        default: Default of the reference class.
        older: Keys that other versions of the file use, read where `name` is missing.
    """
    metadata = {"hf": (name, *older)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Keys that any configuration may contain and that do not affect the forward pass.
_IGNORED = frozenset(
    """_name_or_path _model_name_or_path _commit_hash _attn_implementation _num_labels architectures auto_map bos_token
    attn_implementation chunk_size_feed_forward cross_attention_hidden_size dtype eos_token finetuning_task
    gradient_checkpointing is_encoder_decoder label2id license model_type n_ctx num_labels output_attentions
    output_hidden_states output_past predict_special_tokens return_dict sep_token tokenizer_class torch_dtype
    torchscript transformers_version use_bfloat16 use_cache use_return_dict vocab_file initializer_factor""".split()
) | frozenset(
    # Tokens that only tokenizers use, and generation settings, which older files contain; see
    # `Config.generation_settings`.
    """pad_token cls_token unk_token mask_token cls_token_id mask_token_id unk_token_id
    bad_words_ids begin_suppress_tokens cache_implementation decoder_start_token_id diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id
    forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate
    suppress_tokens temperature top_k top_p typical_p""".split()
)


_REQUIRED: Mapping[str, tuple[object, ...]] = {"pruned_heads": ({}, None)}
"""Supported values of keys that the configuration of any architecture may contain."""

_Field = dataclasses.Field[Any]

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Base of the configurations of all architectures.

    Attributes:
        model_type: Name of the architecture and of its file.
        ignored: Keys of `config.json` that do not affect the outputs of this architecture.
        required: Supported values of keys that have no field.
        same_as: Fields that take the value of another field if they are `None`.
        counterparts: Fields that `create` sets to the value of another field if only that one is passed, such as the
            sizes of a decoder. Files are not affected: a missing key has the default of the reference class.
        text_part_of: `model_type` of a model for images and texts, whose `text_config` this is; optional.
        positions_follow_padding: Whether the positions of a text start after `pad_token_id`, which must not change.
        score_activation: Function of PyTorch for the scores of a cross-encoder of sentence-transformers.
        prefix_lm: Whether the tokens of a prompt attend to each other in both directions, and only generated tokens are
            causal; the name is that of MPT's configuration. `transformers` ignores it.
    """

    model_type: ClassVar[str]
    ignored: ClassVar[frozenset[str]] = frozenset()
    required: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    same_as: ClassVar[Mapping[str, str]] = {}
    counterparts: ClassVar[Mapping[str, str]] = {
        "num_decoder_layers": "num_layers",
        "decoder_num_heads": "num_heads",
        "decoder_intermediate_dim": "intermediate_dim",
    }
    text_part_of: ClassVar[str | None] = None
    positions_follow_padding: ClassVar[bool] = False

    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1"})
    problem_type: ProblemType | None = hf("problem_type", None)
    pad_token_id: TokenId | None = hf("pad_token_id", None)
    bos_token_id: TokenId | None = hf("bos_token_id", None)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", None)
    sep_token_id: TokenId | None = hf("sep_token_id", None)
    prefix: str | None = hf("prefix", None)
    task_specific_params: dict[str, JsonObject] | None = hf("task_specific_params", None)
    score_activation: str | None = hf(
        "sentence_transformers.activation_fn", None, "sbert_ce_default_activation_function"
    )
    prefix_lm: bool | None = hf("prefix_lm", None)

    def __post_init__(self) -> None:
        """Sets the fields of `same_as` and validates all values; one error lists all problems."""
        for name, other in self.same_as.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(self, other))
        problems = []
        for field, hint in _hints(type(self)).items():
            try:
                value = check(_named(field), getattr(self, field.name), kind_of(hint))
                object.__setattr__(self, field.name, value)
            except InputError as error:
                problems.append(str(error))
        problems += [] if problems else _further_problems(self)
        if problems:
            raise UnsupportedConfigError(
                f"The configuration of {self.model_type} has {len(problems)} invalid value(s):\n  "
                + "\n  ".join(problems)
            )

    def __getattr__(self, name: str) -> Any:
        """Returns a field by its key in `config.json`, the name that it has in `transformers`.

        Raises:
            AttributeError: there is no such key; the message names a similar field.
        """
        if not name.startswith("_"):
            keys = {key: field.name for field in _fields(type(self)) for key in reversed(field.metadata["hf"])}
            if name in keys:
                return getattr(self, keys[name])
            close = difflib.get_close_matches(name, [*keys, *keys.values()], 1)
            hint = f". Did you mean {close[0]}?" if close else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)

    @property
    def layer_counts(self) -> dict[str, int]:
        """Numbers of layers that have separate weights, by their names in `config.json`."""
        counts = [field for field, hint in _hints(type(self)).items() if _mentions(hint, LAYERS)]
        return {field.metadata["hf"][0]: getattr(self, field.name) or 0 for field in counts}

    @property
    def num_labels(self) -> int:
        """Number of classes of a classification head."""
        return len(self.id2label)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        return tuple(self.id2label[i] for i in range(len(self.id2label)))

    @property
    def output_dim(self) -> int:
        """Size of the hidden states that the backbone returns."""
        return int(getattr(self, "hidden_dim"))  # noqa: B009  (a field of every architecture)

    @property
    def longest_text(self) -> int | None:
        """Maximum length of a text in tokens; `None` if it is unlimited."""
        return getattr(self, "max_length", None)

    @property
    def longest_answer(self) -> int | None:
        """Maximum length in tokens of the text that a decoder reads or generates; that of a text by default."""
        return self.longest_text

    @property
    def token_ids(self) -> dict[str, list[int]]:
        """Ids of tokens, by the fields that contain them."""
        named = (field.name for field, hint in _hints(type(self)).items() if _mentions(hint, TOKEN_ID))
        values = {name: getattr(self, name) for name in named}
        return {name: [x] if isinstance(x, int) else list(x) for name, x in values.items() if x is not None}

    def with_vocabulary(self, size: int, new_ids: Mapping[int, int]) -> Self:
        """Returns the configuration of a model whose tokens have other ids.

        Args:
            size: Size of the vocabulary.
            new_ids: New ids by old ids; others are those of no token and do not change.
        """
        changes: Arguments = {"vocab_size": size}
        for name, ids in self.token_ids.items():
            new = [new_ids.get(index, index) for index in ids]
            changes[name] = new if isinstance(getattr(self, name), list) else new[0]
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, content: JsonMapping) -> Self:
        """Creates a configuration from the content of a `config.json`.

        Raises:
            UnsupportedConfigError: a value is unsupported or has the wrong type.
        """
        content = _with_labels(content)
        values: Arguments = {}
        hints = _hints(cls)
        required = {**_REQUIRED, **cls.required}
        known = set(_IGNORED | cls.ignored | set(required))
        for field in _fields(cls):
            known.update(name.split(".")[0] for name in field.metadata["hf"])
            for name in field.metadata["hf"]:
                exists, value = _find(content, name)
                if exists:
                    values[field.name] = _converted(field, hints[field], value)
                    break
        for key, allowed in required.items():
            if key in content and content[key] not in allowed:
                expected = " or ".join(map(repr, allowed))
                raise UnsupportedConfigError(
                    f"{cls.model_type} supports only {key}={expected}. Received: {key}={content[key]!r}"
                )
        unknown = sorted(set(content) - known)
        if unknown:
            warnings.warn(
                f"config.json of {cls.model_type} has unsupported keys, which are ignored: {', '.join(unknown)}. "
                "If one of them affects the outputs of the model, they will be wrong.",
                ConfigWarning,
                stacklevel=2,
            )
        return cls(**values)

    def to_hf(self) -> JsonObject:
        """Returns the content of a `config.json`, except `architectures`, which depends on the task."""
        content: JsonObject = {"model_type": self.model_type}
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            *parents, last = field.metadata["hf"][0].split(".")
            target = content
            for parent in parents:
                target = target.setdefault(parent, {})
            target[last] = {str(k): v for k, v in value.items()} if field.name == "id2label" else value
        content["label2id"] = {label: index for index, label in self.id2label.items()}
        return content

    def generation_settings(self, content: JsonMapping | None = None, forced: bool = True) -> JsonObject:
        """Returns the generation settings of a configuration, by their names in `generation_config.json`.

        The `decoder_start_token_id` of an encoder-decoder is the `bos_token_id` by default, or the `pad_token_id`.

        Args:
            content: Content of the `config.json`, for settings that have no field.
            forced: Whether to include the tokens forced at the start and the end of a text, and forbidden ones. If a
                checkpoint has a `generation_config.json`, they are read from that file only, as in `transformers`.
        """
        names = ["decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"]
        names += ["forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"] if forced else []
        known = {**(content or {}), **self.to_hf()}
        settings = {name: known[name] for name in names if known.get(name) is not None}
        if any(field.name == "decoder_start_token_id" for field in _fields(type(self))):
            start = [settings[name] for name in ("bos_token_id", "pad_token_id") if name in settings]
            settings.setdefault("decoder_start_token_id", start[0] if start else 0)
        return settings

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Creates a configuration from values by field name; see also `counterparts`.

        Raises:
            UnsupportedConfigError: the configuration has no field of that name, or a value is invalid.
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
                f"Unknown setting of {cls.model_type}. Expected some of {known}. Received: {name!r}.{hint}"
            )
        paired = {name: values[other] for name, other in cls.counterparts.items() if name in names and other in values}
        return cls(**{**paired, **values})


def _fields(cls: type[Config]) -> list[_Field]:
    return [field for field in dataclasses.fields(cls) if "hf" in field.metadata]


def _hints(cls: type[Config]) -> dict[_Field, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field: hints[field.name] for field in _fields(cls)}


def _named(field: _Field) -> str:
    name = field.metadata["hf"][0]
    return field.name if field.name == name else f"{field.name} ({name} in config.json)"


def _mentions(hint: object, kind: Kind) -> bool:
    """Whether a type is that of a kind, or contains it, as a list does."""
    return hint is kind or any(_mentions(argument, kind) for argument in get_args(hint))


def _further_problems(config: Config) -> list[str]:
    problems = []
    if sorted(config.id2label) != list(range(len(config.id2label))) or not config.id2label:
        problems.append(f"id2label must name the classes 0, 1, 2 … Received: {shown(config.id2label)}")
    for task, values in (config.task_specific_params or {}).items():
        if not isinstance(values.get("prefix", ""), str | NoneType):
            problems.append(f"the prefix of {task!r} must be a string. Received: {shown(values['prefix'])}")
    return problems


def _find(content: JsonMapping, name: str) -> tuple[bool, Any]:
    """Returns whether a key exists, and its value."""
    value: Any = content
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _converted(field: _Field, hint: object, value: Any) -> Any:
    """Converts a JSON value for a field: null becomes the default, and keys become integers."""
    kind = kind_of(hint)
    if value is None and not kind.accepts(None):
        return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if _mentions(hint, TOKEN_ID) and not kind.accepts(value):
        return _token_id(value, kind)
    return _labels(value) if field.name == "id2label" else value


def _token_id(value: Any, kind: Kind) -> Any:
    """Converts an id in another form: -1 means no token, and a list of one a single id."""
    if isinstance(value, list) and value and not isinstance(value[0], list):
        return _token_id(value[0], kind)
    return None if value == -1 and kind.accepts(None) else value


def _labels(value: Any) -> Any:
    """Converts labels to strings by id; other values are returned unchanged, so that validation reports them."""
    try:
        return {int(key): label if isinstance(label, dict | list) else str(label) for key, label in value.items()}
    except (AttributeError, TypeError, ValueError):
        return value


def _with_labels(content: JsonMapping) -> JsonMapping:
    """Adds the labels of older files, which contain only `num_labels`; it takes precedence, as in `transformers`."""
    count, labels = content.get("num_labels"), content.get("id2label")
    if count is None:
        return content
    check_label_count(count)
    if isinstance(labels, Mapping) and len(labels) != count:
        logger.warning(
            "config.json has num_labels=%s, but id2label has %s classes. num_labels is used, as in transformers, and "
            "the classes are named LABEL_0, LABEL_1, … Pass labels= to name them",
            count,
            len(labels),
        )
    elif labels is not None:
        return content
    return {**content, "id2label": numbered_labels(count)}


def check_label_count(count: Any) -> None:
    """Validates a number of classes.

    Raises:
        UnsupportedConfigError: it is not an integer from 1 to `MOST_LABELS`.
    """
    check("num_labels", count, integer(1, MOST_LABELS), error=UnsupportedConfigError)


def numbered_labels(count: int) -> dict[int, str]:
    """Returns default names of classes."""
    return {index: f"LABEL_{index}" for index in range(count)}
