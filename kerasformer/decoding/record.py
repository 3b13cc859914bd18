"""What each token was chosen from: a tree of nodes, of which a sequence is the path to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kerasformer.decoding.controls import Controls
from kerasformer.decoding.distribution import log_softmax

TOP = 10
"""The most probable tokens of each step that are always remembered."""


@dataclass(frozen=True, eq=False)
class TokenChoice:
    """What tokens were chosen from at one step of one row; `K` is `TOP`, or the vocabulary if it is smaller.

    Attributes:
        tokens: `(K,)` the most probable tokens in the model, best first.
        log_probabilities: `(K,)` float32, theirs, before any rule.
        allowed: `(K,)` whether rules and cuts left them.
        left: Tokens of the whole vocabulary that rules and cuts left.
        logits: `(V,)` float32 of the model before any rule, if they were asked for.
        scores: `(V,)` float32 after rules and cuts, if they were asked for.
    """

    tokens: np.ndarray
    log_probabilities: np.ndarray
    allowed: np.ndarray
    left: int
    logits: np.ndarray | None = None
    scores: np.ndarray | None = None


@dataclass(eq=False)
class Node:
    """One token of one hypothesis.

    Attributes:
        parent: The token before it; `None` for the first new one.
        prompt: The prompt that it continues, by its number.
        token: Its id.
        log_probability: `log p(token)` in the model, before any rule.
        choice: What it was chosen from; the nodes that continue one row share it.
        total: Beam search: sum of log-probabilities up to it; otherwise `None`.
        kept: Whether the search went on with it or counted it as finished.
        finished: Whether its hypothesis ended with it and was counted.
    """

    parent: Node | None
    prompt: int
    token: int
    log_probability: float
    choice: TokenChoice
    total: float | None = None
    kept: bool = False
    finished: bool = False

    @property
    def path(self) -> list[Node]:
        """From the first new token to this one."""
        nodes, node = [self], self.parent
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass
class Record:
    """All nodes of a run, in the order of their steps.

    A node costs some hundred bytes; whole rows of the vocabulary are kept only where they are asked for.

    Attributes:
        keeps_scores: Whether choices hold their scores.
        keeps_logits: Whether choices hold their logits.
        steps: The nodes of each step.
        paths: For each returned sequence its nodes, one a token.
    """

    keeps_scores: bool = False
    keeps_logits: bool = False
    steps: list[list[Node]] = field(default_factory=list)
    paths: list[list[Node]] = field(default_factory=list)

    @classmethod
    def wanted(cls, controls: Controls) -> Record | None:
        """An empty record, if one is to be kept."""
        if not (controls.record or controls.output_scores or controls.output_logits):
            return None
        return cls(controls.output_scores, controls.output_logits)

    def add(
        self,
        parents: Sequence[Node | None],
        prompts: np.ndarray,
        tokens: np.ndarray,
        rows: np.ndarray,
        logits: np.ndarray,
        scores: np.ndarray,
        totals: np.ndarray | None = None,
    ) -> list[Node]:
        """The nodes of one step: `N` of them, which continue `R` rows.

        Args:
            parents: `N` nodes; `None` for first tokens.
            prompts: `(N,)` numbers of prompts.
            tokens: `(N,)` ids.
            rows: `(N,)` the row that each continues.
            logits: `(R, V)` of the model.
            scores: `(R, V)` after rules and cuts.
            totals: `(N,)` sums of log-probabilities.
        """
        used, places = np.unique(rows, return_inverse=True)
        logs = log_softmax(logits[used])
        choices = [self._choice(*row) for row in zip(logs, logits[used], scores[used], strict=True)]
        sums = [None] * len(tokens) if totals is None else totals.tolist()
        given = zip(parents, prompts.tolist(), tokens.tolist(), places.tolist(), sums, strict=True)
        nodes = [
            Node(parent, prompt, token, float(logs[place, token]), choices[place], total)
            for parent, prompt, token, place, total in given
        ]
        self.steps.append(nodes)
        return nodes

    def _choice(self, logs: np.ndarray, logits: np.ndarray, scores: np.ndarray) -> TokenChoice:
        """One row of the vocabulary in short."""
        few = min(TOP, len(logs))
        best = np.sort(np.argpartition(logs, -few)[-few:])
        best = best[np.argsort(-logs[best], kind="stable")]
        allowed = scores > -np.inf
        return TokenChoice(
            best,
            logs[best],
            allowed[best],
            int(allowed.sum()),
            logits.copy() if self.keeps_logits else None,
            scores.copy() if self.keeps_scores else None,
        )
