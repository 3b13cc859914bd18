"""From what a caller gives to what a run needs: prompts checked and aligned, lengths settled."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from kerasformer.decoding.config import DEFAULT_NEW_TOKENS, GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.decoding.protocols import Step
from kerasformer.errors import CapacityError, GenerationError, InputError


@dataclass(frozen=True)
class Plan:
    """A run, ready to start.

    Attributes:
        inputs: `(B, P)` int32 for `Step.start`.
        mask: `(B, P)` int32.
        history: One row per prompt, before the first new token.
        config: The settings with `max_new_tokens` and `min_new_tokens` in effect.
        last: What ends rows that nothing else ends: `"length"` or `"capacity"`.
    """

    inputs: np.ndarray
    mask: np.ndarray
    history: History
    config: GenerationConfig
    last: str

    @property
    def num_steps(self) -> int:
        """Most tokens that will be generated."""
        return self.config.max_new_tokens or 0

    def tell(self, reasons: list[str]) -> None:
        """Warns if rows ended because the engine is full."""
        if "capacity" in reasons:
            warnings.warn(
                f"the engine is full: {reasons.count('capacity')} of {len(reasons)} sequences were cut after "
                f"{self.num_steps} new tokens. Give shorter prompts, or load or export with a larger capacity.",
                stacklevel=3,
            )


def plan(step: Step, input_ids: np.ndarray, attention_mask: np.ndarray | None, config: GenerationConfig) -> Plan:
    """Checks and aligns prompts and settles lengths.

    Args:
        step: The engine.
        input_ids: `(B, P)` integers, padded on either side.
        attention_mask: `(B, P)`, 1 for real tokens; `None`: all are real.
        config: Settings.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: no place for a new token.
        GenerationError: settings that this engine cannot follow.
    """
    inputs, mask = _checked(step, input_ids, attention_mask)
    prompts = tuple(row[real] for row, real in zip(inputs, mask == 1, strict=True))
    batch = len(inputs)
    if step.is_encoder_decoder:
        begin = np.full((batch, 1), _decoder_start(step, config), dtype=np.int32)
        starts = np.zeros(batch, dtype=np.int64)
    else:
        fill = config.fill_token if config.fill_token < step.vocab_size else 0
        inputs, mask = left_padded(inputs, mask, fill)
        begin, starts = inputs, mask.shape[1] - mask.sum(axis=1)
    history = History(begin, starts, begin.shape[1], prompts, np.arange(batch))
    _check_forced(step, config)
    most, least, last = _lengths(step, begin.shape[1], config)
    settled = config.replace(max_new_tokens=most, min_new_tokens=least)
    return Plan(inputs, mask, history, settled, last)


def left_padded(ids: np.ndarray, mask: np.ndarray, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Moves each row's real tokens to the right end and drops columns without any.

    Example: ids `[[5, 6, 0], [7, 0, 0]]` with mask `[[1, 1, 0], [1, 0, 0]]` become `[[5, 6], [fill, 7]]`.
    """
    order = np.argsort(mask, axis=1, kind="stable")  # zeros first; the tokens keep their order
    width = int(mask.sum(axis=1).max())
    ids = np.take_along_axis(ids, order, axis=1)[:, -width:]
    mask = np.take_along_axis(mask, order, axis=1)[:, -width:]
    return np.where(mask == 1, ids, np.int32(fill)), mask


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
    if real.min() < 0 or (not step.is_encoder_decoder and real.max() >= step.vocab_size):
        raise InputError(
            f"token ids must be from 0 to {step.vocab_size - 1}. Received: {real.min()} to {real.max()}. "
            "Is this the tokenizer of this model?"
        )
    return ids.astype(np.int32), mask


def _decoder_start(step: Step, config: GenerationConfig) -> int:
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
    least = config.min_length - width if config.min_new_tokens is None else config.min_new_tokens
    return min(most, room), max(least, 0), "length" if most <= room else "capacity"
