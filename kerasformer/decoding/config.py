"""Generation settings: one frozen value, read from and written to `generation_config.json`.

Names, meanings and defaults are those of `transformers`, with one difference: `top_k` is off unless asked for
(`transformers` samples from the best 50 by default).
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasformer.errors import GenerationError

DEFAULT_NEW_TOKENS = 20
"""New tokens when neither `max_new_tokens` nor `max_length` is set, as in `transformers`."""

Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _whole(low: int) -> Check:
    return f"a whole number of at least {low}", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low


def _between(low: float, high: float) -> Check:
    return f"a number from {low:g} to {high:g}", lambda v: _is_number(v) and low <= v <= high


_POSITIVE: Check = ("a number above 0", lambda v: _is_number(v) and v > 0)
_NUMBER: Check = ("a finite number", _is_number)
_FLAG: Check = ("True or False", lambda v: isinstance(v, bool))
_EARLY: Check = ('True, False or "never"', lambda v: isinstance(v, bool) or v == "never")
_TOKEN: Check = _whole(0)
_TOKENS: Check = ("a token id or a list of them", lambda v: all(_TOKEN[1](token) for token in v))
_SEQUENCES: Check = ("a list of non-empty lists of token ids", lambda v: all(s and _TOKENS[1](s) for s in v))
_BIASES: Check = (
    "a list of [token ids, bias] pairs",
    lambda v: all(s and _TOKENS[1](s) and isinstance(bias, int | float) for s, bias in v),
)
_STRINGS: Check = ("a non-empty string or a list of them", lambda v: all(isinstance(s, str) and s for s in v))


def _listed(value: Any) -> tuple[Any, ...]:
    """A single token or string counts as a list of one."""
    return (value,) if isinstance(value, int | str) else tuple(value)


def _sequences(value: Any) -> tuple[Any, ...]:
    return tuple(tuple(sequence) for sequence in value)


def _biases(value: Any) -> tuple[Any, ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple((tuple(sequence), bias) for sequence, bias in pairs)


def _setting(default: Any, check: Check, convert: Callable[[Any], Any] | None = None, samples: bool = False) -> Any:
    """A field with its check; `samples` marks those that mean nothing to greedy search."""
    return dataclasses.field(default=default, metadata={"check": check, "convert": convert, "samples": samples})


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """What to generate and how; checked when made, changed with `replace`.

    Args:
        max_new_tokens: Most tokens to generate; wins over `max_length`.
        max_length: Most tokens, prompt (or decoder start token) included.
        min_new_tokens: No end token before so many new tokens; wins over `min_length`.
        min_length: The same with the prompt included.
        do_sample: Draw tokens instead of taking the best. `None`: yes if a setting of sampling (`temperature`, `top_k`,
            `top_p`, ..., or with one beam `seed`) is given.
        num_beams: Hypotheses kept in beam search; 1 is greedy search or plain sampling.
        num_return_sequences: Results per prompt.
        length_penalty: Exponent of the length that divides the score of a finished beam; above 0 favours long ones.
        early_stopping: When beam search ends: `True` at `num_beams` finished ones, `False` when improvement is
            unlikely, `"never"` when it is impossible.
        temperature: Divides the logits.
        top_k: Draw from the `k` best tokens; 0 is off.
        top_p: Draw from the fewest tokens that hold this probability; 1 is off.
        min_p: Draw from tokens with at least this share of the best token's probability.
        typical_p: Locally typical sampling with this mass; 1 is off.
        epsilon_cutoff: Draw from tokens above this probability; 0 is off.
        eta_cutoff: The same with a threshold that follows the entropy; 0 is off.
        repetition_penalty: Makes tokens already seen less likely; 1 is off.
        no_repeat_ngram_size: No n-gram of this size occurs twice; 0 is off.
        encoder_no_repeat_ngram_size: No n-gram of this size of the prompt occurs in the output; 0 is off.
        bad_words_ids: Token sequences that must not be generated.
        sequence_bias: `(token ids, bias)` pairs: added to the logit of the token that completes a sequence.
        suppress_tokens: Tokens never generated.
        begin_suppress_tokens: Tokens not generated first.
        forced_bos_token_id: First token of an encoder-decoder's output.
        forced_eos_token_id: Token or tokens allowed at the maximum length.
        eos_token_id: Tokens that end a sequence; an int or several.
        pad_token_id: What fills ended rows of a stream.
        bos_token_id: Begin token; an encoder-decoder without `decoder_start_token_id` starts with it.
        decoder_start_token_id: First token that an encoder-decoder's decoder reads.
        stop_strings: Texts that end a sequence; they need a tokenizer, see `Controls.decode`.
        seed: Seed of the random draws; `None` differs at each call.
        max_time: Seconds after which all sequences end, with the token at hand.
        guidance_scale: How far classifier-free guidance leads away from the negative prompt; 1 is off.
        prompt_lookup_num_tokens: Most tokens that are copied from the prompt as a guess and checked at once; 0 is off.
        max_matching_ngram_size: Longest run of tokens that prompt lookup searches for.
        num_assistant_tokens: Most tokens that an assistant guesses before they are checked at once.
    Raises:
        GenerationError: a value that cannot be, or settings that contradict each other.
    Reference: `transformers.GenerationConfig`, whose names and meanings these are.
    """

    max_new_tokens: int | None = _setting(None, _whole(1))
    max_length: int | None = _setting(None, _whole(1))
    min_new_tokens: int | None = _setting(None, _whole(0))
    min_length: int = _setting(0, _whole(0))
    do_sample: bool | None = _setting(None, _FLAG)
    num_beams: int = _setting(1, _whole(1))
    num_return_sequences: int = _setting(1, _whole(1))
    length_penalty: float = _setting(1.0, _NUMBER)
    early_stopping: bool | str = _setting(False, _EARLY)
    temperature: float = _setting(1.0, _POSITIVE, samples=True)
    top_k: int = _setting(0, _whole(0), samples=True)
    top_p: float = _setting(1.0, _between(0, 1), samples=True)
    min_p: float | None = _setting(None, _between(0, 1), samples=True)
    typical_p: float = _setting(1.0, _between(0, 1), samples=True)
    epsilon_cutoff: float = _setting(0.0, _between(0, 1), samples=True)
    eta_cutoff: float = _setting(0.0, _between(0, 1), samples=True)
    repetition_penalty: float = _setting(1.0, _POSITIVE)
    no_repeat_ngram_size: int = _setting(0, _whole(0))
    encoder_no_repeat_ngram_size: int = _setting(0, _whole(0))
    bad_words_ids: tuple[tuple[int, ...], ...] = _setting((), _SEQUENCES, _sequences)
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = _setting((), _BIASES, _biases)
    suppress_tokens: tuple[int, ...] = _setting((), _TOKENS, _listed)
    begin_suppress_tokens: tuple[int, ...] = _setting((), _TOKENS, _listed)
    forced_bos_token_id: int | None = _setting(None, _TOKEN)
    forced_eos_token_id: tuple[int, ...] = _setting((), _TOKENS, _listed)
    eos_token_id: tuple[int, ...] = _setting((), _TOKENS, _listed)
    pad_token_id: int | None = _setting(None, _TOKEN)
    bos_token_id: int | None = _setting(None, _TOKEN)
    decoder_start_token_id: int | None = _setting(None, _TOKEN)
    stop_strings: tuple[str, ...] = _setting((), _STRINGS, _listed)
    seed: int | None = _setting(None, _whole(0))
    max_time: float | None = _setting(None, _POSITIVE)
    guidance_scale: float = _setting(1.0, _POSITIVE)
    prompt_lookup_num_tokens: int = _setting(0, _whole(0))
    max_matching_ngram_size: int = _setting(3, _whole(1))
    num_assistant_tokens: int = _setting(5, _whole(1))

    def __post_init__(self) -> None:
        """Puts values into their final form, checks them and decides `do_sample`."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        if self.do_sample is None:
            given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if _differs(f, self)}
            object.__setattr__(self, "do_sample", _asks_to_sample(given, self.num_beams))
        if self.num_return_sequences > 1 and not self.do_sample and self.num_return_sequences > self.num_beams:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams unless tokens are sampled, for greedy search has one "
                f"result. Received: num_return_sequences={self.num_return_sequences}, num_beams={self.num_beams}. "
                "Set do_sample=True or more beams."
            )
        if 1 < self.num_beams < self.num_return_sequences:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams in beam search. Received: "
                f"num_return_sequences={self.num_return_sequences}, num_beams={self.num_beams}. Set more beams."
            )

    @property
    def fill_token(self) -> int:
        """What stands where a row has ended: the pad token, else an end token, else 0."""
        if self.pad_token_id is not None:
            return self.pad_token_id
        return self.eos_token_id[0] if self.eos_token_id else 0

    def replace(self, **changes: Any) -> GenerationConfig:
        """A copy with other settings; `None` puts a default back.

        A length given here wins over one of the other kind that was set before, and a setting of sampling given here
        without `do_sample` means that sampling is wanted.

        Raises:
            GenerationError: an unknown name, or a value that cannot be.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise GenerationError(_unknown(name, names))
        if changes.get("max_length") is not None:
            changes.setdefault("max_new_tokens", None)
        if changes.get("min_length") is not None:
            changes.setdefault("min_new_tokens", None)
        if "do_sample" not in changes and _asks_to_sample(changes, changes.get("num_beams") or self.num_beams):
            changes["do_sample"] = True
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], model_config: Mapping[str, Any] | None = None) -> GenerationConfig:
        """Reads the content of a `generation_config.json`.

        Args:
            data: The file; fields that are not known here and do something are named in a warning.
            model_config: Content of `config.json`: older checkpoints keep generation settings there. `data` wins.
        Raises:
            GenerationError: a value that cannot be.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(key for key in data if key not in names and key not in _IGNORED and _acts(key, data[key]))
        if unknown:
            warnings.warn(
                "these generation settings are not implemented and have no effect: "
                + ", ".join(f"{key}={data[key]!r}" for key in unknown),
                stacklevel=2,
            )
        old = dict(model_config or {})
        if old.get("max_length") == DEFAULT_NEW_TOKENS:
            del old["max_length"]  # old files hold all defaults; this one was never meant to limit prompts
        merged = {**old, **{key: value for key, value in data.items() if value is not None}}
        known = {key: value for key, value in merged.items() if key in names}
        if known.get("do_sample") is None:
            known["do_sample"] = False  # a file that sets only top_p is greedy in transformers too
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """The settings that differ from the defaults, ready for `generation_config.json`."""
        result: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not _differs(field, self) or (field.name == "do_sample" and not value):
                continue
            single = field.metadata["convert"] is _listed and len(value) == 1 and field.name.endswith("token_id")
            result[field.name] = value[0] if single else _as_lists(value)
        return result


