"""A smaller model that guesses what a larger one will say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasformer.decoding import Step
from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer

Opener = Callable[[Any], tuple[Step, Tokenizer | None]]
"""From what a caller names to its engine, and its tokenizer if that is known."""


def assistant_of(source: Any, tokenizer: Tokenizer | None, opener: Opener) -> Step | None:
    """The engine of an assistant.

    Args:
        source: What the caller gave; `None` for no assistant.
        tokenizer: Of the model that it assists, `None` if that has none.
        opener: Opens it.
    Raises:
        TokenizerError: the two do not spell tokens alike, so that guesses would be of other words.
    """
    if source is None:
        return None
    step, theirs = opener(source)
    if tokenizer is not None and theirs is not None:
        _check_alike(tokenizer.get_vocab(), theirs.get_vocab())
    return step


def _check_alike(own: dict[str, int], theirs: dict[str, int]) -> None:
    if own == theirs:
        return
    token = min((token for token in own.keys() | theirs.keys() if own.get(token) != theirs.get(token)), key=str)
    raise TokenizerError(
        f"An assistant must have the tokens of the model that it assists. Expected: {len(own)} tokens, with {token!r} "
        f"as {own.get(token)}. Received: {len(theirs)} tokens, with {token!r} as {theirs.get(token)}. "
        "Take a smaller model of the same family."
    )
