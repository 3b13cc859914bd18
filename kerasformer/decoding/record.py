"""What each token was chosen from: a tree of nodes, of which a sequence is the path to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class Node:
    """One token of one hypothesis.

    Attributes:
        parent: The token before it; `None` for the first new one.
        prompt: The prompt that it continues, by its number.
        token: Its id.
        logits: `(V,)` float32 of the model, before any rule.
        scores: `(V,)` float32 that it was chosen from, after rules and cuts.
        total: Beam search: sum of log-probabilities up to it; otherwise `None`.
        kept: Whether the search went on with it or counted it as finished.
    """

    parent: Node | None
    prompt: int
    token: int
    logits: np.ndarray
    scores: np.ndarray
    total: float | None = None
    kept: bool = False

    @property
    def log_probability(self) -> float:
        """`log p(token)` in the model, before any rule."""
        shifted = self.logits - self.logits.max()
        return float(shifted[self.token] - np.log(np.exp(shifted).sum()))

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

    Attributes:
        steps: The nodes of each step.
        paths: For each returned sequence its nodes, one a token.
    """

    steps: list[list[Node]] = field(default_factory=list)
    paths: list[list[Node]] = field(default_factory=list)

    def add(
        self,
        parents: Sequence[Node | None],
        prompts: np.ndarray,
        tokens: np.ndarray,
        logits: np.ndarray,
        scores: np.ndarray,
        totals: np.ndarray | None = None,
    ) -> list[Node]:
        """The nodes of one step, `N` of them.

        Args:
            parents: `N` nodes; `None` for first tokens.
            prompts: `(N,)` numbers of prompts.
            tokens: `(N,)` ids.
            logits: `(N, V)`; neither these nor the scores may change afterwards.
            scores: `(N, V)`.
            totals: `(N,)`.
        """
        sums = [None] * len(tokens) if totals is None else totals.tolist()
        chosen = zip(parents, prompts.tolist(), tokens.tolist(), logits, scores, sums, strict=True)
        nodes = [Node(*each) for each in chosen]
        self.steps.append(nodes)
        return nodes
