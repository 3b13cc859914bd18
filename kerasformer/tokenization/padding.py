"""The length to which the rows of a batch are padded."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Literal

from kerasformer.basics.arguments import check, integer, one_of, optional, sequence
from kerasformer.errors import InputError

Padding = bool | Literal["longest", "max_length", "do_not_pad"]


def padded_width(
    lengths: Sequence[int],
    padding: Padding,
    limit: int | None,
    pad_to: int | Sequence[int] | None,
    multiple: int | None,
) -> int:
    """Returns the number of tokens to which rows are padded.

    Args:
        lengths: Number of tokens of each row.
        padding: See `Tokenizer.__call__`.
        limit: Length for `"max_length"`; `None` if it is unknown.
        pad_to: See there.
        multiple: See there, `pad_to_multiple_of`.

    Raises:
        InputError: an argument is invalid or has no effect, or the rows do not fit.
    """
    padding = check("padding", padding, one_of(True, False, "longest", "max_length", "do_not_pad"))
    longest, factor = max(lengths), check("pad_to_multiple_of", multiple, optional(integer(1))) or 1
    if padding in (False, "do_not_pad"):
        if pad_to is not None or multiple is not None:
            raise InputError(
                f"pad_to and pad_to_multiple_of require padding. Received: {padding!r}. Set padding=True, or omit them"
            )
        if min(lengths) != longest:
            raise InputError(
                "all rows must have the same length without padding. Received: padding=False and texts of "
                f"{min(lengths)} to {longest} tokens. Set padding=True"
            )
        return longest
    widths = [pad_to] if isinstance(pad_to, Integral) else [] if pad_to is None else pad_to
    widths = list(check("pad_to", widths, sequence(integer(1))))
    if padding == "max_length":
        if limit is None:
            raise InputError("padding='max_length' requires max_length, because the tokenizer has no maximum length")
        if longest > limit:
            raise InputError(
                f"padding='max_length' is for rows of at most {limit} tokens. Received: a row of {longest} tokens. "
                "Set truncation=True, or a larger max_length"
            )
        widths.append(limit)
    width = min((width for width in widths if width >= longest), default=longest)
    return width + -width % factor
