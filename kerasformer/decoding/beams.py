"""Beam search: the `n` best hypotheses of each prompt, extended side by side.

At each step the `n` running hypotheses of a prompt have `n * V` continuations. The best `2n` of them are looked at
(more with several end tokens): those among the first `n` that end are put aside as finished, and the best `n` that do
not end run on. Scores are sums of log-probabilities; a finished one is divided by `length ** length_penalty`. The
details (which hypotheses count, when a prompt is closed) are those of `transformers`, so that tokens are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kerasformer.decoding.config import GenerationConfig
from kerasformer.decoding.history import History
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.plan import Plan
from kerasformer.decoding.record import Node, Record
from kerasformer.decoding.rules import apply_rules
from kerasformer.decoding.samplers import check_finite, log_softmax, sampling_of

OUT = np.float32(-1e9)
"""Score of a hypothesis that does not count; finite, so that sums with it stay ordered."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation: its score after the length penalty, its tokens, why it ended, its last token's node."""

    score: np.float32
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
        if np.isfinite(score):
            self.best.append(Hypothesis(score, tokens, reason, node))
            if node is not None:
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
        self.hopeless |= not running / np.float32(length**self.config.length_penalty) > worst


def beam_search(run: Plan) -> GenerationOutput:
    """Beam search, or with `do_sample` beams that draw their continuations.

    Args:
        run: Engine, prompts and settings. The engine is started on `B` prompts and then runs `B * num_beams` rows.
    """
    step = run.step
    beams, batch = run.config.num_beams, len(run.history.ids)
    search = _Search(run)
    rows = np.repeat(np.arange(batch), beams)
    state = step.reorder(step.start(run.inputs, run.mask), rows)
    history = run.history.take(rows)
    scores = np.full((batch, beams), OUT)
    scores[:, 0] = 0  # the copies of a prompt are equal: only the first one may be continued at first
    prompts = np.arange(batch)  # the prompt of each group of `beams` rows
    nodes = np.full(len(rows), None, dtype=object)
    for _ in range(run.num_steps):
        logits, state = step.step(history.ids[:, -1:], state)
        best = search.advance(history, logits[:, -1], scores, prompts, nodes)
        open_groups = np.flatnonzero([not search.finished[prompt].closed for prompt in prompts])
        if not len(open_groups) or search.exhausted:
            break
        if 2 * len(open_groups) <= len(prompts):  # only then, for a new batch size can cost an engine a compilation
            best, prompts = best.groups(open_groups), prompts[open_groups]
        rows, nodes, scores = best.rows.ravel(), best.nodes.ravel(), best.sums
        if len(rows) != len(history.ids) or (rows != np.arange(len(rows))).any():
            state = step.reorder(state, rows)
        history = history.take(rows).append(best.tokens.ravel())
    return _output(run, search)


@dataclass(frozen=True)
class Continuations:
    """Hypotheses one token longer, `K` for each of `G` groups; every array is `(G, K)`.

    Attributes:
        rows: The row that each continues.
        tokens: Its new token.
        sums: Its sum of log-probabilities.
        nodes: Its new token's node in the record, or `None`.
    """

    rows: np.ndarray
    tokens: np.ndarray
    sums: np.ndarray
    nodes: np.ndarray

    def groups(self, groups: np.ndarray) -> Continuations:
        """Those of some groups."""
        return Continuations(self.rows[groups], self.tokens[groups], self.sums[groups], self.nodes[groups])

    def best(self, sums: np.ndarray, count: int) -> Continuations:
        """The `count` with the highest `sums` `(G, K)` of each group, which they have from then on."""
        order = np.argsort(-sums, axis=1, kind="stable")[:, :count]
        return Continuations(
            *(np.take_along_axis(each, order, axis=1) for each in (self.rows, self.tokens, sums, self.nodes))
        )


def _output(run: Plan, search: _Search) -> GenerationOutput:
    """The best `num_return_sequences` of each prompt."""
    count = run.config.num_return_sequences
    nothing = Hypothesis(OUT, np.zeros(0, dtype=np.int32), run.last)  # when rules left fewer hypotheses than asked for
    best = [each for one in search.finished for each in (one.best + [nothing] * count)[:count]]
    reasons = [each.reason for each in best]
    run.tell(reasons)
    scores = np.array([each.score for each in best], np.float32)
    if search.record is not None:
        search.record.paths = [[] if each.node is None else each.node.path for each in best]
    return GenerationOutput([each.tokens for each in best], reasons, scores, search.record)


