"""Preparation of a run: validation, alignment of prompts, computation of lengths."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from kerasformer.engines.arrays import prompt_arrays
from kerasformer.engines.protocols import Step, can_rewind, input_vocab_size
from kerasformer.errors import CapacityError, GenerationError, InputError
from kerasformer.generation.alignment import left_padded
from kerasformer.generation.controls import Controls
from kerasformer.generation.generation_config import DEFAULT_NEW_TOKENS, GenerationConfig
from kerasformer.generation.guidance import Guided, side_by_side
from kerasformer.generation.history import History
from kerasformer.generation.rules import Rule, rules_of
from kerasformer.generation.speculation import Assistant, Drafter, PromptLookup
from kerasformer.generation.stopping import check_stop, finish_reason


@dataclass(frozen=True)
class GenerationPlan:
    """Everything that a run of generation needs.

    Attributes:
        step: The engine.
        inputs: `(B, P)` int32 token ids for `Step.start`.
        mask: `(B, P)` int32, 1 for tokens of the prompt; with guidance, -1 for tokens of the negative prompt.
        history: One row per prompt, before the first new token.
        config: Settings with the effective `max_new_tokens` and `min_new_tokens`.
        controls: Runtime controls.
        limit_reason: Finish reason of rows that reach the maximum length: `"length"` or `"capacity"`.
        deadline: Time at which all rows end, on the clock of `time.monotonic`.
        seeds: Seed of the random numbers of each prompt.
        drafter: Proposes tokens for speculative decoding, or `None` if it is disabled.
        guide: Adds guidance to an engine; `None` if it is disabled.
    """

    step: Step
    inputs: np.ndarray
    mask: np.ndarray
    history: History
    config: GenerationConfig
    controls: Controls
    limit_reason: str
    deadline: float
    seeds: tuple[int, ...]
    drafter: Drafter | None
    guide: Callable[[Step], Step] | None = None

    @contextmanager
    def engine(self) -> Iterator[Step]:
        """Provides the engine with guidance and with the kept caches of earlier texts, which are kept at the end."""
        cache = self.controls.cache
        if self.drafter is not None and len(self.seeds) * self.config.num_return_sequences > 1:
            cache = None  # it keeps the caches of one text, which would prevent texts from guessing side by side
        with nullcontext(self.step) if cache is None else cache.reused_by(self.step) as step:
            yield step if self.guide is None else self.guide(step)

    @property
    def num_steps(self) -> int:
        """Maximum number of new tokens."""
        return self.config.max_new_tokens or 0

    def generators(self, count: int = 1) -> list[np.random.Generator]:
        """Returns generators of random numbers for `count` texts of each prompt, those of a prompt side by side.

        They depend on the seed and on the index of a text among those of its prompt, so that a text is the same alone
        or in a batch.
        """
        sequences = []
        for seed in self.seeds:
            first = np.random.SeedSequence(seed)
            sequences += [first, *first.spawn(count - 1)]
        return [np.random.default_rng(sequence) for sequence in sequences]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Logits rules in order of application."""
        return rules_of(self.config, self.controls.rules)

    @property
    def is_plain(self) -> bool:
        """Whether only the most probable token is needed at each step, and only end tokens end a row."""
        config, controls = self.config, self.controls
        settings = config.do_sample, config.stop_strings, config.max_time, self.rules, self.drafter
        return not any((*settings, controls.stop, controls.cancelled, controls.records))

    @property
    def guesses(self) -> int:
        """Maximum number of tokens that are guessed at once."""
        return self.config.num_assistant_tokens if self.controls.assistant else self.config.prompt_lookup_num_tokens

    def interruption(self) -> str | None:
        """Returns the reason to end all rows now, `"cancelled"` or `"time"`, or `None`."""
        if self.controls.cancelled is not None and self.controls.cancelled():
            return "cancelled"
        return "time" if time.monotonic() > self.deadline else None

    @property
    def has_stops(self) -> bool:
        """Whether stop strings or a function may end a row."""
        return self.controls.stop is not None or bool(self.config.stop_strings)

    def finish_reason(self, history: History, row: int) -> str | None:
        """Returns why a row ends after its last new token, or `None` if it continues."""
        before, new = history.before(row), history.new(row)
        return finish_reason(before, new, self.config, self.controls.stop, self.controls.decode)

    def warn_about(self, reasons: Sequence[str]) -> None:
        """Warns about rows that ended because the cache is full, and about empty sequences of beam search."""
        if "none" in reasons:
            warnings.warn(
                f"{list(reasons).count('none')} of {len(reasons)} sequences are empty: rules or the vocabulary allow "
                "fewer continuations than num_return_sequences.",
                stacklevel=3,
            )
        if "capacity" in reasons:
            warnings.warn(
                f"the cache is full: {list(reasons).count('capacity')} of {len(reasons)} sequences were cut after "
                f"{self.num_steps} new tokens. Shorten the prompts, or load or export the model with a larger "
                "capacity.",
                stacklevel=3,
            )


