"""Beam search: the `n` best hypotheses of each prompt, extended side by side.

At each step the `n` running hypotheses of a prompt have `n * V` continuations. The best `2n` of them are looked at
(more with several end tokens): those among the first `n` that end are put aside as finished, and the best `n` that do
not end run on. Scores are sums of log-probabilities; a finished one is divided by `length ** length_penalty`. The
details (which hypotheses count, when a prompt is closed) are those of `transformers`, so that tokens are equal.

Of equal sums the first counts: that of the better hypothesis, then that of the lower token id. (`transformers` takes
what `torch.topk` gives, which is not defined.) Where rules or a small vocabulary leave fewer hypotheses than are to be
returned, empty ones with the score -1e9 and the reason "none" stand for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerasformer.decoding.distribution import check_finite, log_softmax
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.preparation import GenerationPlan
from kerasformer.decoding.record import Node, Record
from kerasformer.decoding.rules import apply_rules
from kerasformer.decoding.samplers import sampling_of
from kerasformer.decoding.selection import best_few

OUT = np.float32(-1e9)
"""What the sum of a hypothesis that does not count lies under; finite, as in `transformers`, so that it runs on where
there are fewer continuations than beams."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation.

    Attributes:
        score: Its log-probability after the length penalty.
        real: Whether it counts: with fewer continuations than beams, copies fill the places of those that lack.
        tokens: `(N,)` int32.
        reason: Why it ended.
        node: Of its last token in the record.
    """

    score: np.float32
    real: bool
    tokens: np.ndarray
    reason: str
    node: Node | None = None


@dataclass
class Finished:
    """The best finished hypotheses of one prompt, best first, and whether better ones can still come."""

    config: GenerationConfig
    best: list[Hypothesis] = field(default_factory=list)
    hopeless: bool = False

    @property
    def full(self) -> bool:
        """Whether there are `num_beams` of them."""
        return len(self.best) == self.config.num_beams

    @property
    def closed(self) -> bool:
        """Whether nothing more is added."""
        return self.hopeless or (self.full and self.config.early_stopping is True)

    def add(self, log_probability: np.float32, tokens: np.ndarray, reason: str, node: Node | None) -> None:
        """Adds a hypothesis if it is among the best."""
        score = log_probability / np.float32(len(tokens) ** self.config.length_penalty)
        if score > OUT:
            real = bool(counts(log_probability))
            self.best.append(Hypothesis(score, real, tokens, reason, node))
            if node is not None and real:
                node.kept = node.finished = True
            self.best.sort(key=lambda each: -each.score)
            del self.best[self.config.num_beams :]

    def look_ahead(self, running: np.float32, num_new: int) -> None:
        """Gives up hope if the best running sum of log-probabilities cannot beat the worst finished score.

        A continuation can only lower the sum, but a longer one is divided by more: `"never"` reckons with the greatest
        length, otherwise the present length is taken for a guess.
        """
        longest = self.config.early_stopping == "never" and self.config.length_penalty > 0
        length = (self.config.max_new_tokens or 0) if longest else num_new
        worst = self.best[-1].score if self.full else OUT
        best_possible = running / np.float32(length**self.config.length_penalty)
        self.hopeless |= not (counts(running) and best_possible > worst)


@dataclass(frozen=True)
class Hypotheses:
    """`K` hypotheses for each of `G` prompts.

    Attributes:
        prompts: `(G,)` numbers of the prompts.
        history: `G * K` rows: what each of them says.
        rows: `(G, K)` the engine's row that has read each, its last token aside.
        sums: `(G, K)` sums of log-probabilities.
        nodes: `(G, K)` nodes of the last tokens in the record, or `None`.
    """

    prompts: np.ndarray
    history: History
    rows: np.ndarray
    sums: np.ndarray
    nodes: np.ndarray

    def take(self, groups: np.ndarray, ranks: np.ndarray) -> Hypotheses:
        """Of `groups` `(G',)` those at `ranks` `(G', K')`."""
        places = groups[:, None] * self.rows.shape[1] + ranks
        return Hypotheses(
            self.prompts[groups],
            self.history.take(places.ravel()),
            *(each.ravel()[places] for each in (self.rows, self.sums, self.nodes)),
        )


def beam_search(run: GenerationPlan) -> GenerationOutput:
    """Beam search, or with `do_sample` beams that draw their continuations.

    Args:
        run: Engine, prompts and settings. The engine is started on `B` prompts and then runs `B * num_beams` rows.
    """
    step, search = run.step, _Search(run)
    rows = np.repeat(np.arange(len(run.history.ids)), run.config.num_beams)
    state = step.reorder(step.start(run.inputs, run.mask), rows)
    running = _copies(run, rows)
    said = running.history.ids[:, -1:]
    for _ in range(run.num_steps):
        logits, state = step.step(said, state)
        running = search.advance(running, logits[:, -1])
        if not len(running.prompts):
            break
        order, rows = _moves(running.rows, len(said))
        if len(order) < len(said) or (order != np.arange(len(said))).any():
            state = step.reorder(state, order)
        said = said[order]
        said[rows.ravel()] = running.history.ids[:, -1:]
        running = replace(running, rows=rows)
    return _output(run, search)


def _copies(run: GenerationPlan, rows: np.ndarray) -> Hypotheses:
    """What runs at first: equal hypotheses, of which only the first one of each prompt counts."""
    shape = len(run.history.ids), run.config.num_beams
    sums = np.full(shape, OUT)
    sums[:, 0] = 0
    places = np.arange(len(rows)).reshape(shape)
    return Hypotheses(np.arange(shape[0]), run.history.take(rows), places, sums, np.full(shape, None, dtype=object))


def _moves(rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """How the engine's `size` rows are to be reordered, and where the hypotheses `(G, n)` in `rows` then are.

    Those of one prompt stay side by side. Rows of prompts that are closed stay too, until half of all can leave:
    a new batch size can cost an engine a compilation.
    """
    if 2 * rows.size <= size:
        return rows.ravel(), np.arange(rows.size).reshape(rows.shape)
    beams = rows.shape[1]
    places = rows[:, :1] // beams * beams + np.arange(beams)
    order = np.arange(size)
    order[places] = rows
    return order, places


def _output(run: GenerationPlan, search: _Search) -> GenerationOutput:
    """The best `num_return_sequences` of each prompt."""
    count = run.config.num_return_sequences
    nothing = Hypothesis(OUT, False, np.zeros(0, dtype=np.int32), "none")  # there were fewer hypotheses than that
    real = [[each for each in one.best if each.real] for one in search.finished]
    best = [each for found in real for each in (found + [nothing] * count)[:count]]
    reasons = [each.reason for each in best]
    run.tell(reasons)
    scores = np.array([each.score for each in best], np.float32)
    if search.record is not None:
        search.record.paths = [[] if each.node is None else each.node.path for each in best]
    return GenerationOutput([each.tokens for each in best], reasons, scores, search.record)


class _Search:
    """Scores continuations, puts aside those that end, and chooses those that run on."""

    def __init__(self, run: GenerationPlan) -> None:
        self.run = run
        self.config = run.config
        self.rules = run.rules
        self.sampling = sampling_of(run.config) if run.config.do_sample else None
        self.randoms = np.random.default_rng(run.seed).spawn(len(run.history.ids))
        self.finished = [Finished(run.config) for _ in range(len(run.history.ids))]
        self.record = Record.wanted(run.controls)

    def advance(self, running: Hypotheses, logits: np.ndarray) -> Hypotheses:
        """The `n` best continuations of each prompt that is still open.

        Args:
            running: `n` hypotheses for each of `G` prompts.
            logits: `(R, V)` of all rows of the engine.
        """
        rows = running.rows.ravel()
        found = self._continuations(running, logits if len(rows) == len(logits) else logits[rows])
        ended = self._put_aside(found)
        found = replace(found, sums=found.sums + np.where(ended, OUT, np.float32(0)))
        ranks = np.argsort(-found.sums, axis=1, kind="stable")[:, : self.config.num_beams]
        for prompt, sums, first in zip(found.prompts, found.sums, ranks[:, 0], strict=True):
            self.finished[prompt].look_ahead(sums[first], found.history.num_new)
        going = np.flatnonzero([not self.finished[prompt].closed for prompt in found.prompts])
        best = found.take(going, ranks[going])
        if self.record is not None:
            for node in best.nodes[counts(best.sums)]:
                node.kept = True
        return best

    def _continuations(self, running: Hypotheses, logits: np.ndarray) -> Hypotheses:
        """The best `K` hypotheses one token longer, in their order; logits `(G * n, V)`."""
        check_finite(logits)
        logs = apply_rules(self.rules, running.history, log_softmax(logits))
        if self.sampling:
            possible = logs.max(axis=1) > -np.inf  # the others' hypotheses cannot go on, so that nothing is to be cut
            logs[possible] = self.sampling.filtered(logs[possible])
        groups, vocab_size = len(running.prompts), logits.shape[1]
        totals = (logs + running.sums.reshape(-1, 1)).reshape(groups, -1)
        self._check_possible(totals, running.prompts)
        chosen = self._choose(totals, running.prompts)
        sums = np.take_along_axis(totals, chosen, axis=1)
        rows, tokens = chosen // vocab_size + np.arange(groups)[:, None] * self.config.num_beams, chosen % vocab_size
        history = running.history.take(rows.ravel()).append(tokens.ravel())
        nodes = running.nodes.ravel()[rows]
        if self.record is not None:
            nodes.flat = self.record.add(
                nodes.ravel().tolist(), history.rows, tokens.ravel(), rows.ravel(), logits, logs, sums.ravel()
            )
        return Hypotheses(running.prompts, history, running.rows.ravel()[rows], sums, nodes)

    def _check_possible(self, totals: np.ndarray, prompts: np.ndarray) -> None:
        """Refuses a prompt of which no hypothesis can go on, unless one has finished; totals `(G, n * V)`."""
        greatest = totals.max(axis=1)
        greatest[greatest <= OUT / 2] = -np.inf
        needed = np.isnan(greatest) | [not self.finished[prompt].best for prompt in prompts]
        check_finite(greatest[needed, None])

    def _choose(self, totals: np.ndarray, prompts: np.ndarray) -> np.ndarray:
        """`(G, K)` places of the best continuations in `totals` `(G, n * V)`, or of drawn ones, in their order.

        Adding Gumbel noise and taking the best `K` draws `K` times without replacement.
        Source: Kool et al. 2019, arXiv:1903.06059.
        """
        count = min(max(2, 1 + len(self.config.eos_token_id)) * self.config.num_beams, totals.shape[1])
        if self.sampling:
            totals = totals.astype(np.float64)
            for row, prompt in zip(totals, prompts, strict=True):
                possible = np.flatnonzero(row > -np.inf)
                row[possible] -= np.log(self.randoms[prompt].standard_exponential(len(possible)))
        return np.stack([highest(row, count) for row in totals])

    def _put_aside(self, found: Hypotheses) -> np.ndarray:
        """Collects those that end; `(G, K)` true for each of them, of which only the first `n` are kept."""
        history, beams = found.history, self.config.num_beams
        full = history.num_new == self.config.max_new_tokens
        otherwise = self.run.interruption() or (self.run.last if full else None)
        reasons = [self.run.end_of(history, row) or otherwise for row in range(len(history.ids))]
        ended = np.array([reason is not None for reason in reasons]).reshape(found.sums.shape)
        for group, rank in np.argwhere(ended[:, :beams]):
            row = group * found.sums.shape[1] + rank
            said, reason = history.new(row), str(reasons[row])
            self.finished[found.prompts[group]].add(found.sums[group, rank], said, reason, found.nodes[group, rank])
        return ended


def counts(sums: Any) -> Any:
    """Whether sums of log-probabilities (an array, or one) are those of hypotheses that count."""
    return sums > OUT / 2


def highest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the `count` highest of `values` `(N,)`, best first, of equal ones the first."""
    few = best_few(values, count)
    return few[np.argsort(-values[few], kind="stable")[:count]]