class _Search:
    """Scores continuations, puts aside those that end, and chooses those that run on."""

    def __init__(self, run: Plan) -> None:
        self.run = run
        self.config = run.config
        self.rules = run.rules
        self.sampling = sampling_of(run.config) if run.config.do_sample else None
        self.randoms = np.random.default_rng(run.seed).spawn(len(run.history.ids))
        self.finished = [Finished(run.config) for _ in range(len(run.history.ids))]
        self.record = Record.wanted(run.controls)
        self.exhausted = False  # every continuation looked at has ended, so nothing can run on

    def advance(
        self, history: History, logits: np.ndarray, scores: np.ndarray, prompts: np.ndarray, nodes: np.ndarray
    ) -> Continuations:
        """One step of `G` groups: the `n` continuations of each that run on.

        Args:
            history: `G * n` rows.
            logits: `(G * n, V)`.
            scores: `(G, n)` sums of log-probabilities of the running hypotheses.
            prompts: `(G,)` the prompt of each group.
            nodes: `(G * n,)` the last node of each row in the record.
        """
        beams, vocab_size = self.config.num_beams, logits.shape[1]
        check_finite(logits)
        logs = apply_rules(self.rules, history, log_softmax(logits))
        if self.sampling:
            logs = self.sampling.filtered(logs)
        totals = (logs.reshape(-1, beams, vocab_size) + scores[..., None]).reshape(len(prompts), -1)
        check_finite(totals)
        chosen = self._choose(totals, prompts)
        sums = np.take_along_axis(totals, chosen, axis=1)
        rows = chosen // vocab_size + np.arange(len(prompts))[:, None] * beams
        found = Continuations(rows, (chosen % vocab_size).astype(np.int32), sums, np.full(rows.shape, None, object))
        if self.record is not None:
            self._remember(self.record, found, history, nodes, logits, logs)
        ended = self._put_aside(history, found, prompts)
        self.exhausted = bool(ended.all())
        best = found.best(sums + np.where(ended, OUT, np.float32(0)), beams)
        for prompt, sum_ in zip(prompts, best.sums[:, 0], strict=True):
            self.finished[prompt].look_ahead(sum_, history.num_new + 1)
        if self.record is not None:
            for node, sum_ in zip(best.nodes.ravel(), best.sums.ravel(), strict=True):
                node.kept |= bool(sum_ > OUT)  # one that ended, or a copy that does not count, does not run on
        return best

    @staticmethod
    def _remember(
        record: Record, found: Continuations, history: History, nodes: np.ndarray, logits: np.ndarray, logs: np.ndarray
    ) -> None:
        """Adds a node for every continuation that was looked at."""
        rows = found.rows.ravel()
        found.nodes.flat = record.add(
            nodes[rows].tolist(), history.rows[rows], found.tokens.ravel(), rows, logits, logs, found.sums.ravel()
        )

    def _choose(self, totals: np.ndarray, prompts: np.ndarray) -> np.ndarray:
        """`(G, K)` places of the best continuations in `totals` `(G, n * V)`, or of drawn ones, in their order.

        Adding Gumbel noise and taking the best `K` draws `K` times without replacement.
        Source: Kool et al. 2019, arXiv:1903.06059.
        """
        count = min(max(2, 1 + len(self.config.eos_token_id)) * self.config.num_beams, totals.shape[1])
        keys = totals
        if self.sampling:
            noise = [self.randoms[prompt].gumbel(size=totals.shape[1]) for prompt in prompts]
            keys = totals + np.stack(noise).astype(np.float32)
        places = np.sort(np.argpartition(keys, -count, axis=1)[:, -count:], axis=1)
        best = np.take_along_axis(keys, places, axis=1)
        return np.take_along_axis(places, np.argsort(-best, axis=1, kind="stable"), axis=1)

    def _put_aside(self, history: History, found: Continuations, prompts: np.ndarray) -> np.ndarray:
        """Collects continuations that end; `(G, K)` true for each of them, of which only the first `n` are kept."""
        ended = np.zeros(found.tokens.shape, dtype=bool)
        interruption = self.run.interruption()
        for group, prompt in enumerate(prompts):
            finished = self.finished[prompt]
            closed = finished.closed  # as it was before this step: several may end in one
            for rank in range(found.tokens.shape[1]):
                said = np.append(history.new(found.rows[group, rank]), found.tokens[group, rank])
                reason = self.run.end_of(history.before(found.rows[group, rank]), said) or interruption
                if reason is None and len(said) == self.config.max_new_tokens:
                    reason = self.run.last
                ended[group, rank] = reason is not None
                if reason and rank < self.config.num_beams and not closed:
                    finished.add(found.sums[group, rank], said, reason, found.nodes[group, rank])
        return ended
