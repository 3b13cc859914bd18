"""Record of the candidates of each generated token, as a tree whose paths are the sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kerasformer.engines.distribution import log_softmax
from kerasformer.generation.controls import Controls

TOP = 20
"""Number of most probable tokens that are recorded at each step."""


@dataclass(frozen=True, eq=False)
class TokenChoice:
    """Candidates of one step of one row; `K` is `TOP`, or the vocabulary size if that is smaller.

    Attributes:
        tokens: `(K,)` most probable tokens before any rule, best first.
        log_probabilities: `(K,)` float32 log-probabilities of these tokens before any rule.
        allowed: `(K,)` boolean, whether rules and filters allow these tokens.
        num_allowed: Number of tokens of the whole vocabulary that rules and filters allow.
        logits: `(V,)` float32 logits before any rule, or `None` if they were not requested.
        scores: `(V,)` float32 scores after rules and filters, or `None` if they were not requested.
    """

    tokens: np.ndarray
    log_probabilities: np.ndarray
    allowed: np.ndarray
    num_allowed: int
    logits: np.ndarray | None = None
    scores: np.ndarray | None = None


@dataclass(eq=False)
class Node:
    """One token of one hypothesis.

    Attributes:
        parent: Node of the preceding token; `None` for the first new token.
        prompt: Index of the prompt.
        token: Token id.
        log_probability: `log p(token)` before any rule.
        choice: Candidates at this step, shared by all nodes that continue the same row.
        total: In beam search, the sum of log-probabilities up to this token; otherwise `None`.
        selected: Whether the search continued with this token or stored its hypothesis as finished.
        finished: Whether the hypothesis ended with this token and was stored as finished.
    """

    parent: Node | None
    prompt: int
    token: int
    log_probability: float
    choice: TokenChoice
    total: float | None = None
    selected: bool = False
    finished: bool = False

    @property
    def path(self) -> list[Node]:
        """Nodes from the first new token to this one."""
        nodes, node = [self], self.parent
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass
class Record:
    """All nodes of a run.

    Attributes:
        keeps_scores: Whether the scores of the whole vocabulary are recorded.
        keeps_logits: Whether the logits of the whole vocabulary are recorded.
        steps: Nodes of each step.
        paths: Nodes of each returned sequence, one for each token.
    """

    keeps_scores: bool = False
    keeps_logits: bool = False
    steps: list[list[Node]] = field(default_factory=list)
    paths: list[list[Node]] = field(default_factory=list)

    @classmethod
    def for_controls(cls, controls: Controls) -> Record | None:
        """Returns an empty record, or `None` if nothing is to be recorded."""
        if not controls.records:
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
        """Adds the `N` nodes of one step, which continue `R` rows, and returns them.

        Args:
            parents: `N` nodes; `None` for first tokens.
            prompts: `(N,)` indices of the prompts.
            tokens: `(N,)` token ids.
            rows: `(N,)` index of the row that each node continues.
            logits: `(R, V)` logits of the model.
            scores: `(R, V)` scores after rules and filters.
            totals: `(N,)` sums of log-probabilities; only in beam search.
        """
        unique, indices = np.unique(rows, return_inverse=True)
        logs = log_softmax(logits[unique])
        choices = [self._choice(*row) for row in zip(logs, logits[unique], scores[unique], strict=True)]
        sums = [None] * len(tokens) if totals is None else totals.tolist()
        columns = zip(parents, prompts.tolist(), tokens.tolist(), indices.tolist(), sums, strict=True)
        nodes = [
            Node(parent, prompt, token, float(logs[index, token]), choices[index], total)
            for parent, prompt, token, index, total in columns
        ]
        self.steps.append(nodes)
        return nodes

    def _choice(self, logs: np.ndarray, logits: np.ndarray, scores: np.ndarray) -> TokenChoice:
        count = min(TOP, len(logs))
        best = np.sort(np.argpartition(logs, -count)[-count:])
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
