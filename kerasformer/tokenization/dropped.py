"""Characters that pruning removed from a vocabulary, and that texts must not contain."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from kerasformer.errors import InputError
from kerasformer.tokenization.vocabulary import Vocabulary

_SHOWN = 10
"""Maximum number of characters in an error message."""


def check_dropped(
    vocabulary: Vocabulary, dropped: frozenset[str], given: object, encoding: tokenizers.Encoding, split: bool
) -> None:
    """Checks that no unknown token of a text contains characters that were removed from the vocabulary.

    Args:
        vocabulary: The vocabulary.
        dropped: The characters.
        given: The text, or a pair of texts.
        encoding: Its encoding.
        split: Whether a text is a list of words.

    Raises:
        InputError: it does; the message contains these characters.
    """
    texts, parts = given if isinstance(given, tuple) else (given,), []
    tokens = zip(encoding.ids, encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
    for index, text, word, (start, end) in tokens:
        if index == vocabulary.unk_token_id and text is not None:
            parts.append((texts[text][word] if split else texts[text])[start:end])
    rules = vocabulary.backend.normalizer
    unknown = {character for part in parts for character in (part if rules is None else rules.normalize_str(part))}
    if found := sorted(unknown & dropped):
        raise removed(found)


def removed(characters: Sequence[str]) -> InputError:
    """Returns the error for a text with characters, or parts of words, that pruning removed from the vocabulary."""
    more = f" and {len(characters) - _SHOWN} more" if len(characters) > _SHOWN else ""
    return InputError(
        "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the "
        f"languages for which it was pruned. Received: {', '.join(map(repr, characters[:_SHOWN]))}{more}. Prune the "
        "original model with texts that contain them, or use that model"
    )