_IGNORED = frozenset(
    "transformers_version _from_model_config use_cache cache_implementation cache_config output_attentions "
    "output_hidden_states output_scores output_logits return_dict_in_generate low_memory is_assistant compile_config "
    "num_assistant_tokens_schedule assistant_confidence_threshold assistant_lookbehind "
    "target_lookbehind disable_compile prefill_chunk_size".split()
)
"""Fields of the file that say how `transformers` runs, not which tokens come out."""

_NEUTRAL = {"num_beam_groups": 1, "diversity_penalty": 0.0, "encoder_repetition_penalty": 1.0}


def _acts(key: str, value: Any) -> bool:
    return value is not None and value is not False and value != _NEUTRAL.get(key)


def _differs(field: dataclasses.Field[Any], config: GenerationConfig) -> bool:
    return bool(getattr(config, field.name) != field.default)


def _asks_to_sample(given: Mapping[str, Any], num_beams: int) -> bool:
    """Whether settings given without `do_sample` want sampling; a seed alone does not turn beams into samples."""
    sampling = {field.name for field in dataclasses.fields(GenerationConfig) if field.metadata["samples"]}
    if num_beams == 1:
        sampling.add("seed")
    return any(value is not None for name, value in given.items() if name in sampling)


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value in its final form."""
    if value is None:
        return field.default
    expected, valid = field.metadata["check"]
    convert = field.metadata["convert"]
    plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    try:
        plain = convert(plain) if convert else plain
        right = valid(plain)
    except (TypeError, ValueError):
        right = False
    if not right:
        hint = " For the most probable token set do_sample=False." if field.name == "temperature" else ""
        raise GenerationError(f"{field.name} must be {expected}. Received: {field.name}={value!r}.{hint}")
    return plain


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _unknown(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(sorted(names))}."
    return f"{name} is not a generation setting. {advice}"
