"""The integer arrays that describe a text to a model, one value for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextInput:
    """An array of integers `(B, T)`, one for each token, that a model takes.

    A backbone lists its arrays in `Backbone.inputs`; checks, exports and pipelines read that list. An array that a
    caller leaves out has the default of the backbone, and is 0 in a bundle (`attention_mask`: 1).

    Attributes:
        name: Key in the dictionary of inputs, the name of Hugging Face.
        argument: Argument of the backbone's call.
        values: Number of values that an entry may have: a number, or the name of a field of the configuration. A
            model whose field is 0 does not take the array; `None` and a missing field set no limit.
        exported: Bundles and pipelines have the array; otherwise only callers of the Keras model may pass it.
    """

    name: str
    argument: str
    values: int | str
    exported: bool = True

    def count(self, config: Any) -> int | None:
        """Number of values that an entry may have, `None` without a limit."""
        return getattr(config, self.values, None) if isinstance(self.values, str) else self.values


INPUT_IDS = TextInput("input_ids", "ids", "vocab_size")
ATTENTION_MASK = TextInput("attention_mask", "attention_mask", 2)
TOKEN_TYPE_IDS = TextInput("token_type_ids", "segments", "num_segments")
POSITION_IDS = TextInput("position_ids", "positions", "longest_text", exported=False)
