"""Objectives of decoders: the next token of a text, of the rest of a text, and of a translation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tools.training.objectives.batches import (
    IGNORED,
    Batch,
    Text,
    Texts,
    as_texts,
    padded,
    teacher_forcing,
    text_batch,
)
from kerasformer.tools.training.objectives.vocabulary import Vocabulary


def causal(texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator | None = None) -> Batch:
    """Causal language modelling: each position predicts the next token.

    A text gets its special tokens and the end token. The inputs omit the last token, and the labels omit the first.

    Args:
        texts: Token ids without special tokens.
        vocabulary: The vocabulary.
        rng: Not used; all objectives have the same arguments.

    Returns:
        `input_ids`, `attention_mask` and `labels`, `(B, T)`.

    Raises:
        InputError: a text without tokens.

    Reference: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.1.
    """
    rows = [_with_end(text, vocabulary) for text in as_texts(texts, vocabulary)]
    return {**text_batch([row[:-1] for row in rows], vocabulary), "labels": padded([row[1:] for row in rows], IGNORED)}


def prefix_lm(texts: Texts, vocabulary: Vocabulary, rng: np.random.Generator) -> Batch:
    """Prefix language modelling: the rest of a text is predicted from a start of random length.

    The encoder of an encoder-decoder reads the prefix, and the decoder writes the rest. A decoder-only model reads
    both; `prefix_mask` is 1 for the prefix, whose tokens see each other in a `PackedModel`, and only the rest counts.

    Args:
        texts: Token ids without special tokens, at least two of each text.
        vocabulary: The vocabulary.
        rng: Random number generator.

    Returns:
        The arrays of `teacher_forcing`; or `input_ids`, `attention_mask`, `prefix_mask` and `labels`, `(B, T)`.

    Raises:
        InputError: a text with fewer than two tokens.

    Reference: Raffel et al. 2020, arXiv:1910.10683, sections 3.2.1 and 3.3.1.
    """
    rows = as_texts(texts, vocabulary)
    if min(map(len, rows)) < 2:
        raise InputError("A prefix and its rest need two tokens. Received: a text with one token")
    cuts = [int(rng.integers(1, len(row))) for row in rows]
    if vocabulary.encoder_decoder:
        pairs = list(zip(rows, cuts, strict=True))
        return teacher_forcing([row[:cut] for row, cut in pairs], [row[cut:] for row, cut in pairs], vocabulary)
    batch = causal(rows, vocabulary)
    slots = np.arange(batch["input_ids"].shape[1])
    lengths = np.reshape(cuts, (-1, 1)) + len(vocabulary.single[0])
    # The last token of the prefix predicts the first one of the rest.
    batch["labels"] = np.where(slots >= lengths - 1, batch["labels"], IGNORED).astype("int32")
    return {**batch, "prefix_mask": (slots < lengths).astype("int32")}


def translation(
    pairs: Sequence[tuple[Text, Text]], vocabulary: Vocabulary, rng: np.random.Generator | None = None
) -> Batch:
    """Translation, summarization, and any other text that an encoder-decoder writes for a text.

    The loss of the paper is `kerasformer.layers.SmoothedCrossentropy(0.1)`.

    Args:
        pairs: Token ids of source and target without special tokens.
        vocabulary: The vocabulary.
        rng: Not used; all objectives have the same arguments.

    Returns:
        `input_ids` and `attention_mask` `(B, M)`; `decoder_input_ids`, `decoder_attention_mask` and `labels` `(B, T)`.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, sections 3.1 and 5.4.
    """
    sources, targets = zip(*pairs, strict=True) if len(pairs) else ((), ())
    return teacher_forcing(as_texts(sources, vocabulary), as_texts(targets, vocabulary), vocabulary)


def _with_end(text: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Returns a text with its special tokens and the end token, unless it ends with that."""
    ids, _ = vocabulary.framed(text)
    end = vocabulary.end_id
    return ids if end is None or (vocabulary.single[1] and ids[-1] == end) else np.append(ids, np.int32(end))
