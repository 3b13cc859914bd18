"""The constraint `choices`: the new text is one of several given texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.basics.arguments import TEXT, Kind, check, sequence
from kerasformer.errors import GenerationError
from kerasformer.generation.constraint_state import EndedState
from kerasformer.tokenization import Tokenizer


class ChoiceState:
    """State of the constraint `choices`; see `ConstraintState`.

    Only one tokenization of each text is allowed, so that beams do not contain the same text several times.

    Args:
        remaining: Remaining tokens of each text that is still possible; empty for a text that is complete.
        tokenizer: Decodes tokens for messages.
    """

    def __init__(self, remaining: Sequence[tuple[int, ...]], tokenizer: Tokenizer) -> None:
        self._remaining, self._tokenizer = remaining, tokenizer

    @property
    def complete(self) -> bool:
        """See `ConstraintState.complete`."""
        return () in self._remaining

    @property
    def allowed(self) -> np.ndarray:
        """See `ConstraintState.allowed`."""
        tokens = [tokens[0] for tokens in self._remaining if tokens]
        allowed = np.zeros(max(tokens, default=-1) + 1, bool)
        allowed[tokens] = True
        return allowed

    @property
    def ending(self) -> Sequence[int]:
        """See `ConstraintState.ending`; always the shortest ending."""
        return min(self._remaining, key=len)

    def after(self, token: int) -> ChoiceState | EndedState:
        """See `ConstraintState.after`."""
        remaining = [tokens[1:] for tokens in self._remaining if tokens[:1] == (token,)]
        return ChoiceState(remaining, self._tokenizer) if remaining else EndedState(valid=False)

    def completes(self, tokens: Sequence[int]) -> bool:
        """See `ConstraintState.completes`."""
        return tuple(tokens) in self._remaining

    def __str__(self) -> str:
        texts = {repr(self._tokenizer.decode(tokens[:1])) if tokens else "the end" for tokens in self._remaining}
        return " or ".join(sorted(texts))


_CHOICES = Kind("a list of non-empty texts", sequence(TEXT.where(bool, "a text"), least=1).convert)


def initial_state(choices: object, tokenizer: Tokenizer) -> ChoiceState:
    """Returns the state before the first token.

    Args:
        choices: Texts, one of which is generated.
        tokenizer: Tokenizer of the model.
    Raises:
        GenerationError: no texts, or a text that the tokenizer cannot represent without changes.
    """
    texts = check("choices", choices, _CHOICES, error=GenerationError)
    sequences = [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    for text, tokens in zip(texts, sequences, strict=True):
        decoded = tokenizer.decode(tokens, skip_special_tokens=True)
        if not tokens or decoded.strip() != text.strip():
            raise GenerationError(
                "a choice cannot be generated with the vocabulary of this model: a character is missing, or the "
                f"tokenizer changes the text. Expected: {text!r}. Received: {decoded!r}."
            )
    return ChoiceState(sequences, tokenizer)