def prepare(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    controls: Controls | None = None,
) -> GenerationPlan:
    """Validates the arguments, aligns the prompts and computes the lengths.

    Args:
        step: The engine.
        input_ids: `(B, P)` integers, padded on either side.
        attention_mask: `(B, P)`, 1 for real tokens; `None` means that all tokens are real.
        config: Generation settings.
        controls: Runtime controls.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: no room for a new token.
        GenerationError: settings that this engine does not support, or that contradict each other.
    """
    config, controls = config or GenerationConfig(), controls or Controls()
    deadline = time.monotonic() + (config.max_time or float("inf"))
    check_stop(config, controls.decode)
    names = "input_ids", "attention_mask"
    inputs, mask = prompt_arrays(input_ids, attention_mask, input_vocab_size(step), names=names)
    prompts = tuple(row[real] for row, real in zip(inputs, mask == 1, strict=True))
    batch = len(inputs)
    if step.is_encoder_decoder:
        prefix = np.full((batch, 1), decoder_start(step, config), dtype=np.int32)
        starts = np.zeros(batch, dtype=np.int64)
    else:
        fill = config.fill_token if config.fill_token < step.vocab_size else 0
        inputs, mask = left_padded(inputs, mask, fill)
        prefix, starts = inputs, mask.shape[1] - mask.sum(axis=1)
    guide, capacity = None, step.capacity
    if config.guidance_scale != 1:
        negative_ids, negative_mask = _negative(step, prompts, controls)
        longest = int(negative_mask.sum(axis=1).max())
        guide = partial(Guided, scale=config.guidance_scale, length=prefix.shape[1], negative_length=longest)
        capacity = guide(step).capacity
        inputs, mask = side_by_side(inputs, mask, negative_ids, negative_mask)
    _check_forced(step, config)
    maximum, minimum, limit_reason = _lengths(capacity, prefix.shape[1], config)
    history = History(prefix, starts, prefix.shape[1], prompts, np.arange(batch), maximum)
    effective = config.replace(max_new_tokens=maximum, min_new_tokens=minimum)
    seeds = _seeds(config.seed, batch)
    drafter = _drafter(step, config, controls)
    return GenerationPlan(
        step, inputs, mask, history, effective, controls, limit_reason, deadline, seeds, drafter, guide
    )


def _seeds(seed: int | None, count: int) -> tuple[int, ...]:
    """Returns the seed of each prompt: the given one for all, or random ones."""
    return (seed,) * count if seed is not None else tuple(np.random.SeedSequence().generate_state(count).tolist())


