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
from kerasformer.decoding.protocols import Step
from kerasformer.decoding.rules import apply_rules, rules_of
from kerasformer.decoding.samplers import check_finite, log_softmax, sampling_of
from kerasformer.decoding.stopping import Stop, end_of

OUT = np.float32(-1e9)
"""Score of a hypothesis that does not count; finite, so that sums with it stay ordered."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation: its score after the length penalty, its tokens and why it ended."""

    score: np.float32
    tokens: np.ndarray
    reason: str


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

    def add(self, log_probability: np.float32, tokens: np.ndarray, reason: str) -> None:
        """Adds a hypothesis if it is among the best."""
        score = log_probability / np.float32(len(tokens) ** self.config.length_penalty)
        if np.isfinite(score):
            self.best.append(Hypothesis(score, tokens, reason))
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


def beam_search(step: Step, run: Plan, stop: Stop | None) -> GenerationOutput:
    """Beam search, or with `do_sample` beams that draw their continuations.

    Args:
        step: The engine; it is started on `B` prompts and then runs `B * num_beams` rows.
        run: Prompts and settings.
        stop: Ends a hypothesis when it returns true for its new tokens.
    """
    beams, batch = run.config.num_beams, len(run.history.ids)
    search = _Search(run, stop)
    rows = np.repeat(np.arange(batch), beams)
    state = step.reorder(step.start(run.inputs, run.mask), rows)
    history = run.history.take(rows)
    scores = np.full((batch, beams), OUT)
    scores[:, 0] = 0  # the copies of a prompt are equal: only the first one may be continued at first
    prompts = np.arange(batch)  # the prompt of each group of `beams` rows
    for _ in range(run.num_steps):
        logits, state = step.step(history.ids[:, -1:], state)
        parents, tokens, scores = search.advance(history, logits[:, -1], scores, prompts)
        open_groups = np.flatnonzero([not search.finished[prompt].closed for prompt in prompts])
        if not len(open_groups) or search.exhausted:
            break
        if 2 * len(open_groups) <= len(prompts):  # only then, for a new batch size can cost an engine a compilation
            parents, tokens = parents[open_groups], tokens[open_groups]
            scores, prompts = scores[open_groups], prompts[open_groups]
        rows = parents.ravel()
        if len(rows) != len(history.ids) or (rows != np.arange(len(rows))).any():
            state = step.reorder(state, rows)
        history = history.take(rows).append(tokens.ravel())
    return _output(run, search.finished)


def _output(run: Plan, finished: list[Finished]) -> GenerationOutput:
    """The best `num_return_sequences` of each prompt."""
    count = run.config.num_return_sequences
    nothing = Hypothesis(OUT, np.zeros(0, dtype=np.int32), run.last)  # when rules left fewer hypotheses than asked for
    best = [each for one in finished for each in (one.best + [nothing] * count)[:count]]
    reasons = [each.reason for each in best]
    run.tell(reasons)
    return GenerationOutput(
        [each.tokens for each in best], reasons, np.array([each.score for each in best], np.float32)
    )


class _Search:
    """Scores continuations, puts aside those that end, and chooses those that run on."""

    def __init__(self, run: Plan, stop: Stop | None) -> None:
        self.config = run.config
        self.last = run.last
        self.stop = stop
        self.rules = rules_of(run.config)
        self.sampling = sampling_of(run.config) if run.config.do_sample else None
        self.randoms = np.random.default_rng(run.config.seed).spawn(len(run.history.ids))
        self.finished = [Finished(run.config) for _ in range(len(run.history.ids))]
        self.exhausted = False  # every continuation looked at has ended, so nothing can run on

    def advance(
        self, history: History, logits: np.ndarray, scores: np.ndarray, prompts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of `G` groups.

        Args:
            history: `G * n` rows.
            logits: `(G * n, V)`.
            scores: `(G, n)` sums of log-probabilities of the running hypotheses.
            prompts: `(G,)` the prompt of each group.
        Returns:
            `(rows, tokens, scores)`, each `(G, n)`: the row that each new hypothesis continues, its token, its score.
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
        tokens = (chosen % vocab_size).astype(np.int32)
        ended = self._put_aside(history, rows, tokens, sums, prompts)
        self.exhausted = bool(ended.all())
        sums = sums + np.where(ended, OUT, np.float32(0))
        order = np.argsort(-sums, axis=1, kind="stable")[:, :beams]
        rows, tokens, sums = (np.take_along_axis(each, order, axis=1) for each in (rows, tokens, sums))
        for prompt, best in zip(prompts, sums[:, 0], strict=True):
            self.finished[prompt].look_ahead(best, history.num_new + 1)
        return rows, tokens, sums

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

    def _put_aside(
        self, history: History, rows: np.ndarray, tokens: np.ndarray, sums: np.ndarray, prompts: np.ndarray
    ) -> np.ndarray:
        """Collects continuations that end; `(G, K)` true for each of them, of which only the first `n` are kept."""
        ended = np.zeros(tokens.shape, dtype=bool)
        for group, prompt in enumerate(prompts):
            finished = self.finished[prompt]
            closed = finished.closed  # as it was before this step: several may end in one
            for rank in range(tokens.shape[1]):
                said = np.append(history.new(rows[group, rank]), tokens[group, rank])
                reason = end_of(said, self.config, self.stop)
                if reason is None and len(said) == self.config.max_new_tokens:
                    reason = self.last
                ended[group, rank] = reason is not None
                if reason and rank < self.config.num_beams and not closed:
                    finished.add(sums[group, rank], said, reason)
        return ended
