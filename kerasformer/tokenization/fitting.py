"""Checks that a tokenizer and a model have matching vocabularies."""

from __future__ import annotations

import numpy as np

from kerasformer.errors import TokenizerError
from kerasformer.tokenization.tokenizer import Tokenizer


def vocabulary_warning(tokenizer: Tokenizer | None, vocab_size: int) -> str | None:
    """Returns a warning if the tokenizer has more tokens than the model, otherwise `None`."""
    if tokenizer is None or not 0 < vocab_size < tokenizer.vocab_size:
        return None
    return (
        f"The tokenizer has {tokenizer.vocab_size} tokens, but the model has {vocab_size}: texts with other tokens "
        "will raise an error. Use the tokenizer that the model was trained with"
    )


def check_known(ids: np.ndarray, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Checks that all tokens of a batch are in the vocabulary of the model.

    Args:
        ids: `(B, T)` token ids.
        tokenizer: Tokenizer of the model.
        vocab_size: Vocabulary size of the model; 0 if it is unknown.
    Raises:
        TokenizerError: an id outside the vocabulary of the model.
    """
    if vocab_size and ids.size and (highest := int(ids.max())) >= vocab_size:
        raise TokenizerError(
            f"A text contains a token that the model lacks: {tokenizer.id_to_token(highest)!r} with the id {highest}. "
            f"Expected ids below {vocab_size}, the vocabulary size. Received: a tokenizer of {tokenizer.vocab_size} "
            "tokens. Use the tokenizer that the model was trained with"
        )
