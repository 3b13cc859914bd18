"""Beam search.

At each step, the `n` running hypotheses of a prompt have `n * V` continuations, of which the best `2n` are examined
(more with several end tokens). Those among the first `n` that end are stored as finished; the best `n` that do not end
keep running. Scores are sums of log-probabilities; the score of a finished hypothesis is divided by
`length ** length_penalty`. The details (which hypotheses are valid, when a prompt is closed) follow `transformers`, so
that both generate the same tokens.

Ties are broken in favour of the better hypothesis, then of the lower token id. (`transformers` uses the undefined order
of `torch.topk`.) If rules or a small vocabulary leave fewer hypotheses than requested, the rest are returned empty,
with the score -1e9 and the finish reason "none".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from kerasformer.engines.distribution import check_finite, log_softmax
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.history import History
from kerasformer.generation.output import GenerationOutput
from kerasformer.generation.preparation import GenerationPlan
from kerasformer.generation.record import Node, Record
from kerasformer.generation.rules import apply_rules
from kerasformer.generation.samplers import sampling_of
from kerasformer.generation.selection import largest_indices

INVALID_SUM = np.float32(-1e9)
"""Score that marks a hypothesis as invalid. It is finite, as in `transformers`, so that invalid hypotheses fill the
beams when there are fewer continuations than beams."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation.

    Attributes:
        score: Log-probability after the length penalty.
        valid: `False` for a copy that fills a beam because there are fewer continuations than beams.
        tokens: `(N,)` int32 new tokens.
        reason: Finish reason.
        node: Node of the last token in the record.
    """

    score: np.float32
    valid: bool
    tokens: np.ndarray
    reason: str
    node: Node | None = None


@dataclass
class Finished:
    """The best finished hypotheses of one prompt.

    Attributes:
        config: Generation settings.
        best: Hypotheses, best first; at most `num_beams`.
        unbeatable: Whether no running hypothesis can still become one of the best.
    """

    config: GenerationConfig
    best: list[Hypothesis] = field(default_factory=list)
    unbeatable: bool = False

    @property
    def full(self) -> bool:
        """Whether `num_beams` hypotheses have finished."""
        return len(self.best) == self.config.num_beams

    @property
    def closed(self) -> bool:
        """Whether the search for this prompt is over."""
        return self.unbeatable or (self.full and self.config.early_stopping is True)

    def add(self, log_probability: np.float32, tokens: np.ndarray, reason: str, node: Node | None) -> None:
        """Adds a hypothesis if it is among the best `num_beams`."""
        score = log_probability / np.float32(len(tokens) ** self.config.length_penalty)
        if score > INVALID_SUM:
            valid = bool(is_valid(log_probability))
            self.best.append(Hypothesis(score, valid, tokens, reason, node))
            if node is not None and valid:
                node.selected = node.finished = True
            self.best.sort(key=lambda hypothesis: -hypothesis.score)
            del self.best[self.config.num_beams :]

    def update_unbeatable(self, running: np.float32, num_new: int) -> None:
        """Sets `unbeatable` if the best running sum of log-probabilities cannot beat the worst finished score.

        A continuation can only lower the sum, but a longer one is divided by a larger number. With
        `early_stopping="never"` the bound is computed for the maximum length, otherwise estimated for the current one.
        """
        maximum = self.config.early_stopping == "never" and self.config.length_penalty > 0
        length = (self.config.max_new_tokens or 0) if maximum else num_new
        worst = self.best[-1].score if self.full else INVALID_SUM
        best_possible = running / np.float32(length**self.config.length_penalty)
        self.unbeatable |= not (is_valid(running) and best_possible > worst)


@dataclass(frozen=True)
class Hypotheses:
    """`K` hypotheses for each of `G` prompts.

    Attributes:
        prompts: `(G,)` indices of the prompts.
        history: Tokens of all hypotheses, in `G * K` rows.
        rows: `(G, K)` engine row that has read each hypothesis except its last token.
        sums: `(G, K)` sums of log-probabilities.
        nodes: `(G, K)` nodes of the last tokens in the record, or `None`.
    """

    prompts: np.ndarray
    history: History
    rows: np.ndarray
    sums: np.ndarray
    nodes: np.ndarray

    def take(self, groups: np.ndarray, ranks: np.ndarray) -> Hypotheses:
        """Selects the hypotheses `ranks` `(G', K')` of the groups `groups` `(G',)`."""
        indices = groups[:, None] * self.rows.shape[1] + ranks
        return Hypotheses(
            self.prompts[groups],
            self.history.take(indices.ravel()),
            *(values.ravel()[indices] for values in (self.rows, self.sums, self.nodes)),
        )


def beam_search(run: GenerationPlan) -> GenerationOutput:
    """Runs beam search, or beam search with sampled continuations if `do_sample` is set.

    Args:
        run: Engine, prompts and settings. The engine is started on `B` prompts and then runs `B * num_beams` rows.
    """
    search, rows = _Search(run), np.repeat(np.arange(len(run.history.ids)), run.config.num_beams)
    running = _initial_hypotheses(run, rows)
    with run.engine() as step:
        state = step.reorder(step.start(run.inputs, run.mask), rows)
        last_tokens = running.history.ids[:, -1:]
        for _ in range(run.num_steps):
            logits, state = step.step(last_tokens, state)
            running = search.advance(running, logits[:, -1])
            if not len(running.prompts):
                break
            order, rows = _reordering(running.rows, len(last_tokens))
            if len(order) < len(last_tokens) or (order != np.arange(len(last_tokens))).any():
                state = step.reorder(state, order)
            last_tokens = last_tokens[order]
            last_tokens[rows.ravel()] = running.history.ids[:, -1:]
            running = replace(running, rows=rows)
    return _output(run, search)


def _initial_hypotheses(run: GenerationPlan, rows: np.ndarray) -> Hypotheses:
    """Returns `num_beams` copies of each prompt, of which only the first is valid."""
    shape = len(run.history.ids), run.config.num_beams
    sums = np.full(shape, INVALID_SUM)
    sums[:, 0] = 0
    indices = np.arange(len(rows)).reshape(shape)
    return Hypotheses(np.arange(shape[0]), run.history.take(rows), indices, sums, np.full(shape, None, dtype=object))


def _reordering(rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the new order of the engine's `size` rows, and the new rows of the hypotheses in `rows` `(G, n)`.

    Hypotheses of one prompt stay side by side. Rows of closed prompts are dropped only once they are half of all rows,
    because a new batch size can cost an engine a compilation.
    """
    if 2 * rows.size <= size:
        return rows.ravel(), np.arange(rows.size).reshape(rows.shape)
    beams = rows.shape[1]
    new_rows = rows[:, :1] // beams * beams + np.arange(beams)
    order = np.arange(size)
    order[new_rows] = rows
    return order, new_rows


