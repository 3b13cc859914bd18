"""Encoders with a sliding attention window and global tokens: which tokens are global, and their maximum number.

Shape letters: `B` batch, `T` length of the text.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.layers import Visibility
from kerasformer.layers.layer_types import LayerArguments, Outputs
from kerasformer.layers.tensor import Tensor, is_concrete
from kerasformer.models.contracts import EncoderModel
from kerasformer.models.text_inputs import GLOBAL_ATTENTION_MASK

MAX_GLOBAL_TOKENS = 64
"""Default maximum number of global tokens in a text; nearly all questions have fewer tokens."""


def layer_windows(attention_window: int | list[int], num_layers: int) -> list[int]:
    """Returns the number of tokens in the attention window of each layer, half of them on each side.

    Raises:
        UnsupportedConfigError: a window is not even, or there is not one window for each layer.
    """
    windows = attention_window if isinstance(attention_window, list) else [attention_window] * num_layers
    if any(window < 2 or window % 2 for window in windows) or len(windows) != num_layers:
        raise UnsupportedConfigError(
            "attention_window must be a positive even number of tokens, or a list of one for each layer. "
            f"Expected: {num_layers} numbers. Received: {attention_window}"
        )
    return windows


class GlobalTokenModel(EncoderModel):
    """Encoder with an input `global_attention_mask` `(B, T)`, 1 for tokens that attend to and are seen by all tokens.

    The number of global tokens is limited to `config.max_global_tokens`, because graphs have static shapes. An eager
    call raises an error for a text with more; a graph, which cannot raise, returns NaN.

    Raises:
        InputError: a text has more global tokens than the maximum.
    """

    def default_global_mask(self, ids: Tensor) -> Tensor | None:
        """Returns the default mask of texts `(B, T)`, int32 `(B, T)`; `None` for no global tokens."""
        return None

    def global_mask(self, arrays: Mapping[str, Tensor]) -> Tensor | None:
        """Returns the mask of global tokens without padding, int32 `(B, T)`; `None` for no global tokens."""
        given, real = arrays.get(GLOBAL_ATTENTION_MASK.name), arrays.get("attention_mask")
        mask = self.default_global_mask(arrays["input_ids"]) if given is None else given
        return mask if mask is None or real is None else mask * real

    def global_token_limit(self, arrays: Mapping[str, Tensor]) -> int:
        """Returns the maximum number of global tokens in a text."""
        return int(self.config.max_global_tokens or MAX_GLOBAL_TOKENS)

    def backbone_arguments(self, arrays: Mapping[str, Tensor], every_token: bool) -> LayerArguments:
        """Returns all inputs that the caller passed, and a visibility with the global tokens."""
        mask, limit = self.global_mask(arrays), self.global_token_limit(arrays)
        if mask is not None and is_concrete(mask):
            count = int(ops.max(ops.sum(mask, axis=1)))
            if count > limit:
                raise InputError(
                    "A text has more global tokens than the model's maximum. Pass a global_attention_mask with fewer, "
                    f"or set max_global_tokens in the config. Expected: at most {limit}. Received: {count}"
                )
        visibility = Visibility(key_mask=arrays.get("attention_mask"), global_mask=mask, max_global_tokens=limit)
        return super().backbone_arguments(arrays, every_token) | {"visibility": visibility}

    def answer(self, states: Outputs, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """Returns the output of the head; in a graph, NaN for texts with too many global tokens."""
        output = super().answer(states, inputs, training)
        mask, limit = self.global_mask(inputs), self.global_token_limit(inputs)
        if mask is None or is_concrete(mask) or limit >= (mask.shape[1] or limit + 1):
            return output
        invalid = ops.where(ops.sum(mask, axis=1) > limit, float("nan"), 0.0)
        return output + ops.cast(ops.reshape(invalid, (-1, *[1] * (len(output.shape) - 1))), output.dtype)


class FirstTokenGlobal(GlobalTokenModel):
    """Model whose first token is global by default, since its classifier uses that token."""

    def default_global_mask(self, ids: Tensor) -> Tensor:
        """Returns 1 for the first token."""
        first = ops.cast(ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), 0), "int32")
        return ops.zeros_like(ids) + first

    def global_token_limit(self, arrays: Mapping[str, Tensor]) -> int:
        """Returns 1 unless the caller passes a mask."""
        return super().global_token_limit(arrays) if GLOBAL_ATTENTION_MASK.name in arrays else 1


class QuestionGlobal(GlobalTokenModel):
    """Model for which the tokens of the question, those before the first separator, are global by default."""

    def default_global_mask(self, ids: Tensor) -> Tensor:
        """Returns 1 for the tokens before the first separator; a text without separator has no global tokens."""
        separators = ops.cast(ops.equal(ids, self.config.sep_token_id), "int32")
        before = ops.cast(ops.equal(ops.cumsum(separators, axis=1), 0), "int32")
        return before * ops.max(separators, axis=1, keepdims=True)
