"""Generation settings, read from and written to `generation_config.json`.

Names, meanings and defaults are those of `transformers`, with one exception: `top_k` is off by default (`transformers`
samples from the best 50 tokens).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, FUNCTION, Arguments, check, integer, number
from kerasformer.basics.options import Option, declared
from kerasformer.errors import GenerationError, SourceError
from kerasformer.files.publishing import replacing, write_json
from kerasformer.files.reading import JsonMapping, JsonObject, local_path, read_json
from kerasformer.files.sources import inside
from kerasformer.generation.checks import (
    BIASES,
    DECAY,
    EARLY,
    MAX_ROWS,
    POSITIVE,
    SAMPLING_TEMPERATURE,
    SEQUENCES,
    STRINGS,
    TOKEN,
    TOKENS,
)
from kerasformer.generation.setting_names import unknown_name_message, warn_unsupported

DEFAULT_NEW_TOKENS = 20
"""New tokens when neither `max_new_tokens` nor `max_length` is set, as in `transformers`."""

FILE_NAME = "generation_config.json"

_SINGLE = ("forced_bos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id")
_SEVERAL = ("forced_eos_token_id", "eos_token_id", "suppress_tokens", "begin_suppress_tokens")
ID_SETTINGS = (*_SINGLE, *_SEVERAL, "bad_words_ids", "sequence_bias")
"""Settings that contain ids of tokens."""
SAMPLING_SETTINGS = frozenset(
    {"temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "uniform"}
)
"""Settings that greedy search ignores."""

PrefixFunction = Callable[[int, np.ndarray], Sequence[int] | np.ndarray]
"""Maps the index of a prompt and the tokens of one of its rows `(N,)` to the ids that may follow."""


def _ids(name: str, value: Any) -> Any:
    """Converts ids in the forms of older files: -1 means no token, and a list of one a single id."""
    if name in _SEVERAL and isinstance(value, list):
        return [token for token in value if token != -1]
    if name in _SINGLE and isinstance(value, list) and value:
        value = value[0]
    return None if name in ID_SETTINGS and value == -1 else value


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """Settings of text generation. Instances are validated and immutable; use `replace` to change settings.

    Args:
        max_new_tokens: Maximum number of new tokens; takes precedence over `max_length`.
        max_length: Maximum number of tokens, including the prompt (or the decoder start token).
        min_new_tokens: Minimum number of new tokens before an end token; takes precedence over `min_length`.
        min_length: Minimum number of tokens before an end token, including the prompt.
        do_sample: Whether to sample tokens instead of taking the most probable one. `None` enables sampling if a
            sampling setting (`temperature`, `top_k`, `top_p`, ..., or `seed` with one beam) is passed.
        num_beams: Number of beams of beam search; 1 disables beam search.
        num_return_sequences: Number of sequences to return for each prompt.
        length_penalty: Exponent of the length by which the score of a finished beam is divided; values above 0 favour
            long sequences.
        early_stopping: When beam search ends: `True` as soon as `num_beams` hypotheses have finished, `False` when a
            better one is unlikely, `"never"` when a better one is impossible.
        temperature: Divisor of the logits. 0 means greedy search: it sets `do_sample` to `False`, even if
            `do_sample=True` is passed.
        top_k: Number of most probable tokens to sample from; 0 disables the filter.
        top_p: Samples from the smallest set of most probable tokens with at least this total probability; 1 disables
            the filter.
        min_p: Samples from tokens with at least this fraction of the most probable token's probability.
        top_h: Samples from the most probable of the best 100 tokens that hold this fraction of their entropy.
        typical_p: Probability mass of locally typical sampling; 1 disables the filter.
        epsilon_cutoff: Minimum probability of the tokens to sample from; 0 disables the filter.
        eta_cutoff: Like `epsilon_cutoff`, with a threshold that adapts to the entropy; 0 disables the filter.
        uniform: Whether all tokens that remain after these filters are equally probable, such as the `top_k` best ones.
        encoder_repetition_penalty: Values above 1 make tokens of the prompt more likely; 1 disables the penalty.
        repetition_penalty: Values above 1 make tokens of the prompt and the output less likely; 1 disables the penalty.
        frequency_penalty: Subtracted from the logit of a token once for each time that it was generated; 0 disables it.
        presence_penalty: Subtracted once from the logit of each token that was generated; 0 disables it.
        no_repeat_ngram_size: Size of the n-grams that may occur only once; 0 disables the rule.
        encoder_no_repeat_ngram_size: Size of the n-grams of the prompt that may not occur in the output; 0 disables the
            rule.
        bad_words_ids: Token sequences that must not be generated.
        sequence_bias: `(token ids, bias)` pairs; the bias is added to the logit of the token that completes a sequence.
        prefix_allowed_tokens_fn: Function that maps the index of a prompt and the tokens of a row `(N,)` (prompt or
            decoder start token, and output) to the ids that may follow. It is not saved to files.
        remove_invalid_values: Whether to replace NaN and infinity in the logits instead of raising an error. In beam
            search, NaN raises in any case, because it spreads to all log-probabilities.
        exponential_decay_length_penalty: `(start, factor)`; end tokens become exponentially more likely once the output
            is longer than `start` tokens.
        suppress_tokens: Tokens that are never generated.
        begin_suppress_tokens: Tokens that are not generated as the first token.
        forced_bos_token_id: First token of an encoder-decoder's output.
        forced_eos_token_id: Token or tokens allowed at the maximum length.
        renormalize_logits: Whether to renormalize the log-probabilities after rules and filters, for the sums of beam
            search.
        eos_token_id: Token or tokens that end a sequence.
        pad_token_id: Token that a stream returns for rows that have ended.
        bos_token_id: Start token of an encoder-decoder without `decoder_start_token_id`.
        decoder_start_token_id: First token that an encoder-decoder's decoder reads.
        stop_strings: Texts that end a sequence; they require a tokenizer, see `Controls.decode`.
        seed: Seed of the random numbers; by default, each call gives other results.
        max_time: Time limit in seconds; all sequences end after the first token that exceeds it.
        guidance_scale: Scale of classifier-free guidance: values above 1 lead away from the negative prompt, values
            below 1 towards it; 1 disables guidance.
        prompt_lookup_num_tokens: Maximum number of tokens that prompt lookup proposes at once; 0 disables it.
        max_matching_ngram_size: Length of the longest n-gram that prompt lookup searches for.
        num_assistant_tokens: Maximum number of tokens that an assistant proposes at once, at most 16.
    Raises:
        GenerationError: an invalid value, or settings that contradict each other.
    Reference: `transformers.GenerationConfig`.
    """

    max_new_tokens: Annotated[int | None, Option(integer(1))] = None
    max_length: Annotated[int | None, Option(integer(1))] = None
    min_new_tokens: Annotated[int | None, Option(integer(0))] = None
    min_length: Annotated[int, Option(integer(0))] = 0
    do_sample: Annotated[bool | None, Option(BOOLEAN)] = None
    num_beams: Annotated[int, Option(integer(1, MAX_ROWS))] = 1
    num_return_sequences: Annotated[int, Option(integer(1, MAX_ROWS))] = 1
    length_penalty: Annotated[float, Option(number())] = 1.0
    early_stopping: Annotated[bool | str, Option(EARLY)] = False
    temperature: Annotated[float, Option(SAMPLING_TEMPERATURE)] = 1.0
    top_k: Annotated[int, Option(integer(0))] = 0
    top_p: Annotated[float, Option(number(0, 1))] = 1.0
    min_p: Annotated[float | None, Option(number(0, 1))] = None
    top_h: Annotated[float | None, Option(number(0, 1))] = None
    typical_p: Annotated[float, Option(number(0, 1))] = 1.0
    epsilon_cutoff: Annotated[float, Option(number(0, 1))] = 0.0
    eta_cutoff: Annotated[float, Option(number(0, 1))] = 0.0
    uniform: Annotated[bool, Option(BOOLEAN)] = False
    encoder_repetition_penalty: Annotated[float, Option(POSITIVE)] = 1.0
    repetition_penalty: Annotated[float, Option(POSITIVE)] = 1.0
    frequency_penalty: Annotated[float, Option(number())] = 0.0
    presence_penalty: Annotated[float, Option(number())] = 0.0
    no_repeat_ngram_size: Annotated[int, Option(integer(0))] = 0
    encoder_no_repeat_ngram_size: Annotated[int, Option(integer(0))] = 0
    bad_words_ids: Annotated[tuple[tuple[int, ...], ...], Option(SEQUENCES)] = ()
    sequence_bias: Annotated[tuple[tuple[tuple[int, ...], float], ...], Option(BIASES)] = ()
    prefix_allowed_tokens_fn: Annotated[PrefixFunction | None, Option(FUNCTION, in_shell=False)] = None
    remove_invalid_values: Annotated[bool, Option(BOOLEAN)] = False
    exponential_decay_length_penalty: Annotated[tuple[int, float] | None, Option(DECAY)] = None
    suppress_tokens: Annotated[tuple[int, ...], Option(TOKENS)] = ()
    begin_suppress_tokens: Annotated[tuple[int, ...], Option(TOKENS)] = ()
    forced_bos_token_id: Annotated[int | None, Option(TOKEN)] = None
    forced_eos_token_id: Annotated[tuple[int, ...], Option(TOKENS)] = ()
    renormalize_logits: Annotated[bool, Option(BOOLEAN)] = False
    eos_token_id: Annotated[tuple[int, ...], Option(TOKENS)] = ()
    pad_token_id: Annotated[int | None, Option(TOKEN)] = None
    bos_token_id: Annotated[int | None, Option(TOKEN)] = None
    decoder_start_token_id: Annotated[int | None, Option(TOKEN)] = None
    stop_strings: Annotated[tuple[str, ...], Option(STRINGS)] = ()
    seed: Annotated[int | None, Option(integer(0))] = None
    max_time: Annotated[float | None, Option(POSITIVE)] = None
    guidance_scale: Annotated[float, Option(number())] = 1.0
    prompt_lookup_num_tokens: Annotated[int, Option(integer(0))] = 0
    max_matching_ngram_size: Annotated[int, Option(integer(1))] = 3
    num_assistant_tokens: Annotated[int, Option(integer(1))] = 5

    def __post_init__(self) -> None:
        """Validates all values, converts them to their final form and determines `do_sample`."""
        for name, (_, option) in declared(GenerationConfig).items():
            value = getattr(self, name)
            value = option.default if value is None else check(name, value, option.kind, error=GenerationError)
            object.__setattr__(self, name, value)
        if self.temperature == 0:
            object.__setattr__(self, "temperature", 1.0)
            object.__setattr__(self, "do_sample", False)
        if self.do_sample is None:
            object.__setattr__(self, "do_sample", _implies_sampling(self._changed(), self.num_beams))
        if self.num_return_sequences > 1 and not self.do_sample and self.num_return_sequences > self.num_beams:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams unless tokens are sampled, because greedy search has "
                f"only one result. Received: num_return_sequences={self.num_return_sequences!r}, "
                f"num_beams={self.num_beams!r}. "
                "Set do_sample=True or increase num_beams."
            )
        if 1 < self.num_beams < self.num_return_sequences:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams in beam search. Received: "
                f"num_return_sequences={self.num_return_sequences!r}, "
                f"num_beams={self.num_beams!r}. Increase num_beams."
            )

    @property
    def fill_token(self) -> int:
        """Token that a stream returns for rows that have ended: the pad token, else an end token, else 0."""
        if self.pad_token_id is not None:
            return self.pad_token_id
        return self.eos_token_id[0] if self.eos_token_id else 0

    @property
    def token_ids(self) -> set[int]:
        """Ids of tokens that generation needs, as opposed to those that it avoids."""
        single = (getattr(self, name) for name in _SINGLE)
        return {token for token in (*single, *self.forced_eos_token_id, *self.eos_token_id) if token is not None}

    def with_vocabulary(self, new_ids: Mapping[int, int]) -> GenerationConfig:
        """Returns the settings of a model whose tokens have other ids.

        Rules for tokens that the vocabulary lacks are omitted, since such tokens cannot be generated.

        Args:
            new_ids: New ids by old ids.
        Raises:
            GenerationError: a function decides by the old ids which tokens may follow.
        """
        if self.prefix_allowed_tokens_fn is not None:
            raise GenerationError(
                "a function refers to the ids of the original vocabulary. Expected: prefix_allowed_tokens_fn=None in "
                "the settings of the model. Pass a function for the new ids to generate"
            )

        def known(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(new_ids[index] for index in ids if index in new_ids)

        given = {name: getattr(self, name) for name in _SINGLE}
        changes: Arguments = {name: new_ids.get(each, each) for name, each in given.items() if each is not None}
        changes |= {name: known(getattr(self, name)) for name in _SEVERAL}
        changes["bad_words_ids"] = tuple(known(ids) for ids in self.bad_words_ids if new_ids.keys() >= set(ids))
        changes["sequence_bias"] = tuple(
            (known(ids), bias) for ids, bias in self.sequence_bias if new_ids.keys() >= set(ids)
        )
        return dataclasses.replace(self, **changes)

    def replace(self, **changes: Any) -> GenerationConfig:
        """Returns a copy with changed settings; `None` restores a default.

        A length passed here takes precedence over an earlier one of the other kind (`max_length` over
        `max_new_tokens`). A sampling setting passed without `do_sample` enables sampling.

        Raises:
            GenerationError: an unknown name or an invalid value.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise GenerationError(unknown_name_message(name, names))
        if changes.get("max_length") is not None:
            changes.setdefault("max_new_tokens", None)
        if changes.get("min_length") is not None:
            changes.setdefault("min_new_tokens", None)
        if "do_sample" not in changes and _implies_sampling(changes, changes.get("num_beams") or self.num_beams):
            changes["do_sample"] = True
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, data: JsonMapping, model_config: JsonMapping | None = None) -> GenerationConfig:
        """Creates settings from the content of a `generation_config.json`.

        Args:
            data: Content of the file. Unsupported settings that would have an effect are reported in a warning.
            model_config: Content of `config.json`, where older checkpoints store generation settings. `data` takes
                precedence.
        Raises:
            GenerationError: an invalid value.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        warn_unsupported(data, names)
        old = dict(model_config or {})
        if old.get("max_length") == DEFAULT_NEW_TOKENS:
            del old["max_length"]  # old files contain all defaults, and this one was not meant as a limit
        merged = {**old, **{key: value for key, value in data.items() if value is not None}}
        known = {key: _ids(key, value) for key, value in merged.items() if key in names}
        if known.get("do_sample") is None:
            known["do_sample"] = False  # a file that sets only top_p is greedy in transformers too
        return cls(**known)

    def to_dict(self) -> JsonObject:
        """Returns the settings that differ from the defaults, in the format of `generation_config.json`."""
        changed = self._changed()
        changed.pop("prefix_allowed_tokens_fn", None)
        if not self.do_sample:
            changed.pop("do_sample", None)
        for name in ("eos_token_id", "forced_eos_token_id"):
            if len(changed.get(name, ())) == 1:
                (changed[name],) = changed[name]
        return {name: _as_lists(value) for name, value in changed.items()}

    def _changed(self) -> dict[str, Any]:
        """Returns the settings that differ from the defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def load(cls, folder: str | Path, model_config: JsonMapping | None = None) -> GenerationConfig:
        """Loads `generation_config.json`; see `from_dict`.

        Args:
            folder: Folder of the file.
            model_config: Content of `config.json`.
        Raises:
            GenerationError: the file is missing, is not a JSON object or contains an invalid value.
        """
        folder = local_path(folder, GenerationError)
        try:
            data = read_json(inside(folder, FILE_NAME))
        except SourceError as error:
            raise GenerationError(f"{FILE_NAME} cannot be read: {error}. Fix it or download it again.") from error
        try:
            return cls.from_dict(data, model_config)
        except GenerationError as error:
            raise GenerationError(f"{folder / FILE_NAME}: {error}") from error

    def save(self, folder: str | Path) -> Path:
        """Writes `generation_config.json` atomically and returns its path.

        Args:
            folder: Folder to write to; created if it does not exist.
        """
        path = Path(folder) / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            write_json(temporary, self.to_dict())
        return path


def _implies_sampling(passed: Mapping[str, Any], num_beams: int) -> bool:
    """Whether settings passed without `do_sample` enable sampling; with several beams, a seed alone does not."""
    sampling = SAMPLING_SETTINGS | {"seed"} if num_beams == 1 else SAMPLING_SETTINGS
    return any(value is not None for name, value in passed.items() if name in sampling)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value
