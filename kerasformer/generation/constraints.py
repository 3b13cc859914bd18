"""Constrained text: choices, a regular expression, a JSON schema or a grammar that the new text follows.

A constraint is a logits rule: it forbids every token that would lead out of the grammar, and the end before the text is
complete. So it works with every method of `kerasformer.decoding` and on every engine. Grammars and their parsers are
those of `llguidance`, which begins at once where other libraries first compile an automaton over the vocabulary;
choices need no parser.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasformer.decoding import GenerationConfig
from kerasformer.decoding.generation_config import DEFAULT_NEW_TOKENS
from kerasformer.decoding.history import History
from kerasformer.errors import GenerationError, TokenizerError
from kerasformer.generation import choices
from kerasformer.generation.constraint_state import Closed, ConstraintState
from kerasformer.generation.grammars import GRAMMARS, spoken
from kerasformer.generation.parsing import vocabulary_of
from kerasformer.tokenization import Tokenizer

CONSTRAINTS = frozenset({"choices", *GRAMMARS})
"""Names of the arguments that ask for a constraint."""

_CANDIDATES = 8
"""The best so many tokens are tried when the text must soon end."""
_EARLY = 8
"""So many tokens before the last chance to end a text, tokens are tried."""


def constraint_of(asked: Mapping[str, Any], tokenizer: Tokenizer | None, config: GenerationConfig) -> Constraint | None:
    """The constraint that keyword arguments ask for, if they do.

    Args:
        asked: At most one of
            `choices`: texts, one of which is the new text;
            `regex`: a regular expression, in the syntax of Rust's `regex`, that the whole new text matches;
            `json_schema`: a JSON schema as a dictionary or as JSON; `{}` or `True` for any JSON;
            `grammar`: a context-free grammar in the syntax of Lark, with the rule `start`.
        tokenizer: Of the model.
        config: Settings of the run.
    Raises:
        GenerationError: several constraints, or one that cannot be followed, with the reason of the library.
        TokenizerError: no tokenizer, or one whose tokens spell no text.
        MissingExtraError: `llguidance` is not installed.
    """
    given = [name for name in sorted(CONSTRAINTS) if asked.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise GenerationError(f"A text follows one constraint. Received: {', '.join(given)}. Leave all but one out.")
    name = given[0]
    if tokenizer is None:
        raise TokenizerError(f"{name} needs a tokenizer, and this model has none. Set model.tokenizer.")
    if name == "choices":
        root: ConstraintState = choices.begin(asked[name], tokenizer)
    else:
        vocabulary = vocabulary_of(tokenizer)
        root = vocabulary.begin(spoken(GRAMMARS[name](asked[name]), vocabulary.token_bytes.eats_space), name)
    return Constraint(name, root, tokenizer, config)


class Constraint:
    """A logits rule that keeps new texts within a grammar, and has them complete when the last token is said.

    It depends on the history alone: parsers of the last step are kept to spare work. When few of `max_new_tokens` are
    left, only tokens remain after which a way to end the text is known that still fits.

    Args:
        name: The argument that asked for it.
        root: The place before the first token.
        tokenizer: Of the model.
        config: Settings of the run.
    """

    def __init__(self, name: str, root: ConstraintState, tokenizer: Tokenizer, config: GenerationConfig) -> None:
        self._name, self._config = name, config
        self._capacity: int | None = None
        # A token of text that ends rows is never said: it would end the text wherever the grammar has that letter.
        special = tokenizer.all_special_ids
        self._ends = [t for t in config.eos_token_id if t in special or tokenizer.id_to_token(t) is None]
        self._unsaid = [token for token in config.eos_token_id if token not in self._ends]
        self._places: dict[bytes, ConstraintState | Closed] = {b"": root}
        # A grammar of whose words no end is found at first is not searched again and again.
        self._last_stretch = 1 if root.ending is None else 2 * (len(root.ending) + _EARLY)

    def within(self, capacity: int) -> Constraint:
        """The same for an engine whose cache holds so many tokens, prompts included."""
        other = copy.copy(self)
        other._capacity = capacity
        return other

    @property
    def ends_by_token(self) -> bool:
        """Whether an end token ends texts; otherwise `is_over` says when they have ended."""
        return bool(self._ends)

    def is_over(self, tokens: np.ndarray) -> bool:
        """Whether a text is complete and nothing can follow; the new tokens of a row, `(N,)`."""
        place = self._place(tokens)
        return not isinstance(place, Closed) and place.complete and not place.allowed.any()

    def __call__(self, history: History, logits: np.ndarray) -> np.ndarray:
        """Forbids what does not fit; see `kerasformer.decoding.rules`."""
        forced = int(self._config.forced_bos_token_id is not None and history.width == 1)
        if history.num_new < forced:
            return logits  # a language token comes before the text
        texts = [history.new(row)[forced:] for row in range(len(logits))]
        places = [self._place(text) for text in texts]
        self._places = {b"": self._places[b""], **{t.tobytes(): p for t, p in zip(texts, places, strict=True)}}
        left = self._most(history) - history.num_new
        for row, place in zip(logits, places, strict=True):
            if not isinstance(place, Closed):
                self._restrict(row, place, left)
        self._check(history, logits, places)
        return logits

    def _most(self, history: History) -> int:
        """New tokens that a text may have, as a plan settles them; a forced end token is none of its own."""
        config = self._config
        most = config.max_new_tokens
        if most is None:
            most = DEFAULT_NEW_TOKENS if config.max_length is None else config.max_length - history.width
        if self._capacity is not None:
            most = min(most, self._capacity - history.width)
        return most - bool(config.forced_eos_token_id)

    def _place(self, tokens: np.ndarray) -> ConstraintState | Closed:
        """Where a text stands: on from the place that is known of its longest beginning."""
        known = next(size for size in range(len(tokens), -1, -1) if tokens[:size].tobytes() in self._places)
        place = self._places[tokens[:known].tobytes()]
        for token in tokens[known:].tolist():
            place = self._after(place, token)
        self._places[tokens.tobytes()] = place
        return place

    def _after(self, place: ConstraintState | Closed, token: int) -> ConstraintState | Closed:
        if isinstance(place, Closed):
            return place
        return Closed(place.complete) if token in self._ends else place.after(token)

    def _restrict(self, row: np.ndarray, place: ConstraintState, left: int) -> None:
        """Forbids in the logits `(V,)` of a row what may not follow."""
        width = min(len(row), len(place.allowed))
        ends = [token for token in self._ends if token < len(row)]
        kept = row[ends] if place.complete else -np.inf
        np.copyto(row[:width], -np.inf, where=~place.allowed[:width])
        row[width:] = -np.inf
        row[[token for token in self._unsaid if token < len(row)]] = -np.inf
        row[ends] = kept
        if left <= self._last_stretch:
            if place.ending is None:
                self._warn(left)
            elif left <= len(place.ending) + _EARLY:
                self._hasten(row, place, place.ending, left)

    def _hasten(self, row: np.ndarray, place: ConstraintState, ending: Sequence[int], left: int) -> None:
        """Leaves the best tokens after which the text can still be ended, the next one of its ending, and the end."""
        fitting = [token for token in _best(row, _CANDIDATES) if self._fits(place, token, ending, left - 1)]
        if ending and len(ending) <= left:
            fitting.append(ending[0])
        if place.complete:
            fitting += [token for token in self._ends if token < len(row)]
        if not fitting and (left > 1 or self._config.num_beams == 1):
            self._warn(left)  # at the last token, beams give it up for other hypotheses
            return
        kept = row[fitting]
        row[:] = -np.inf
        row[fitting] = kept

    def _fits(self, place: ConstraintState, token: int, ending: Sequence[int], left: int) -> bool:
        """Whether a text can be ended within `left` tokens after this one, as it could before it or otherwise."""
        after = self._after(place, token)
        if isinstance(after, Closed):
            return after.well
        if len(ending) <= left and after.completes(ending):
            return True
        return after.ending is not None and len(after.ending) <= left

    def _warn(self, left: int) -> None:
        """Tells at the last token that a text may not be complete."""
        if left == 1:
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
        return f"max_new_tokens={config.max_new_tokens or DEFAULT_NEW_TOKENS}"

    def _check(self, history: History, logits: np.ndarray, places: Sequence[ConstraintState | Closed]) -> None:
        """Refuses rows that have no token left. Beams may lose some, and know when they have lost all.

        Raises:
            GenerationError: there is such a row.
        """
        if self._config.num_beams > 1 and history.num_new:
            return
        for row, place in zip(logits, places, strict=True):
            if not isinstance(place, Closed) and row.max() == -np.inf:
                raise GenerationError(self._stuck(place, history.num_new))

    def _stuck(self, place: ConstraintState, number: int) -> str:
        if not place.allowed.any() and not place.complete:
            return (
                f"{self._name} cannot be followed at place {number}: it needs letters that the vocabulary of this "
                "model lacks, as T5's lacks braces. Ask for other texts, or take another model."
            )
        return (
            f"no token can be chosen at place {number}: {self._name} allows {place}, and other rules or {self._limit} "
            "forbid that. Check bad_words_ids, suppress_tokens, min_new_tokens and no_repeat_ngram_size, and allow "
            "more new tokens."
        )


def _best(row: np.ndarray, count: int) -> list[int]:
    """The tokens with the highest logits of `(V,)`, as far as they are finite."""
    best = np.argpartition(row, -min(count, len(row)))[-count:]
    return [token for token in best.tolist() if row[token] > -np.inf]
