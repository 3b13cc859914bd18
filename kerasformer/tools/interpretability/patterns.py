"""Which tokens see which, and how positions enter a score: as the layers of this package compute it.

masks = visible_keys(24)
draw_masks(masks, "masks.png")
draw_positions(position_values(), "positions.png")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.basics.arguments import check, integer, number, sequence
from kerasformer.errors import InputError
from kerasformer.extras import require

if TYPE_CHECKING:
    from kerasformer.layers import SparseBlocks, Visibility
    from kerasformer.tools.viz.patterns import PositionValues


def visible_keys(
    length: int = 24, window: int = 3, prefix: int = 6, block: int = 2, random_blocks: int = 1
) -> dict[str, np.ndarray]:
    """Returns which keys each query sees, by the name of the pattern.

    Args:
        length: Number `T` of tokens.
        window: Tokens that a token sees on each side, or itself and those before it if it is causal.
        prefix: Number of first tokens that all tokens of a prefix language model see, in both directions.
        block: Number of tokens in a block of BigBird.
        random_blocks: Number of random blocks of each block; `T` must be more than the tokens of
            `5 + 2 * random_blocks` blocks.

    Returns:
        Boolean `(T, T)`, a row for each query: `full`, `causal`, `prefix` (UniLM, T5's prefix language model),
        `causal window` (Mistral, Gemma), `window` (ModernBERT), `window and global` (Longformer, whose first token is
        global here), `blocks` (BigBird in evaluation) and `random blocks` (BigBird in training).

    Raises:
        InputError: an invalid number, or a text that is too short for its blocks.
        MissingExtraError: Keras is not installed.
    """
    require("keras", "tensorflow")
    from kerasformer.layers import SparseBlocks, Visibility

    length, window = check("length", length, integer(2)), check("window", window, integer(1))
    prefix, block = check("prefix", prefix, integer(0)), check("block", block, integer(1))
    blocks = SparseBlocks(block, check("random_blocks", random_blocks, integer(0)), length)
    if length <= blocks.full_length:
        raise InputError(
            f"The text is too short for its blocks: all tokens would see each other. Expected: length above "
            f"{blocks.full_length}. Received: length={length}, block={block}, random_blocks={random_blocks}"
        )
    every = np.arange(length)
    first = np.zeros((1, length), np.int32)
    first[0, 0] = 1
    both = (every[None] <= every[:, None]) | (every[None] < prefix)
    text = Visibility.of_text(length)
    patterns = {
        "full": np.ones((length, length), bool),
        "causal": _seen(Visibility.of_text(length, causal=True)),
        "prefix": _seen(Visibility(causal=False, mask=both[None, None])),
        "causal window": _seen(Visibility.of_text(length, causal=True), window),
        "window": _seen(text, window),
        "window and global": _seen(Visibility.of_text(length, global_mask=first), window),
    }
    for name, training in (("blocks", False), ("random blocks", True)):
        patterns[name] = _seen_blocks(blocks, training)
    return patterns


def position_values(
    length: int = 48, size: int = 32, num_heads: int = 8, bases: Sequence[float] = (1e4, 1e6)
) -> PositionValues:
    """Returns how the three kinds of positions without a table of learned vectors look.

    Args:
        length: Number of positions.
        size: Size of a sinusoidal vector; even. A head with rotary positions has twice this size.
        num_heads: Number of heads with linear biases.
        bases: Bases of the rotary frequencies, at most three: 10,000 of GPT-J and LLaMA, 1,000,000 of Qwen 2.

    Raises:
        InputError: an invalid number, or more than three bases.
        MissingExtraError: Keras is not installed.
    """
    require("keras", "tensorflow")
    from kerasformer.layers import Rotary, alibi_bias, sinusoids
    from kerasformer.tools.viz.patterns import PositionValues

    length, num_heads = check("length", length, integer(1)), check("num_heads", num_heads, integer(1))
    size = check("size", size, integer(2).where(lambda value: value % 2 == 0, "an even integer of at least 2"))
    several = sequence(number(above=0), least=1)
    bases = check("bases", bases, several.where(lambda values: len(values) <= 3, "one to three numbers above 0"))
    distances = np.arange(6 * length)
    frequencies = {base: Rotary(dim=2 * size, base=base).frequencies() for base in bases}
    every = np.arange(length, dtype="int32")
    return PositionValues(
        sinusoids=sinusoids(length, size),
        distances=distances,
        rotary={base: np.cos(distances[:, None] * rates).mean(axis=1) for base, rates in frequencies.items()},
        alibi=np.asarray(alibi_bias(num_heads, every, every))[0],
    )


def _seen(visibility: Visibility, window: int | None = None) -> np.ndarray:
    mask = np.asarray(visibility.boolean(window))
    return np.broadcast_to(mask, (1, 1, *mask.shape[-2:]))[0, 0]


def _seen_blocks(blocks: SparseBlocks, training: bool) -> np.ndarray:
    """Returns which weights of BigBird's attention are not 0: the layer has no mask of its own."""
    from kerasformer.layers import BlockSparseAttention

    layer = BlockSparseAttention(1, 4, blocks=blocks)
    states = layer(np.ones((1, blocks.max_length, 4), "float32"), training=training, return_attention=True)
    return np.asarray(states["attention"])[0, 0] > 0
