"""Encoders whose positions start after the id of the padding token: RoBERTa and models derived from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder, EncoderConfig
from kerasformer.models.text_inputs import OFFSET_POSITION_IDS, TEXT, TextInput


@dataclass(frozen=True, kw_only=True)
class OffsetConfig(EncoderConfig):
    """Configuration of an encoder whose position table has rows for padding.

    Attributes:
        num_positions: Number of rows of the position table, including those up to the id of the padding token.

    Raises:
        UnsupportedConfigError: no row of the position table remains for a text.
    """

    positions_follow_padding = True

    num_positions: Size = hf("max_position_embeddings", 512)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    pad_token_id: TokenId = hf("pad_token_id", 1)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)

    def __post_init__(self) -> None:
        """Checks that texts have positions."""
        super().__post_init__()
        if self.max_length < 1:
            raise UnsupportedConfigError(
                "The positions of a text start after the id of the padding token. Expected: max_position_embeddings "
                f"greater than pad_token_id + 1. Received: max_position_embeddings={self.num_positions}, "
                f"pad_token_id={self.pad_token_id}"
            )

    @property
    def max_length(self) -> int:
        """Maximum length of a text in tokens."""
        return self.num_positions - self.pad_token_id - 1


class OffsetEncoder(BidirectionalEncoder):
    """Base of encoder backbones whose positions start after the id of the padding token.

    Padding has the position `pad_token_id`, and the tokens of a text have `pad_token_id + 1` and the following.
    """

    input_arrays: ClassVar[tuple[TextInput, ...]] = (*TEXT, OFFSET_POSITION_IDS)

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates the embeddings, see `BidirectionalEncoder.make_embeddings`."""
        config = self.config
        return super().make_embeddings(max_length=config.num_positions, padding_id=config.pad_token_id, **options)
