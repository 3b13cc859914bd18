"""From what a caller gives to what a run needs: prompts checked and aligned, lengths settled."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.decoding.alignment import left_padded
from kerasformer.decoding.controls import Controls
from kerasformer.decoding.generation_config import DEFAULT_NEW_TOKENS, GenerationConfig
from kerasformer.decoding.guidance import Guided, side_by_side
from kerasformer.decoding.history import History
from kerasformer.decoding.protocols import Step
from kerasformer.decoding.rules import Rule, rules_of
from kerasformer.decoding.speculation import Assistant, Drafter, PromptLookup
from kerasformer.decoding.stopping import check_stop, end_of
from kerasformer.errors import CapacityError, GenerationError, InputError, argument


@dataclass(frozen=True)
class GenerationPlan:
    """A run, ready to start.

    Attributes:
        step: The engine, guided if that is wanted.
        inputs: `(B, P)` int32 for `Step.start`.
        mask: `(B, P)` int32, 1 for the prompt; guided, -1 for the negative prompt that stands beside it.
        history: One row per prompt, before the first new token.
        config: The settings with `max_new_tokens` and `min_new_tokens` in effect.
        controls: What steers the run beside them.
        last: What ends rows that nothing else ends: `"length"` or `"capacity"`.
        deadline: When rows end, on the clock of `time.monotonic`.
        seed: Of the random draws.
        drafter: Guesses tokens ahead, if that is wanted.
    """

    step: Step
    inputs: np.ndarray
    mask: np.ndarray
    history: History
    config: GenerationConfig
    controls: Controls
    last: str
    deadline: float
    seed: int
    drafter: Drafter | None

    @property
    def num_steps(self) -> int:
        """Most tokens that will be generated."""
        return self.config.max_new_tokens or 0

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Logits rules, in their order."""
        return rules_of(self.config, self.controls.rules)

    @property
    def guesses(self) -> int:
        """Most tokens that are guessed at once."""
        return self.config.num_assistant_tokens if self.controls.assistant else self.config.prompt_lookup_num_tokens

    def interruption(self) -> str | None:
        """Why all rows end now, if they do: `"cancelled"` or `"time"`."""
        if self.controls.cancelled is not None and self.controls.cancelled():
            return "cancelled"
        return "time" if time.monotonic() > self.deadline else None

    def end_of(self, history: History, row: int) -> str | None:
        """Why a row ends after its last new token; `None` if it goes on."""
        return end_of(history.before(row), history.new(row), self.config, self.controls.stop, self.controls.decode)

    def tell(self, reasons: Sequence[str]) -> None:
        """Warns if rows ended because the engine is full, or are empty because there are no more continuations."""
        if "none" in reasons:
            warnings.warn(
                f"{list(reasons).count('none')} of {len(reasons)} sequences are empty: rules or the vocabulary leave "
                "fewer continuations than num_return_sequences.",
                stacklevel=3,
            )
        if "capacity" in reasons:
            warnings.warn(
                f"the engine is full: {list(reasons).count('capacity')} of {len(reasons)} sequences were cut after "
                f"{self.num_steps} new tokens. Give shorter prompts, or load or export with a larger capacity.",
                stacklevel=3,
            )


def prepare(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    controls: Controls | None = None,
) -> GenerationPlan:
    """Checks and aligns prompts and settles lengths.

    Args:
        step: The engine.
        input_ids: `(B, P)` integers, padded on either side.
        attention_mask: `(B, P)`, 1 for real tokens; `None`: all are real.
        config: Settings.
        controls: What steers the run beside them.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: no place for a new token.
        GenerationError: settings that this engine cannot follow, or that contradict each other.
    """
    config, controls = config or GenerationConfig(), controls or Controls()
    deadline = time.monotonic() + (config.max_time or float("inf"))
    check_stop(config, controls.decode)
    inputs, mask = _checked(step, input_ids, attention_mask)
    prompts = tuple(row[real] for row, real in zip(inputs, mask == 1, strict=True))
    batch = len(inputs)
    if step.is_encoder_decoder:
        begin = np.full((batch, 1), decoder_start(step, config), dtype=np.int32)
        starts = np.zeros(batch, dtype=np.int64)
    else:
        fill = config.fill_token if config.fill_token < step.vocab_size else 0
        inputs, mask = left_padded(inputs, mask, fill)
        begin, starts = inputs, mask.shape[1] - mask.sum(axis=1)
    if config.guidance_scale != 1:
        negative_ids, negative_mask = _negative(step, prompts, controls)
        longest = int(negative_mask.sum(axis=1).max())
        step = Guided(step, config.guidance_scale, begin.shape[1], longest)
        inputs, mask = side_by_side(inputs, mask, negative_ids, negative_mask)
    history = History(begin, starts, begin.shape[1], prompts, np.arange(batch))
    _check_forced(step, config)
    most, least, last = _lengths(step, begin.shape[1], config)
    settled = config.replace(max_new_tokens=most, min_new_tokens=least)
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if config.seed is None else config.seed
    drafter = _drafter(step, config, controls)
    return GenerationPlan(step, inputs, mask, history, settled, controls, last, deadline, seed, drafter)


