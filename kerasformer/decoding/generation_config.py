"""Generation settings: one frozen value, read from and written to `generation_config.json`.

Names, meanings and defaults are those of `transformers`, with one difference: `top_k` is off unless asked for
(`transformers` samples from the best 50 by default).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.arguments import BOOLEAN, FUNCTION, integer, number
from kerasformer.decoding.checks import (
    BIASES,
    DECAY,
    EARLY,
    MOST_ROWS,
    POSITIVE,
    SAMPLING_TEMPERATURE,
    SEQUENCES,
    STRINGS,
    TOKEN,
    TOKENS,
    checked,
    setting,
)
from kerasformer.decoding.setting_names import tell_unknown, translated, unknown_name
from kerasformer.errors import GenerationError, SourceError, argument
from kerasformer.files import local_path, read_json

DEFAULT_NEW_TOKENS = 20
"""New tokens when neither `max_new_tokens` nor `max_length` is set, as in `transformers`."""

FILE_NAME = "generation_config.json"

PrefixFunction = Callable[[int, np.ndarray], Any]
"""The number of a prompt and the tokens of one of its rows `(N,)` in, ids that may follow out."""


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
        temperature: Divides the logits. 0, what ever lower ones come to, takes the best token: it sets `do_sample` to
            `False`, whatever else was given.
        top_k: Draw from the `k` best tokens; 0 is off.
        top_p: Draw from the fewest tokens that hold this probability; 1 is off.
        min_p: Draw from tokens with at least this share of the best token's probability.
        top_h: Draw from the most probable of the best 100 tokens that hold this share of their entropy.
        typical_p: Locally typical sampling with this mass; 1 is off.
        epsilon_cutoff: Draw from tokens above this probability; 0 is off.
        eta_cutoff: The same with a threshold that follows the entropy; 0 is off.
        encoder_repetition_penalty: Makes tokens of the prompt more likely if above 1; 1 is off.
        repetition_penalty: Makes tokens already seen less likely; 1 is off.
        frequency_penalty: Taken from a token's logit each time that it was generated; 0 is off.
        presence_penalty: Taken once from the logit of each token that was generated; 0 is off.
        no_repeat_ngram_size: No n-gram of this size occurs twice; 0 is off.
        encoder_no_repeat_ngram_size: No n-gram of this size of the prompt occurs in the output; 0 is off.
        bad_words_ids: Token sequences that must not be generated.
        sequence_bias: `(token ids, bias)` pairs: added to the logit of the token that completes a sequence.
        prefix_allowed_tokens_fn: A function of the prompt's number and the tokens of a row `(N,)` (prompt, or decoder
            start token, and output) that gives the ids which may follow. No file holds it.
        remove_invalid_values: Replaces NaN and infinity in logits, which otherwise can be an error; with beams NaN is
            one in any case, for it spreads to all log-probabilities.
        exponential_decay_length_penalty: `(start, factor)`: end tokens become the more likely, the longer the output is
            beyond `start`.
        suppress_tokens: Tokens never generated.
        begin_suppress_tokens: Tokens not generated first.
        forced_bos_token_id: First token of an encoder-decoder's output.
        forced_eos_token_id: Token or tokens allowed at the maximum length.
        renormalize_logits: Makes log-probabilities of what rules and cuts leave, for the sums of beam search.
        eos_token_id: Tokens that end a sequence; an int or several.
        pad_token_id: What fills ended rows of a stream.
        bos_token_id: Begin token; an encoder-decoder without `decoder_start_token_id` starts with it.
        decoder_start_token_id: First token that an encoder-decoder's decoder reads.
        stop_strings: Texts that end a sequence; they need a tokenizer, see `Controls.decode`.
        seed: Seed of the random draws; `None` differs at each call.
        max_time: Seconds after which all sequences end, with the token at hand.
        guidance_scale: How far classifier-free guidance leads away from the negative prompt; 1 is off, below 1 leads
            towards it.
        prompt_lookup_num_tokens: Most tokens that are copied from the prompt as a guess and checked at once; 0 is off.
        max_matching_ngram_size: Longest run of tokens that prompt lookup searches for.
        num_assistant_tokens: Most tokens that an assistant guesses before they are checked at once.
    Raises:
        GenerationError: a value that cannot be, or settings that contradict each other.
    Reference: `transformers.GenerationConfig`, whose names and meanings these are.
    """

    max_new_tokens: int | None = setting(None, integer(1))
    max_length: int | None = setting(None, integer(1))
    min_new_tokens: int | None = setting(None, integer(0))
    min_length: int = setting(0, integer(0))
    do_sample: bool | None = setting(None, BOOLEAN)
    num_beams: int = setting(1, integer(1, MOST_ROWS))
    num_return_sequences: int = setting(1, integer(1, MOST_ROWS))
    length_penalty: float = setting(1.0, number())
    early_stopping: bool | str = setting(False, EARLY)
    temperature: float = setting(1.0, SAMPLING_TEMPERATURE, samples=True)
    top_k: int = setting(0, integer(0), samples=True)
    top_p: float = setting(1.0, number(0, 1), samples=True)
    min_p: float | None = setting(None, number(0, 1), samples=True)
    top_h: float | None = setting(None, number(0, 1), samples=True)
    typical_p: float = setting(1.0, number(0, 1), samples=True)
    epsilon_cutoff: float = setting(0.0, number(0, 1), samples=True)
    eta_cutoff: float = setting(0.0, number(0, 1), samples=True)
    encoder_repetition_penalty: float = setting(1.0, POSITIVE)
    repetition_penalty: float = setting(1.0, POSITIVE)
    frequency_penalty: float = setting(0.0, number())
    presence_penalty: float = setting(0.0, number())
    no_repeat_ngram_size: int = setting(0, integer(0))
    encoder_no_repeat_ngram_size: int = setting(0, integer(0))
    bad_words_ids: tuple[tuple[int, ...], ...] = setting((), SEQUENCES)
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = setting((), BIASES)
    prefix_allowed_tokens_fn: PrefixFunction | None = setting(None, FUNCTION, live=True)
    remove_invalid_values: bool = setting(False, BOOLEAN)
    exponential_decay_length_penalty: tuple[int, float] | None = setting(None, DECAY)
    suppress_tokens: tuple[int, ...] = setting((), TOKENS)
    begin_suppress_tokens: tuple[int, ...] = setting((), TOKENS)
    forced_bos_token_id: int | None = setting(None, TOKEN)
    forced_eos_token_id: tuple[int, ...] = setting((), TOKENS)
    renormalize_logits: bool = setting(False, BOOLEAN)
    eos_token_id: tuple[int, ...] = setting((), TOKENS)
    pad_token_id: int | None = setting(None, TOKEN)
    bos_token_id: int | None = setting(None, TOKEN)
    decoder_start_token_id: int | None = setting(None, TOKEN)
    stop_strings: tuple[str, ...] = setting((), STRINGS)
    seed: int | None = setting(None, integer(0))
    max_time: float | None = setting(None, POSITIVE)
    guidance_scale: float = setting(1.0, number())
    prompt_lookup_num_tokens: int = setting(0, integer(0))
    max_matching_ngram_size: int = setting(3, integer(1))
    num_assistant_tokens: int = setting(5, integer(1))

    def __post_init__(self) -> None:
        """Puts values into their final form, checks them and decides `do_sample`."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(field, getattr(self, field.name)))
        if self.temperature == 0:
            object.__setattr__(self, "temperature", 1.0)
            object.__setattr__(self, "do_sample", False)
        if self.do_sample is None:
            given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if _differs(f, self)}
            object.__setattr__(self, "do_sample", _asks_to_sample(given, self.num_beams))
        if self.num_return_sequences > 1 and not self.do_sample and self.num_return_sequences > self.num_beams:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams unless tokens are sampled, for greedy search has one "
                f"result. Received: {argument('num_return_sequences', self.num_return_sequences)}, "
                f"{argument('num_beams', self.num_beams)}. "
                "Set do_sample=True or more beams."
            )
        if 1 < self.num_beams < self.num_return_sequences:
            raise GenerationError(
                "num_return_sequences must not exceed num_beams in beam search. Received: "
                f"{argument('num_return_sequences', self.num_return_sequences)}, "
                f"{argument('num_beams', self.num_beams)}. Set more beams."
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
        changes = translated(changes)
        for name in changes:
            if name not in names:
                raise GenerationError(unknown_name(name, names))
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
        data = translated(data)
        tell_unknown(data, names)
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
            if field.metadata["live"] or not _differs(field, self) or (field.name == "do_sample" and not value):
                continue
            single = field.metadata["kind"] is TOKENS and len(value) == 1 and field.name.endswith("token_id")
            result[field.name] = value[0] if single else _as_lists(value)
        return result

    @classmethod
    def load(cls, folder: str | Path, model_config: Mapping[str, Any] | None = None) -> GenerationConfig:
        """Reads `generation_config.json`; see `from_dict`.

        Args:
            folder: Where it lies.
            model_config: Content of `config.json`.
        Raises:
            GenerationError: no such file, one that is not a JSON object, or a value that cannot be.
        """
        path = local_path(folder, GenerationError) / FILE_NAME
        try:
            data = read_json(path)
        except SourceError as error:
            raise GenerationError(f"{FILE_NAME} cannot be read: {error}. Mend it or fetch it anew.") from error
        try:
            return cls.from_dict(data, model_config)
        except GenerationError as error:
            raise GenerationError(f"{path}: {error}") from error

    def save(self, folder: str | Path) -> Path:
        """Writes `generation_config.json`, aside and then renamed; returns its path.

        Args:
            folder: Is made if it is not there.
        """
        path = Path(folder) / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{FILE_NAME}.{os.getpid()}")
        aside.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return aside.replace(path)


def _differs(field: dataclasses.Field[Any], config: GenerationConfig) -> bool:
    return bool(getattr(config, field.name) != field.default)


def _asks_to_sample(given: Mapping[str, Any], num_beams: int) -> bool:
    """Whether settings given without `do_sample` want sampling; a seed alone does not turn beams into samples."""
    sampling = {field.name for field in dataclasses.fields(GenerationConfig) if field.metadata["samples"]}
    if num_beams == 1:
        sampling.add("seed")
    return any(value is not None for name, value in given.items() if name in sampling)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value
