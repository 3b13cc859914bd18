"""Constrained generation: choices, regular expressions, JSON schemas and grammars.

A constraint is a logits rule that forbids all tokens that violate the constraint, and end tokens before the text is
complete. It therefore works with all decoding methods and engines. Grammars are parsed by `llguidance`, which needs no
compilation of an automaton for the vocabulary; choices need no parser.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from kerasformer.errors import GenerationError, TokenizerError
from kerasformer.generation import choices
from kerasformer.generation.constraint_state import ConstraintState, EndedState
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.grammars import GRAMMARS, wrapped
from kerasformer.generation.history import History
from kerasformer.generation.parsing import vocabulary_of
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.tokenization import Tokenizer

CONSTRAINTS = frozenset({"choices", *GRAMMARS})
"""Names of the arguments that define a constraint."""

_CANDIDATES = 8
"""Number of most probable tokens that are tried when the text must end soon."""
_EARLY = 8
"""Number of tokens before the last possible start of an ending at which the search for fitting tokens starts."""


def constraint_of(
    arguments: GenerationSettings, tokenizer: Tokenizer | None, config: GenerationConfig
) -> Constraint | None:
    """Returns the constraint that keyword arguments define, or `None`.

    Args:
        arguments: At most one of
            `choices`: texts, one of which is the new text;
            `regex`: a regular expression in the syntax of Rust's `regex` that the whole new text matches;
            `json_schema`: a JSON schema as a dictionary or as JSON; `{}` or `True` for any JSON;
            `grammar`: a context-free grammar in the syntax of Lark, with the rule `start`.
        tokenizer: Tokenizer of the model.
        config: Generation settings.
    Raises:
        GenerationError: several constraints, or an invalid one, with the reason of `llguidance`.
        TokenizerError: no tokenizer, or a tokenizer whose tokens do not correspond to pieces of text.
        MissingExtraError: `llguidance` is not installed.
    """
    names = [name for name in sorted(CONSTRAINTS) if arguments.get(name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise GenerationError(f"Only one constraint is supported. Received: {', '.join(names)}. Remove all but one.")
    name = names[0]
    if tokenizer is None:
        raise TokenizerError(f"{name} needs a tokenizer, and this model has none. Set model.tokenizer.")
    if name == "choices":
        root: ConstraintState = choices.initial_state(arguments[name], tokenizer)
    else:
        vocabulary = vocabulary_of(tokenizer)
        grammar = wrapped(GRAMMARS[name](arguments[name]), vocabulary.token_bytes.drops_space)
        root = vocabulary.initial_state(grammar, name)
    return Constraint(name, root, tokenizer, config)


class Constraint:
    """Logits rule that keeps new texts within a constraint and completes them within the maximum length.

    The result depends on the history only; states of the last step are cached. When few of `max_new_tokens` remain, it
    only allows tokens after which a known ending still fits.

    Args:
        name: Name of the argument that defines the constraint.
        root: State before the first token.
        tokenizer: Tokenizer of the model.
        config: Generation settings.
    """

    def __init__(self, name: str, root: ConstraintState, tokenizer: Tokenizer, config: GenerationConfig) -> None:
        self._name, self._config, self._max_new_tokens = name, config, 0
        # End tokens that are ordinary text are forbidden: they would end the row wherever the constraint allows that
        # text.
        special = tokenizer.all_special_ids
        self._ends = [t for t in config.eos_token_id if t in special or tokenizer.id_to_token(t) is None]
        self._forbidden = [token for token in config.eos_token_id if token not in self._ends]
        self._states: dict[bytes, ConstraintState | EndedState] = {b"": root}
        # Without an ending at the start, the costly search for endings is limited to the last token.
        self._ending_range = 1 if root.ending is None else 2 * (len(root.ending) + _EARLY)

    @property
    def ends_by_token(self) -> bool:
        """Whether an end token ends texts; otherwise, use `is_over` as a stopping function."""
        return bool(self._ends)

    def is_over(self, tokens: np.ndarray) -> bool:
        """Whether a text is complete and cannot be continued.

        Args:
            tokens: `(N,)` new tokens of a row.
        """
        state = self._state(tokens)
        return not isinstance(state, EndedState) and state.complete and not state.allowed.any()

    def is_complete(self, tokens: np.ndarray) -> bool:
        """Whether a text may end here, because it is a whole text of the constraint.

        Args:
            tokens: `(N,)` new tokens of a row.
        """
        forced = self._config.forced_bos_token_id
        state = self._state(tokens[1:] if forced is not None and tokens[:1] == forced else tokens)
        return state.valid if isinstance(state, EndedState) else state.complete

    def check_length(self, max_new_tokens: int) -> None:
        """Checks that a text of the constraint fits into a number of new tokens, if a short one is known.

        Raises:
            GenerationError: the shortest known text is longer.
        """
        root = self._states[b""]
        shortest = [] if isinstance(root, EndedState) else root.ending or []
        if len(shortest) > max_new_tokens:
            raise GenerationError(
                f"No text of the constraint fits into the maximum length. Expected: at least {len(shortest)} new "
                f"tokens. Received: max_new_tokens={max_new_tokens!r}. Allow more, or shorten the prompt if "
                "it fills the cache."
            )

    def __call__(self, history: History, logits: np.ndarray) -> np.ndarray:
        """Forbids tokens that violate the constraint; see `kerasformer.generation.rules`."""
        forced = int(self._config.forced_bos_token_id is not None and history.prefix_length == 1)
        if history.num_new < forced:
            return logits  # a forced language token precedes the text
        texts = [history.new(row)[forced:] for row in range(len(logits))]
        states = [self._state(text) for text in texts]
        self._states = {b"": self._states[b""], **{t.tobytes(): s for t, s in zip(texts, states, strict=True)}}
        self._max_new_tokens = history.max_new_tokens
        remaining = history.max_new_tokens - bool(self._config.forced_eos_token_id) - history.num_new
        for row, state in zip(logits, states, strict=True):
            if not isinstance(state, EndedState):
                self._restrict(row, state, remaining)
        self._check(history, logits, states)
        return logits

    def _state(self, tokens: np.ndarray) -> ConstraintState | EndedState:
        """Returns the state after new tokens, starting from the cached state of the longest prefix."""
        known = next(size for size in range(len(tokens), -1, -1) if tokens[:size].tobytes() in self._states)
        state = self._states[tokens[:known].tobytes()]
        for token in tokens[known:].tolist():
            state = self._after(state, token)
        self._states[tokens.tobytes()] = state
        return state

    def _after(self, state: ConstraintState | EndedState, token: int) -> ConstraintState | EndedState:
        if isinstance(state, EndedState):
            return state
        return EndedState(state.complete) if token in self._ends else state.after(token)

    def _restrict(self, row: np.ndarray, state: ConstraintState, remaining: int) -> None:
        """Forbids tokens that may not follow in the logits `(V,)` of a row."""
        size = min(len(row), len(state.allowed))
        ends = [token for token in self._ends if token < len(row)]
        end_logits = row[ends] if state.complete else -np.inf
        np.copyto(row[:size], -np.inf, where=~state.allowed[:size])
        row[size:] = -np.inf
        row[[token for token in self._forbidden if token < len(row)]] = -np.inf
        row[ends] = end_logits
        if remaining <= self._ending_range:
            if state.ending is None:
                self._warn(remaining)
            elif remaining <= len(state.ending) + _EARLY:
                self._lead_to_end(row, state, state.ending, remaining)

    def _lead_to_end(self, row: np.ndarray, state: ConstraintState, ending: Sequence[int], remaining: int) -> None:
        """Allows only tokens after which the text can still be completed, and end tokens if it is complete."""
        fitting = [token for token in _best(row, _CANDIDATES) if self._fits(state, token, ending, remaining - 1)]
        if ending and len(ending) <= remaining:
            fitting.append(ending[0])
        if state.complete:
            fitting += [token for token in self._ends if token < len(row)]
        if not fitting and (remaining > 1 or self._config.num_beams == 1):
            self._warn(remaining)  # with several beams, the hypothesis is dropped at the last token instead
            return
        fitting_logits = row[fitting]
        row[:] = -np.inf
        row[fitting] = fitting_logits

    def _fits(self, state: ConstraintState, token: int, ending: Sequence[int], remaining: int) -> bool:
        """Whether the text can be completed within `remaining` tokens after `token`, with `ending` or a new ending."""
        after = self._after(state, token)
        if isinstance(after, EndedState):
            return after.valid
        if len(ending) <= remaining and after.completes(ending):
            return True
        return after.ending is not None and len(after.ending) <= remaining

    def _warn(self, remaining: int) -> None:
        """Warns at the last token that a text may be incomplete."""
        if remaining == 1:
            warnings.warn(
                f"a text was cut before it was complete by its {self._name}. Received: {self._limit}. "
                "Allow more new tokens.",
                stacklevel=2,
            )

    @property
    def _limit(self) -> str:
        config = self._config
        if config.max_new_tokens is None and config.max_length is not None:
            return f"max_length={config.max_length}"
        return f"max_new_tokens={self._max_new_tokens}"

    def _check(self, history: History, logits: np.ndarray, states: Sequence[ConstraintState | EndedState]) -> None:
        """Checks that each row has an allowed token; beam search checks this itself after the first token.

        Raises:
            GenerationError: a row has no allowed token.
        """
        if self._config.num_beams > 1 and history.num_new:
            return
        for row, state in zip(logits, states, strict=True):
            if not isinstance(state, EndedState) and row.max() == -np.inf:
                raise GenerationError(self._no_token_message(state, history.num_new))

    def _no_token_message(self, state: ConstraintState, position: int) -> str:
        if not state.allowed.any() and not state.complete:
            return (
                f"{self._name} cannot be followed at position {position}: it needs characters that are missing in the "
                "vocabulary of this model, as braces are in T5's. Change the constraint, or use another model."
            )
        return (
            f"no token can be chosen at position {position}: {self._name} allows {state}, which other rules or "
            f"{self._limit} forbid. Check bad_words_ids, suppress_tokens, min_new_tokens and no_repeat_ngram_size, and "
            "allow more new tokens."
        )


def _best(row: np.ndarray, count: int) -> list[int]:
    """Returns up to `count` tokens with the highest finite logits of `(V,)`."""
    best = np.argpartition(row, -min(count, len(row)))[-count:]
    return [token for token in best.tolist() if row[token] > -np.inf]
