"""Texts in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kerasformer.basics.arguments import check, integer
from kerasformer.basics.progress import CountProgress


def in_batches(
    texts: Sequence[str],
    write: Callable[[Sequence[str]], Sequence[str]],
    batch_size: int,
    progress: CountProgress | None = None,
) -> list[str]:
    """Returns a generated text for each text, in their order; texts of similar length are in the same batch.

    Args:
        texts: Input texts.
        write: Generates the texts for a batch.
        batch_size: Number of texts in one batch.
        progress: Called with the number of completed texts.
    """
    size = check("batch_size", batch_size, integer(1))
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    written: dict[int, str] = {}
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        written |= zip(rows, write([texts[row] for row in rows]), strict=True)
        if progress is not None:
            progress(len(written), len(texts))
    return [written[index] for index in range(len(texts))]
