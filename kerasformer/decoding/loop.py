"""Greedy search and sampling: the loop that `generate` and `stream` share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kerasformer.decoding.beams import beam_search
from kerasformer.decoding.config import GenerationConfig
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.plan import Plan, plan
from kerasformer.decoding.protocols import Step
from kerasformer.decoding.rules import apply_rules, rules_of
from kerasformer.decoding.samplers import sampler_of
from kerasformer.decoding.stopping import Stop, check_stop, end_of
from kerasformer.errors import GenerationError

ENDED = -1
"""Stands for the token of a row that has already ended."""


def generate(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    stop: Stop | None = None,
) -> GenerationOutput:
    """Continues prompts (a decoder) or answers inputs (an encoder-decoder).

    Args:
        step: The engine.
        input_ids: `(B, P)` integers; padding may be on either side and its value does not matter.
        attention_mask: `(B, P)`, 1 for real tokens; `None`: all are real.
        config: Settings; the defaults are greedy search for 20 tokens.
        stop: Ends a row when it returns true for its new tokens; see `stop_at` for stop strings.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: a prompt that does not fit.
        GenerationError: settings that this engine cannot follow, or logits of which none is finite.
    """
    run = _prepared(step, input_ids, attention_mask, config, stop)
    if run.config.num_beams > 1:
        return beam_search(step, run, stop)
    reasons = [run.last] * (len(run.history.ids) * run.config.num_return_sequences)
    columns = list(_run(step, run, stop, reasons))
    rows = np.stack(columns, axis=1)
    run.tell(reasons)
    return GenerationOutput([row[row != ENDED] for row in rows], reasons)


def stream(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    stop: Stop | None = None,
) -> Iterator[np.ndarray]:
    """The tokens of `generate` as they come: `(B,)` int32 per step, `config.fill_token` for rows that have ended.

    Arguments are checked at the call, not at the first token.

    Raises:
        GenerationError: beam search, which knows its tokens only at the end; otherwise as `generate`.
    """
    run = _prepared(step, input_ids, attention_mask, config, stop)
    if run.config.num_beams > 1:
        raise GenerationError(
            "a stream needs num_beams=1, for beam search knows its tokens only at the end. "
            f"Received: num_beams={run.config.num_beams}. Use generate, or set num_beams=1."
        )
    return _filled(step, run, stop)


def _prepared(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None,
    config: GenerationConfig | None,
    stop: Stop | None,
) -> Plan:
    settings = config or GenerationConfig()
    check_stop(settings, stop)
    return plan(step, input_ids, attention_mask, settings)


def _filled(step: Step, run: Plan, stop: Stop | None) -> Iterator[np.ndarray]:
    reasons = [run.last] * (len(run.history.ids) * run.config.num_return_sequences)
    for tokens in _run(step, run, stop, reasons):
        yield np.where(tokens == ENDED, np.int32(run.config.fill_token), tokens)
    run.tell(reasons)


def _run(step: Step, run: Plan, stop: Stop | None, reasons: list[str]) -> Iterator[np.ndarray]:
    """Yields `(N,)` int32 per step, `ENDED` for rows that ended before, and writes why rows end into `reasons`."""
    config, history = run.config, run.history
    rules, choose = rules_of(config), sampler_of(config)
    random = np.random.default_rng(config.seed)
    state = step.start(run.inputs, run.mask)
    if config.num_return_sequences > 1:
        copies = np.repeat(np.arange(len(history.ids)), config.num_return_sequences)
        state, history = step.reorder(state, copies), history.take(copies)
    outputs = np.arange(len(history.ids))  # the output row that each row of the batch still writes
    live = np.ones(len(outputs), dtype=bool)
    for _ in range(run.num_steps):
        logits, state = step.step(history.ids[:, -1:], state)
        scores = apply_rules(rules, history, logits[:, -1])
        # One number for every output row, also for those that left: a row draws the same whatever others do.
        tokens = choose(scores, random.random(len(reasons))[outputs])
        history = history.append(tokens)
        emitted = np.full(len(reasons), ENDED, dtype=np.int32)
        emitted[outputs[live]] = tokens[live]
        for row in np.flatnonzero(live).tolist():
            reason = end_of(history.new(row), config, stop)
            if reason:
                live[row], reasons[outputs[row]] = False, reason
        yield emitted
        if not live.any():
            return
        if 2 * live.sum() <= len(live):  # only then, for a new batch size can cost an engine a compilation
            rows = np.flatnonzero(live)
            state, history = step.reorder(state, rows), history.take(rows)
            outputs, live = outputs[rows], live[rows]
