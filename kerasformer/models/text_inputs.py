"""Descriptions of the input arrays of models."""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.bundle import interface
from kerasformer.models.config import Config


@dataclass(frozen=True)
class TextInput:
    """Description of an input array of integers `(B, T)`, one for each token unless it has another axis.

    `Backbone.input_arrays` lists the arrays of a backbone, for validation, exports and pipelines. An array that the
    caller does not pass has the default of the backbone; in bundles it has `default` (1 for `attention_mask`).

    Attributes:
        name: Hugging Face's name, the key in the dictionary of inputs.
        argument: Name of the argument of the backbone's call.
        values: Number of valid values of an entry, or the name of a field of the configuration with that number. If the
            field is 0, the model does not have the input; if it is 1, bundles do not have it. A missing field or
            `None` sets no limit.
        exported: Whether bundles and pipelines have the input; otherwise only the Keras model has it.
        default: Entry in bundles if the caller does not pass the array: 0, or -1 if nothing is added for such a token.
        axis: Name of the second axis if it is not that of the tokens. Such an array must be passed, and `default` is
            its padding.
    """

    name: str
    argument: str
    values: int | str | None
    exported: bool = True
    default: int = 0
    axis: str | None = None

    def in_bundles(self, config: Config) -> bool:
        """Whether bundles and pipelines of a model with this configuration have the input."""
        return self.exported and self.count(config) != 1

    def count(self, config: Config) -> int | None:
        """Returns the number of valid values of an entry; `None` for no limit."""
        return getattr(config, self.values, None) if isinstance(self.values, str) else self.values


INPUT_IDS = TextInput("input_ids", "ids", "vocab_size")
ATTENTION_MASK = TextInput("attention_mask", "attention_mask", 2)
TOKEN_TYPE_IDS = TextInput("token_type_ids", "segments", "num_segments")
POSITION_IDS = TextInput("position_ids", "positions", "longest_text", exported=False)
OFFSET_POSITION_IDS = TextInput("position_ids", "positions", "num_positions", exported=False)
"""Rows of a table of `num_positions` positions, the first of which are reserved for padding (RoBERTa)."""
GLOBAL_ATTENTION_MASK = TextInput("global_attention_mask", "global_mask", 2, exported=False)
"""1 for tokens that attend to all tokens and are seen by all, regardless of a sliding window."""
PREFIX_MASK = TextInput("prefix_mask", "prefix_mask", 2, exported=False)
"""1 for tokens of the prefix of a prefix language model, which attend to each other in both directions."""
WORD_SLOTS = TextInput(interface.WORD_SLOTS, interface.WORD_SLOTS, None, default=-1, axis="num_words")
"""Slot of the first token of each word `(B, W)`."""
LABEL_SLOTS = TextInput(interface.LABEL_SLOTS, interface.LABEL_SLOTS, None, default=-1, axis="num_labels")
"""Slot of the token that marks each label `(B, C)`."""
EXPANSION_MASK = TextInput(interface.EXPANSION_MASK, interface.EXPANSION_MASK, 2)
"""1 for tokens that extend a query, to which no token attends."""
TEXT = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)
"""The arrays that a tokenizer returns."""
