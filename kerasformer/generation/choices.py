"""Choices: where a text stands in the tree of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.arguments import TEXT, Kind, check, sequence
from kerasformer.errors import GenerationError
from kerasformer.generation.constraint_state import Closed
from kerasformer.tokenization import Tokenizer


class Branch:
    """The place from which some texts go on; see `ConstraintState`.

    Each text has one way to be said, that of the tokenizer, so that beams do not hold a text several times.

    Args:
        rests: The tokens that may still come, one sequence for each text; none for a text that is complete.
        tokenizer: For messages.
    """

    def __init__(self, rests: Sequence[tuple[int, ...]], tokenizer: Tokenizer) -> None:
        self._rests, self._tokenizer = rests, tokenizer

    @property
    def complete(self) -> bool:
        """See `ConstraintState.complete`."""
        return () in self._rests

    @property
    def allowed(self) -> np.ndarray:
        """See `ConstraintState.allowed`."""
        tokens = [rest[0] for rest in self._rests if rest]
        allowed = np.zeros(max(tokens, default=-1) + 1, bool)
        allowed[tokens] = True
        return allowed

    @property
    def ending(self) -> Sequence[int]:
        """See `ConstraintState.ending`; the fewest tokens."""
        return min(self._rests, key=len)

    def after(self, token: int) -> Branch | Closed:
        """See `ConstraintState.after`."""
        rests = [rest[1:] for rest in self._rests if rest[:1] == (token,)]
        return Branch(rests, self._tokenizer) if rests else Closed(well=False)

    def completes(self, tokens: Sequence[int]) -> bool:
        """See `ConstraintState.completes`."""
        return tuple(tokens) in self._rests

    def __str__(self) -> str:
        texts = {repr(self._tokenizer.decode(rest[:1])) if rest else "the end" for rest in self._rests}
        return " or ".join(sorted(texts))


_CHOICES = Kind("a list of texts, none of them empty", sequence(TEXT.where(bool, "a text"), least=1).convert)


def begin(choices: Any, tokenizer: Tokenizer) -> Branch:
    """The place before the first token.

    Args:
        choices: Texts.
        tokenizer: Of the model.
    Raises:
        GenerationError: no texts, or one that the tokenizer cannot say as it is.
    """
    texts = check("choices", choices, _CHOICES, error=GenerationError)
    tokens = [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    for text, said in zip(texts, tokens, strict=True):
        read = tokenizer.decode(said, skip_special_tokens=True)
        if not said or read.strip() != text.strip():
            raise GenerationError(
                "a choice cannot be said with the tokens of this model: they lack a letter, or the tokenizer changes "
                f"it. Expected: {text!r}. Received: {read!r}."
            )
    return Branch(tokens, tokenizer)