def _negative(step: Step, prompts: Sequence[np.ndarray], controls: Controls) -> tuple[np.ndarray, np.ndarray]:
    """The negative prompt of each row, `(B, Q)`; each prompt's last token alone if there is none."""
    if controls.negative_ids is None:
        ids = np.stack([prompt[-1:] for prompt in prompts])
        return ids, np.ones_like(ids)
    ids, mask = _checked(step, controls.negative_ids, controls.negative_mask)
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
            "Guessing ahead (prompt lookup, an assistant) follows one hypothesis at a time. Expected num_beams=1. "
            f"Received: {argument('num_beams', config.num_beams)}. Leave one of the two out."
        )
    if controls.assistant is None:
        return PromptLookup(config.max_matching_ngram_size)
    if config.prompt_lookup_num_tokens:
        raise GenerationError(
            "Tokens are guessed by prompt lookup or by an assistant. Received: both. Leave one of the two out."
        )
    expected, received = _kind(step), _kind(controls.assistant)
    if received != expected:
        raise GenerationError(
            "An assistant must be of the same kind, with the same vocabulary. "
            f"Expected: {expected}. Received: {received}. Choose another assistant."
        )
    return Assistant(controls.assistant)


def _kind(step: Step) -> str:
    return f"{'an encoder-decoder' if step.is_encoder_decoder else 'a decoder'} of {step.vocab_size} tokens"


def _checked(step: Step, input_ids: np.ndarray, attention_mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask as `(B, P)` int32."""
    ids = np.asarray(input_ids)
    if ids.ndim != 2 or ids.size == 0:
        raise InputError(
            f"input_ids must be (batch, length) with at least one token. Received: shape {ids.shape}. "
            "Give at least one prompt of one token."
        )
    if not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"input_ids must be integers. Received: dtype {ids.dtype}. Give token ids.")
    mask = np.ones_like(ids) if attention_mask is None else np.asarray(attention_mask)
    if mask.shape != ids.shape or not np.isin(mask, (0, 1)).all():
        raise InputError(
            "attention_mask must have the shape of input_ids and hold 0 and 1. "
            f"Received: shape {mask.shape} for input_ids {ids.shape}. Give 1 for each real token."
        )
    mask = mask.astype(np.int32)
    empty = np.flatnonzero(mask.sum(axis=1) == 0)
    if len(empty):
        raise InputError(
            f"each prompt needs at least one token. Received: empty prompts at rows {empty.tolist()}. "
            "Leave them out, or begin them with the bos token."
        )
    real = ids[mask == 1]
    if real.min() < 0 or real.max() >= step.vocab_size:
        raise InputError(
            f"token ids must be from 0 to {step.vocab_size - 1}. Received: {real.min()} to {real.max()}. "
            "Is this the tokenizer of this model?"
        )
    return np.where(mask == 1, ids, 0).astype(np.int32), mask


def decoder_start(step: Step, config: GenerationConfig) -> int:
    """The first token that an encoder-decoder's decoder reads.

    Raises:
        GenerationError: there is none, or it is not one of the engine's.
    """
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    if start is None or start >= step.vocab_size:
        raise GenerationError(
            "an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, "
            f"from 0 to {step.vocab_size - 1}. Received: {start}. Set it in the call or in generation_config.json."
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


def _lengths(step: Step, width: int, config: GenerationConfig) -> tuple[int, int, str]:
    """Most and fewest new tokens, and what sets the upper limit."""
    if config.max_new_tokens is not None:
        most = config.max_new_tokens
    elif config.max_length is not None:
        most = config.max_length - width
    else:
        most = DEFAULT_NEW_TOKENS
    if most < 1:
        raise GenerationError(
            f"max_length counts the prompt too and must exceed it. Received: max_length={config.max_length} "
            f"for a prompt of {width} tokens. Set max_new_tokens instead."
        )
    room = step.capacity - width
    if room < 1:
        raise CapacityError(
            f"the prompt leaves no place for a new token. Expected at most {step.capacity - 1} tokens. "
            f"Received: {width}. Shorten the prompt, or load or export with a larger capacity."
        )
    _check_length_penalty(config, min(most, room))
    least = config.min_length - width if config.min_new_tokens is None else config.min_new_tokens
    return min(most, room), max(least, 0), "length" if most <= room else "capacity"


def _check_length_penalty(config: GenerationConfig, longest: int) -> None:
    """Scores of beams are divided by `length ** length_penalty` in float32."""
    if config.num_beams > 1 and abs(config.length_penalty) * np.log10(longest) > 30:
        raise GenerationError(
            f"length_penalty is too large for texts of {longest} tokens, whose scores it would make 0 or infinite. "
            f"Expected: from {-30 / np.log10(longest):.1f} to {30 / np.log10(longest):.1f}. "
            f"Received: {config.length_penalty}."
        )
