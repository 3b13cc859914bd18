"""Greedy search and sampling: `Steps` generates token by token, `generate` whole texts, also with beam search.

Called by `request`; it calls the engine (`engines.protocols`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from kerasformer.engines.distribution import check_greatest
from kerasformer.engines.protocols import GreedyStep, State, Step
from kerasformer.errors import GenerationError
from kerasformer.generation.beams import beam_search
from kerasformer.generation.controls import Controls
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.history import History
from kerasformer.generation.output import GenerationOutput
from kerasformer.generation.preparation import GenerationPlan, prepare
from kerasformer.generation.record import Node, Record
from kerasformer.generation.rules import apply_rules
from kerasformer.generation.samplers import sampler_of
from kerasformer.generation.speculation import ChooseToken, Drafter, GuessedText, Speculative
from kerasformer.generation.speculation_counts import SpeculationCounts
from kerasformer.generation.wrapped_step import WrappedStep

ENDED = -1
"""Placeholder token of a row that has already ended."""

_STEPS_AT_ONCE = 64
"""Number of steps whose random numbers are generated at once."""

_TOKENS_AT_ONCE = 32
"""Maximum number of tokens that an engine generates in one call, during which a program cannot be interrupted."""


def generate(
    step: Step,
    input_ids: np.ndarray,
    attention_mask: np.ndarray | None = None,
    config: GenerationConfig | None = None,
    controls: Controls | None = None,
) -> GenerationOutput:
    """Generates tokens with a decoder or an encoder-decoder.

    Args:
        step: The engine.
        input_ids: `(B, P)` integers, padded on either side with any value.
        attention_mask: `(B, P)`, 1 for real tokens; `None` means that all tokens are real.
        config: Generation settings; the default is greedy search for 20 tokens.
        controls: Stopping functions, rules, a negative prompt, an assistant and other runtime controls.
    Raises:
        InputError: prompts of a wrong shape, an empty batch or an empty prompt.
        CapacityError: a prompt that does not fit into the cache.
        GenerationError: settings that this engine does not support, or logits without a finite value.
    """
    plan = prepare(step, input_ids, attention_mask, config, controls)
    if plan.config.num_beams > 1:
        return beam_search(plan)
    steps = Steps(plan, _TOKENS_AT_ONCE)
    rows = np.stack(list(steps), axis=1)
    record = steps.record
    if record is not None:
        record.paths = [[] if node is None else node.path for node in steps.nodes]
    sequences = [row[row != ENDED] for row in rows]
    return GenerationOutput(sequences, steps.finish_reasons, record=record, speculation=steps.speculation)


class Steps:
    """Generation step by step: an iterable, to be used once, of the tokens of each step.

    These are `(N,)` int32 for `N` output rows, with `ENDED` for rows that have ended. A token is computed when it is
    requested. Whoever stops before the end closes the iterator, which then keeps or releases the caches.

    Args:
        plan: What is generated, from `prepare`.
        tokens_at_once: Number of tokens of each row that an engine which can choose them generates before the first of
            them is yielded.

    Attributes:
        finish_reasons: Finish reason of each row, as in `GenerationOutput`; valid for rows that have ended.
        record: Candidates of each token, or `None` if they are not recorded.
        nodes: Node of the last token of each row in the record.
        speculation: Statistics of speculative decoding, or `None` if it is disabled.
        reused: Number of tokens of the prompt that were in kept caches; known after the first step.

    Raises:
        GenerationError: beam search is enabled.
    """

    def __init__(self, plan: GenerationPlan, tokens_at_once: int = 1) -> None:
        if plan.config.num_beams > 1:
            raise GenerationError(
                "a stream needs num_beams=1, because beam search has no tokens before it ends. "
                f"Received: num_beams={plan.config.num_beams!r}. Use generate, or set num_beams=1."
            )
        self._plan, self._tokens_at_once = plan, tokens_at_once if plan.is_plain else 1
        self._count = len(plan.history.ids) * plan.config.num_return_sequences
        self._rules = plan.rules
        self._choose = sampler_of(plan.config)
        self.finish_reasons = [plan.limit_reason] * self._count
        self.record = Record.for_controls(plan.controls)
        self.nodes: list[Node | None] = [None] * self._count
        self.speculation = None if plan.drafter is None else SpeculationCounts()
        self.reused = 0

    def __iter__(self) -> Generator[np.ndarray, None, None]:
        with self._plan.engine() as step:
            copies = self._plan.config.num_return_sequences
            prompts = np.repeat(np.arange(self._count // copies), copies)
            if self.speculation is None:
                yield from self._tokens(step, prompts)
            else:
                texts = [self._guessed(step, output, prompts) for output in range(self._count)]
                yield from self._tokens(Speculative(step, texts), prompts)
        self._plan.warn_about(self.finish_reasons)

    def _tokens(self, step: Step | Speculative, prompts: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the tokens of rows that continue the prompts with the indices `prompts`, `(N,)`."""
        plan, history = self._plan, self._plan.history.take(prompts)
        outputs, engine_rows = np.arange(self._count), np.arange(self._count)  # of the unfinished rows
        numbers = self._numbers()
        greedy = step if self._tokens_at_once > 1 and isinstance(step, GreedyStep) else None
        state = self._start(step, prompts)
        self.reused = step.num_reused if isinstance(step, WrappedStep) else 0
        last_tokens = history.ids[:, -1:].copy()
        ahead: deque[tuple[np.ndarray, np.ndarray]] = deque()  # later tokens of the engine, and their logits
        for index in range(plan.num_steps):
            if greedy is not None:
                if not ahead:
                    ahead, state = self._ahead(greedy, last_tokens, state, engine_rows, index)
                tokens, greatest = (column[engine_rows] for column in ahead.popleft())
                check_greatest(greatest)
            else:
                logits, state = step.step(last_tokens, state)
                logits = logits[:, -1] if len(engine_rows) == len(last_tokens) else logits[engine_rows, -1]
                tokens = self._next(history, logits, outputs, next(numbers))
            history.append(tokens)
            unfinished = self._unfinished(history, outputs, tokens)
            yield self._emitted(outputs, tokens)
            if not unfinished:
                return
            if len(engine_rows) < len(last_tokens):
                last_tokens = last_tokens.copy()
                last_tokens[engine_rows, 0] = tokens
            else:
                last_tokens = tokens[:, None]
            if len(unfinished) < len(outputs):
                rows = np.array(unfinished)
                history, outputs, engine_rows = history.take(rows), outputs[rows], engine_rows[rows]
            # Finished rows are dropped late, because a new batch size can cost an engine a compilation.
            most = len(last_tokens) - 1 if isinstance(step, Speculative) else len(last_tokens) // 2
            if len(engine_rows) <= most and not ahead:
                state, last_tokens = step.reorder(state, engine_rows), last_tokens[engine_rows]
                engine_rows = np.arange(len(engine_rows))

    def _guessed(self, step: Step, output: int, prompts: np.ndarray) -> GuessedText:
        """Returns the text of one output row, with its own guesses."""
        plan, choose, counts = self._plan, self._choice(output, prompts), cast("SpeculationCounts", self.speculation)
        width, drafter = plan.history.prefix_length, cast("Drafter", copy(plan.drafter))
        return GuessedText(step, drafter, plan.guesses, plan.num_steps, width, choose, counts)

    @cached_property
    def _draws(self) -> np.ndarray:
        """Random numbers of all steps, `(num_steps, N)`."""
        return _random(self._plan.generators(self._plan.config.num_return_sequences), self._plan.num_steps)

    def _choice(self, output: int, prompts: np.ndarray) -> ChooseToken:
        """Returns a function that chooses the next token of a row after given tokens, with the row's random numbers."""
        history, ends = self._plan.history.take(prompts[output : output + 1]), self._plan.config.eos_token_id
        padding = history.ids[:, : history.starts[0]]

        def choose(tokens: np.ndarray, logits: np.ndarray) -> int | None:
            draft = replace(history, ids=np.concatenate([padding, tokens[None]], axis=1))
            if draft.num_new and int(tokens[-1]) in ends:
                return None
            scores = apply_rules(self._rules, draft, logits)
            return int(self._choose(scores, self._draws[draft.num_new, output : output + 1])[0])

        return choose

    def _ahead(
        self, step: GreedyStep, last_tokens: np.ndarray, state: State, engine_rows: np.ndarray, index: int
    ) -> tuple[deque[tuple[np.ndarray, np.ndarray]], State]:
        """Returns the tokens of several steps from `index`, with their logits, `(B,)` each, and the next state."""
        count = min(self._tokens_at_once, self._plan.num_steps - index)
        ended = np.isin(np.arange(len(last_tokens)), engine_rows, invert=True)
        ends = np.array(self._plan.config.eos_token_id, np.int32)
        tokens, logits, state = step.continue_greedily(last_tokens, state, count, ended, ends)
        return deque(zip(tokens.T, logits.T, strict=True)), state

    def _start(self, step: Step | Speculative, prompts: np.ndarray) -> State:
        """Returns the state of rows that continue these prompts; repeated prompts are read once."""
        unique = prompts if isinstance(step, Speculative) else np.unique(prompts)
        columns = self._plan.mask[unique].any(axis=0)
        state = step.start(self._plan.inputs[unique][:, columns], self._plan.mask[unique][:, columns])
        return step.reorder(state, np.searchsorted(unique, prompts)) if len(prompts) > len(unique) else state

    def _numbers(self) -> Iterator[np.ndarray]:
        """Yields the random numbers of each step, `(N,)`, which are generated for many steps at once."""
        generators = self._plan.generators(self._plan.config.num_return_sequences)
        while True:
            yield from _random(generators, _STEPS_AT_ONCE)

    def _next(self, history: History, logits: np.ndarray, outputs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Chooses one token for each of the output rows, `(R,)`; logits `(R, V)`, random numbers `(N,)`."""
        scores = apply_rules(self._rules, history, logits)
        tokens = self._choose(scores, numbers if len(outputs) == self._count else numbers[outputs])
        if self.record is not None:
            parents, rows = [self.nodes[row] for row in outputs], np.arange(len(outputs))
            filtered = self._choose.filtered(scores)
            nodes = self.record.add(parents, history.rows, tokens, rows, logits, filtered)
            for row, node in zip(outputs.tolist(), nodes, strict=True):
                self.nodes[row], node.selected = node, True
        return tokens

    def _emitted(self, outputs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Expands the tokens `(R,)` of these output rows to all output rows, `(N,)`."""
        if len(outputs) == self._count:
            return tokens
        emitted = np.full(self._count, ENDED, dtype=np.int32)
        emitted[outputs] = tokens
        return emitted

    def _unfinished(self, history: History, outputs: np.ndarray, tokens: np.ndarray) -> list[int]:
        """Returns the rows that continue and stores the finish reasons of the others; `tokens` `(R,)` are the last."""
        plan, interruption = self._plan, self._plan.interruption()
        unfinished: list[int] = []
        for row, token in enumerate(tokens.tolist()):
            reason: str | None
            if token in plan.config.eos_token_id:
                reason = "eos"
            elif plan.has_stops:
                reason = plan.finish_reason(history, row) or interruption
            else:
                reason = interruption
            if reason is None:
                unfinished.append(row)
            else:
                self.finish_reasons[int(outputs[row])] = reason
        return unfinished


def _random(generators: Sequence[np.random.Generator], num_steps: int) -> np.ndarray:
    """Returns the next random numbers of each row, `(num_steps, N)`."""
    return np.stack([generator.random(num_steps) for generator in generators], axis=1)
