"""Greedy search and sampling: the loop that `generate` and `stream` share."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from kerasformer.decoding.beams import beam_search
from kerasformer.decoding.controls import Controls
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.preparation import GenerationPlan, prepare
from kerasformer.decoding.protocols import State, Step
from kerasformer.decoding.record import Node, Record
from kerasformer.decoding.rules import apply_rules
from kerasformer.decoding.samplers import sampler_of
from kerasformer.decoding.speculation import ChooseToken, Drafter, ReadAhead
from kerasformer.decoding.speculation_counts import SpeculationCounts
from kerasformer.errors import GenerationError, argument

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
    run = prepare(step, input_ids, attention_mask, config, controls)
    if run.config.num_beams > 1:
        return beam_search(run)
    loop = _Loop(run)
    rows = np.stack(list(loop), axis=1)
    run.tell(loop.reasons)
    record = loop.record
    if record is not None:
        record.paths = [[] if node is None else node.path for node in loop.nodes]
    return GenerationOutput(
        [row[row != ENDED] for row in rows], loop.reasons, record=record, speculation=loop.speculation
    )


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
    run = prepare(step, input_ids, attention_mask, config, controls)
    if run.config.num_beams > 1:
        raise GenerationError(
            "a stream needs num_beams=1, for beam search knows its tokens only at the end. "
            f"Received: {argument('num_beams', run.config.num_beams)}. Use generate, or set num_beams=1."
        )
    return _filled(run)


def _filled(run: GenerationPlan) -> Generator[np.ndarray, None, list[str]]:
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
        speculation: What guessing ahead came to, if that is wanted.
    """

    def __init__(self, run: GenerationPlan) -> None:
        self._run = run
        self._count = len(run.history.ids) * run.config.num_return_sequences
        self._rules = run.rules
        self._choose = sampler_of(run.config)
        self.reasons = [run.last] * self._count
        self.record = Record.wanted(run.controls)
        self.nodes: list[Node | None] = [None] * self._count
        self.speculation = None if run.drafter is None else SpeculationCounts()

    def __iter__(self) -> Iterator[np.ndarray]:
        copies = self._run.config.num_return_sequences
        prompts = np.repeat(np.arange(self._count // copies), copies)
        if self._run.drafter is None or self.speculation is None:
            return self._rows(self._run.step, np.arange(self._count), prompts)
        return self._one_by_one(self._run.drafter, self.speculation, prompts)

    def _one_by_one(
        self, drafter: Drafter, speculation: SpeculationCounts, prompts: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Rows that guess ahead, each alone, for some come further in a step than others."""
        run, columns = self._run, []
        for output in range(self._count):
            prompt, choose = prompts[output : output + 1], self._choice(output, prompts)
            step = ReadAhead(run.step, drafter, run.guesses, run.num_steps, run.history.width, choose, speculation)
            tokens = self._rows(step, np.array([output]), prompt)
            if self._count == 1:
                yield from tokens
                return
            columns.append([int(column[output]) for column in tokens])
        for place in range(max(map(len, columns))):
            yield np.array([row[place] if place < len(row) else ENDED for row in columns], np.int32)

    @cached_property
    def _draws(self) -> np.ndarray:
        """All random numbers that rows will draw, by step and output row."""
        return np.random.default_rng(self._run.seed).random((self._run.num_steps, self._count))

    def _choice(self, output: int, prompts: np.ndarray) -> ChooseToken:
        """What one row would choose had it said other tokens, by the random numbers that it will draw."""
        history, ends = self._run.history.take(prompts[output : output + 1]), self._run.config.eos_token_id
        padding = history.ids[:, : history.starts[0]]

        def choose(said: np.ndarray, logits: np.ndarray) -> int | None:
            other = replace(history, ids=np.concatenate([padding, said[None]], axis=1))
            if other.num_new and int(said[-1]) in ends:
                return None
            scores = apply_rules(self._rules, other, logits)
            return int(self._choose(scores, self._draws[other.num_new, output : output + 1])[0])

        return choose

    def _rows(self, step: Step, outputs: np.ndarray, prompts: np.ndarray) -> Iterator[np.ndarray]:
        """Writes some output rows, each continuing the prompt of that number."""
        run, history = self._run, self._run.history.take(prompts)
        random = np.random.default_rng(run.seed)
        state = self._start(step, prompts)
        said = history.ids[:, -1:].copy()
        places = np.arange(len(outputs))  # of what is still written, among the engine's rows
        for _ in range(run.num_steps):
            logits, state = step.step(said, state)
            logits = logits[:, -1] if len(places) == len(said) else logits[places, -1]
            tokens = self._next(history, logits, outputs, random)
            history = history.append(tokens)
            left = self._left(history, outputs)
            yield self._emitted(outputs, tokens)
            if not left:
                return
            if len(places) < len(said):
                said = said.copy()
                said[places, 0] = tokens
            else:
                said = tokens[:, None]
            if len(left) < len(outputs):
                rows = np.array(left)
                history, outputs, places = history.take(rows), outputs[rows], places[rows]
            if 2 * len(places) <= len(said):  # only then, for a new batch size can cost an engine a compilation
                state, said, places = step.reorder(state, places), said[places], np.arange(len(places))

    def _start(self, step: Step, prompts: np.ndarray) -> State:
        """The state of rows that continue these prompts, each of which is read once."""
        read = np.unique(prompts)
        used = self._run.mask[read].any(axis=0)
        state = step.start(self._run.inputs[read][:, used], self._run.mask[read][:, used])
        return step.reorder(state, np.searchsorted(read, prompts)) if len(prompts) > len(read) else state

    def _next(
        self, history: History, logits: np.ndarray, outputs: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """One token for each of the output rows, `(R,)`; logits `(R, V)`."""
        scores = apply_rules(self._rules, history, logits)
        # One number for every output row, also for those that left: a row draws the same whatever others do.
        numbers = random.random(self._count)
        numbers = numbers if len(outputs) == self._count else numbers[outputs]
        tokens = self._choose(scores, numbers).astype(np.int32)
        if self.record is not None:
            parents, rows = [self.nodes[row] for row in outputs], np.arange(len(outputs))
            left = self._choose.filtered(scores)
            nodes = self.record.add(parents, history.rows, tokens, rows, logits, left)
            for row, node in zip(outputs.tolist(), nodes, strict=True):
                self.nodes[row], node.kept = node, True
        return tokens

    def _emitted(self, outputs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The tokens `(R,)` of these output rows among all, `(N,)`."""
        if len(outputs) == self._count:
            return tokens
        emitted = np.full(self._count, ENDED, dtype=np.int32)
        emitted[outputs] = tokens
        return emitted

    def _left(self, history: History, outputs: np.ndarray) -> list[int]:
        """The rows that go on; notes why others end."""
        interruption = self._run.interruption()
        left = []
        for row, output in enumerate(outputs.tolist()):
            reason = self._run.end_of(history, row) or interruption
            if reason is None:
                left.append(row)
            else:
                self.reasons[output] = reason
        return left