def _output(run: GenerationPlan, search: _Search) -> GenerationOutput:
    """Returns the best `num_return_sequences` hypotheses of each prompt."""
    count = run.config.num_return_sequences
    empty = Hypothesis(INVALID_SUM, False, np.zeros(0, dtype=np.int32), "none")
    valid = [[hypothesis for hypothesis in finished.best if hypothesis.valid] for finished in search.finished]
    best = [hypothesis for hypotheses in valid for hypothesis in (hypotheses + [empty] * count)[:count]]
    reasons = [hypothesis.reason for hypothesis in best]
    run.warn_about(reasons)
    scores = np.array([hypothesis.score for hypothesis in best], np.float32)
    if search.record is not None:
        search.record.paths = [[] if hypothesis.node is None else hypothesis.node.path for hypothesis in best]
    return GenerationOutput([hypothesis.tokens for hypothesis in best], reasons, scores, search.record)


class _Search:
    """Scores continuations, stores those that end, and selects those that keep running."""

    def __init__(self, run: GenerationPlan) -> None:
        self.run = run
        self.config = run.config
        self.rules = run.rules
        self.sampling = sampling_of(run.config) if run.config.do_sample else None
        self.generators = run.generators()
        self.finished = [Finished(run.config) for _ in range(len(run.history.ids))]
        self.record = Record.for_controls(run.controls)

    def advance(self, running: Hypotheses, logits: np.ndarray) -> Hypotheses:
        """Returns the `n` best continuations of each prompt that is still open.

        Args:
            running: `n` hypotheses for each of `G` prompts.
            logits: `(R, V)` logits of all rows of the engine.
        """
        rows = running.rows.ravel()
        candidates = self._continuations(running, logits if len(rows) == len(logits) else logits[rows])
        ended = self._collect_finished(candidates)
        candidates = replace(candidates, sums=candidates.sums + np.where(ended, INVALID_SUM, np.float32(0)))
        ranks = np.argsort(-candidates.sums, axis=1, kind="stable")[:, : self.config.num_beams]
        for prompt, best_sum in zip(candidates.prompts, candidates.sums.max(axis=1), strict=True):
            self.finished[prompt].update_unbeatable(best_sum, candidates.history.num_new)
        open_groups = np.flatnonzero([not self.finished[prompt].closed for prompt in candidates.prompts])
        best = candidates.take(open_groups, ranks[open_groups])
        if self.record is not None:
            for node in best.nodes[is_valid(best.sums)]:
                node.selected = True
        return best

    def _continuations(self, running: Hypotheses, logits: np.ndarray) -> Hypotheses:
        """Returns the `K` best continuations by one token, best first; logits `(G * n, V)`."""
        check_finite(logits)
        logs = apply_rules(self.rules, running.history, log_softmax(logits))
        if self.sampling:
            possible = logs.max(axis=1) > -np.inf  # filters need at least one allowed token
            logs[possible] = self.sampling.filtered(logs[possible])
        groups, vocab_size = len(running.prompts), logits.shape[1]
        totals = (logs + running.sums.reshape(-1, 1)).reshape(groups, -1)
        self._check_possible(totals, running.prompts)
        chosen = self._choose(totals, running.prompts)
        sums = np.take_along_axis(totals, chosen, axis=1)
        rows, tokens = chosen // vocab_size + np.arange(groups)[:, None] * self.config.num_beams, chosen % vocab_size
        history = running.history.take(rows.ravel())
        history.append(tokens.ravel())
        nodes = running.nodes.ravel()[rows]
        if self.record is not None:
            nodes.flat = self.record.add(
                nodes.ravel().tolist(), history.rows, tokens.ravel(), rows.ravel(), logits, logs, sums.ravel()
            )
        return Hypotheses(running.prompts, history, running.rows.ravel()[rows], sums, nodes)

    def _check_possible(self, totals: np.ndarray, prompts: np.ndarray) -> None:
        """Raises if a prompt has neither a possible continuation nor a finished hypothesis; totals `(G, n * V)`."""
        greatest = totals.max(axis=1)
        greatest[greatest <= INVALID_SUM / 2] = -np.inf
        needed = np.isnan(greatest) | [not self.finished[prompt].best for prompt in prompts]
        check_finite(greatest[needed, None])

    def _choose(self, totals: np.ndarray, prompts: np.ndarray) -> np.ndarray:
        """Returns the indices `(G, K)` of the best or of sampled continuations in `totals` `(G, n * V)`, best first.

        Adding Gumbel noise and taking the best `K` samples `K` times without replacement.
        Source: Kool et al. 2019, arXiv:1903.06059.
        """
        count = min(max(2, 1 + len(self.config.eos_token_id)) * self.config.num_beams, totals.shape[1])
        if self.sampling:
            totals = totals.astype(np.float64)
            for row, prompt in zip(totals, prompts, strict=True):
                possible = np.flatnonzero(row > -np.inf)
                row[possible] -= np.log(self.generators[prompt].standard_exponential(len(possible)))
        return np.stack([top_indices(row, count) for row in totals])

    def _collect_finished(self, candidates: Hypotheses) -> np.ndarray:
        """Stores the hypotheses that end among the first `n` of each prompt.

        Returns:
            `(G, K)` boolean, true for every hypothesis that ends.
        """
        history, shape = candidates.history, candidates.sums.shape
        full = history.num_new == self.config.max_new_tokens
        default = self.run.interruption() or (self.run.limit_reason if full else None)
        reasons = [self.run.finish_reason(history, row) or default for row in range(len(history.ids))]
        ended = np.array([reason is not None for reason in reasons]).reshape(shape)
        for group, rank in np.argwhere(ended[:, : self.config.num_beams]):
            row = group * shape[1] + rank
            finished, node = self.finished[candidates.prompts[group]], candidates.nodes[group, rank]
            finished.add(candidates.sums[group, rank], history.new(row), str(reasons[row]), node)
        return ended


def is_valid(sums: np.ndarray | np.floating) -> np.ndarray | np.bool_:
    """Whether a sum of log-probabilities, or each of an array of sums, belongs to a valid hypothesis."""
    return sums > INVALID_SUM / 2


def top_indices(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the `count` largest of `values` `(N,)`, largest first; ties are in ascending order."""
    largest = largest_indices(values, count)
    return largest[np.argsort(-values[largest], kind="stable")[:count]]
