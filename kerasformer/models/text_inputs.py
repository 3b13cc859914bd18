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
            model whose field is 0 does not take the array, and one whose field is 1 has it in no bundle; `None` and a
            missing field set no limit.
        exported: Bundles and pipelines have the array; otherwise only callers of the Keras model may pass it.
    """

    name: str
    argument: str
    values: int | str
    exported: bool = True

    def in_bundles(self, config: Any) -> bool:
        """Whether bundles and pipelines of a model with this configuration have the array."""
        return self.exported and self.count(config) != 1

    def count(self, config: Any) -> int | None:
        """Number of values that an entry may have, `None` without a limit."""
        return getattr(config, self.values, None) if isinstance(self.values, str) else self.values


INPUT_IDS = TextInput("input_ids", "ids", "vocab_size")
ATTENTION_MASK = TextInput("attention_mask", "attention_mask", 2)
TOKEN_TYPE_IDS = TextInput("token_type_ids", "segments", "num_segments")
POSITION_IDS = TextInput("position_ids", "positions", "longest_text", exported=False)
OFFSET_POSITION_IDS = TextInput("position_ids", "positions", "num_positions", exported=False)
"""Rows of a position table that has `num_positions` rows, the first of which belong to padding (RoBERTa)."""
GLOBAL_ATTENTION_MASK = TextInput("global_attention_mask", "global_mask", 2, exported=False)
"""1 for tokens that see all tokens and are seen by all in spite of a sliding window."""
TEXT = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)
"""What a tokenizer makes of a text."""