def _negative(step: Step, prompts: Sequence[np.ndarray], controls: Controls) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and mask of the negative prompts, `(B, Q)`; by default, the last token of each prompt."""
    if controls.negative_ids is None:
        ids = np.stack([prompt[-1:] for prompt in prompts])
        return ids, np.ones_like(ids)
    names = "negative_prompt_ids", "negative_prompt_attention_mask"
    ids, mask = prompt_arrays(controls.negative_ids, controls.negative_mask, input_vocab_size(step), names=names)
    if len(ids) not in (1, len(prompts)):
        raise InputError(
            f"There must be one negative prompt, or one for each prompt. Expected: 1 or {len(prompts)}. "
            f"Received: {len(ids)}"
        )
    copies = len(prompts) // len(ids)
    return np.repeat(ids, copies, axis=0), np.repeat(mask, copies, axis=0)


def _drafter(step: Step, config: GenerationConfig, controls: Controls) -> Drafter | None:
    if controls.assistant is None and not config.prompt_lookup_num_tokens:
        return None
    if config.num_beams > 1:
        raise GenerationError(
            "Prompt lookup and assistants do not support beam search. Expected num_beams=1. "
            f"Received: num_beams={config.num_beams!r}. Remove one of the two settings."
        )
    if refused := [each for each in (step, controls.assistant) if each is not None and not can_rewind(each)]:
        raise GenerationError(
            "Prompt lookup and assistants discard tokens that were guessed wrongly, which a model with a recurrent "
            f"state cannot. Expected: a model and an assistant without one. Received: {_described(refused[0])} with one"
        )
    if controls.assistant is None:
        return PromptLookup(config.max_matching_ngram_size)
    if config.prompt_lookup_num_tokens:
        raise GenerationError("Prompt lookup and an assistant cannot be combined. Received: both. Remove one of them.")
    expected, received = _described(step), _described(controls.assistant)
    if received != expected:
        raise GenerationError(
            "An assistant must have the same kind of architecture and the same vocabulary as the model. "
            f"Expected: {expected}. Received: {received}. Choose another assistant."
        )
    return Assistant(controls.assistant)


def _described(step: Step) -> str:
    return f"{'an encoder-decoder' if step.is_encoder_decoder else 'a decoder'} with {step.vocab_size} tokens"


def decoder_start(step: Step, config: GenerationConfig) -> int:
    """Returns the start token of an encoder-decoder's decoder.

    Raises:
        GenerationError: the start token is not set, or is not in the vocabulary.
    """
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    if start is None or start >= step.vocab_size:
        raise GenerationError(
            "an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, "
            f"from 0 to {step.vocab_size - 1}. Received: {start}. Pass it to the call or set it in "
            "generation_config.json."
        )
    return start


def _check_forced(step: Step, config: GenerationConfig) -> None:
    forced = [*config.forced_eos_token_id]
    if config.forced_bos_token_id is not None:
        forced.append(config.forced_bos_token_id)
    if any(token >= step.vocab_size for token in forced):
        raise GenerationError(
            f"forced tokens must be from 0 to {step.vocab_size - 1}. Received: {forced}. "
            "Set forced_bos_token_id and forced_eos_token_id to tokens of this model."
        )


def _lengths(capacity: int, prefix_length: int, config: GenerationConfig) -> tuple[int, int, str]:
    """Returns the maximum and minimum number of new tokens, and the finish reason of rows that reach the maximum."""
    if config.max_new_tokens is not None:
        maximum = config.max_new_tokens
    elif config.max_length is not None:
        maximum = config.max_length - prefix_length
    else:
        maximum = DEFAULT_NEW_TOKENS
    if maximum < 1:
        raise GenerationError(
            "max_length includes the prompt and must exceed its length. Received: "
            f"max_length={config.max_length} for a prompt of {prefix_length} tokens. Set max_new_tokens instead."
        )
    room = capacity - prefix_length
    if room < 1:
        raise CapacityError(
            f"the prompt leaves no room for a new token. Expected at most {capacity - 1} tokens. "
            f"Received: {prefix_length}. Shorten the prompt, or load or export the model with a larger capacity."
        )
    _check_length_penalty(config, min(maximum, room))
    minimum = config.min_length - prefix_length if config.min_new_tokens is None else config.min_new_tokens
    return min(maximum, room), max(minimum, 0), "length" if maximum <= room else "capacity"


def _check_length_penalty(config: GenerationConfig, longest: int) -> None:
    """Checks that `length ** length_penalty`, by which scores of beams are divided, fits into float32."""
    if config.num_beams > 1 and abs(config.length_penalty) * np.log10(longest) > 30:
        raise GenerationError(
            f"length_penalty is too large for sequences of {longest} tokens: it would make scores 0 or infinite. "
            f"Expected: from {-30 / np.log10(longest):.1f} to {30 / np.log10(longest):.1f}. "
            f"Received: {config.length_penalty}."
        )
