"""Greedy search and sampling: the loop that `generate` and `stream` share."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from kerasformer.decoding.beams import beam_search
from kerasformer.decoding.config import GenerationConfig
from kerasformer.decoding.controls import Controls
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.plan import Plan, plan
from kerasformer.decoding.protocols import Step
from kerasformer.decoding.record import Node, Record
from kerasformer.decoding.rules import apply_rules
from kerasformer.decoding.samplers import sampler_of
from kerasformer.decoding.speculation import ReadAhead
from kerasformer.decoding.tally import Tally
from kerasformer.errors import GenerationError

ENDED = -1
"""Stands for the token of a row that has already ended."""


def generate(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    controls: Controls | None = None,
) -> GenerationOutput:
    """Continues prompts (a decoder) or answers inputs (an encoder-decoder).

    Args:
        step: The engine.
        input_ids: `(B, P)` integers; padding may be on either side and its value does not matter.
        attention_mask: `(B, P)`, 1 for real tokens; `None`: all are real.
        config: Settings; the defaults are greedy search for 20 tokens.
        controls: What steers the run beside them: stopping functions, rules, a negative prompt, an assistant.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: a prompt that does not fit.
        GenerationError: settings that this engine cannot follow, or logits of which none is finite.
    """
    run = plan(step, input_ids, attention_mask, config, controls)
    if run.config.num_beams > 1:
        return beam_search(run)
    loop = _Loop(run)
    rows = np.stack(list(loop), axis=1)
    run.tell(loop.reasons)
    record = loop.record
    if record is not None:
        record.paths = [[] if node is None else node.path for node in loop.nodes]
    return GenerationOutput([row[row != ENDED] for row in rows], loop.reasons, record=record, tally=loop.tally)


def stream(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    controls: Controls | None = None,
) -> Generator[np.ndarray, None, list[str]]:
    """The tokens of `generate` as they come: `(B,)` int32 per step, `config.fill_token` for rows that have ended.

    Arguments are checked at the call, not at the first token. What the generator returns at its end are the reasons
    why each row ended.

    Raises:
        GenerationError: beam search, which knows its tokens only at the end; otherwise as `generate`.
    """
    run = plan(step, input_ids, attention_mask, config, controls)
    if run.config.num_beams > 1:
        raise GenerationError(
            "a stream needs num_beams=1, for beam search knows its tokens only at the end. "
            f"Received: num_beams={run.config.num_beams}. Use generate, or set num_beams=1."
        )
    return _filled(run)


def _filled(run: Plan) -> Generator[np.ndarray, None, list[str]]:
    loop = _Loop(run)
    for tokens in loop:
        yield np.where(tokens == ENDED, np.int32(run.config.fill_token), tokens)
    run.tell(loop.reasons)
    return loop.reasons


class _Loop:
    """Yields `(N,)` int32 per step for the `N` output rows, `ENDED` for rows that ended before.

    Attributes:
        reasons: Why each row ended.
        record: What tokens were chosen from, if that is wanted.
        nodes: The last token of each row in it.
        tally: What guessing ahead came to, if that is wanted.
    """

    def __init__(self, run: Plan) -> None:
        self._run = run
        self._count = len(run.history.ids) * run.config.num_return_sequences
        self._choose = sampler_of(run.config)
        self.reasons = [run.last] * self._count
        self.record = Record.wanted(run.controls)
        self.nodes: list[Node | None] = [None] * self._count
        self.tally = None if run.drafter is None else Tally()

    def __iter__(self) -> Iterator[np.ndarray]:
        copies = self._run.config.num_return_sequences
        prompts = np.repeat(np.arange(self._count // copies), copies)
        if self._run.drafter is None or self.tally is None:
            return self._rows(self._run.step, np.arange(self._count), prompts)
        return self._one_by_one(ReadAhead(self._run.step, self._run.drafter, self._run.guesses, self.tally), prompts)

    def _one_by_one(self, step: ReadAhead, prompts: np.ndarray) -> Iterator[np.ndarray]:
        """Rows that guess ahead, each alone, for some come further in a step than others."""
        columns: list[list[int]] = []
        for output in range(self._count):
            tokens = self._rows(step, np.array([output]), prompts[output : output + 1])
            if self._count == 1:
                yield from tokens
                return
            columns.append([int(column[output]) for column in tokens])
        for place in range(max(map(len, columns))):
            yield np.array([row[place] if place < len(row) else ENDED for row in columns], np.int32)

    def _rows(self, step: Step, outputs: np.ndarray, prompts: np.ndarray) -> Iterator[np.ndarray]:
        """Writes some output rows, each continuing the prompt of that number."""
        run, history, rules = self._run, self._run.history, self._run.rules
        random = np.random.default_rng(run.seed)
        read = np.unique(prompts)
        used = run.mask[read].any(axis=0)
        state = step.start(run.inputs[read][:, used], run.mask[read][:, used])
        if len(prompts) > len(read):
            state = step.reorder(state, np.searchsorted(read, prompts))
        history = history.take(prompts)
        live = np.ones(len(outputs), dtype=bool)
        for _ in range(run.num_steps):
            logits, state = step.step(history.ids[:, -1:], state)
            scores = apply_rules(rules, history, logits[:, -1])
            # One number for every output row, also for those that left: a row draws the same whatever others do.
            tokens = self._choose(scores, random.random(self._count)[outputs])
            if self.record is not None:
                rows, parents = outputs[live], [self.nodes[row] for row in outputs[live]]
                left = self._choose.filtered(scores[live])
                places = np.arange(len(rows))
                nodes = self.record.add(parents, history.rows[live], tokens[live], places, logits[live, -1], left)
                for row, node in zip(rows.tolist(), nodes, strict=True):
                    self.nodes[row], node.kept = node, True
            history = history.append(tokens)
            emitted = np.full(self._count, ENDED, dtype=np.int32)
            emitted[outputs[live]] = tokens[live]
            interruption = run.interruption()
            for row in np.flatnonzero(live).tolist():
                reason = run.end_of(history.before(row), history.new(row)) or interruption
                if reason:
                    live[row], self.reasons[outputs[row]] = False, reason
            yield emitted
            if not live.any():
                return
            if 2 * live.sum() <= len(live):  # only then, for a new batch size can cost an engine a compilation
                rows = np.flatnonzero(live)
                state, history = step.reorder(state, rows), history.take(rows)
                outputs, live = outputs[rows], live[rows]
