"""Whether a tokenizer's ids are those of a model."""

from __future__ import annotations

import numpy as np

from kerasformer.errors import TokenizerError
from kerasformer.tokenization.tokenizer import Tokenizer


def excess(tokenizer: Tokenizer | None, vocab_size: int) -> str | None:
    """A warning for a tokenizer that has more tokens than its model; `None` if it has not."""
    if tokenizer is None or not 0 < vocab_size < tokenizer.vocab_size:
        return None
    return (
        f"The tokenizer has {tokenizer.vocab_size} tokens and the model {vocab_size}: texts with one of the others are "
        "refused. Use the tokenizer that the model was trained with"
    )


def check_known(ids: np.ndarray, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuses ids of a text `(B, T)` that the model does not have.

    Args:
        ids: As the tokenizer gave them.
        tokenizer: Of the model.
        vocab_size: Tokens of the model; 0 where that is not known.
    Raises:
        TokenizerError: an id beyond them.
    """
    if vocab_size and ids.size and (highest := int(ids.max())) >= vocab_size:
        raise TokenizerError(
            f"A text has a token that the model lacks: {tokenizer.id_to_token(highest)!r}, with the id {highest}. "
            f"Expected ids below {vocab_size}, its tokens. Received: a tokenizer of {tokenizer.vocab_size} tokens. "
            "Use the tokenizer that the model was trained with"
        )
