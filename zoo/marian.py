"""Marian: an encoder-decoder for translation, trained with Marian NMT, such as the models of OPUS-MT.

Derived from: the Transformer.
Paper: Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++", arXiv:1804.00344.
Reference: `transformers.models.marian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import keras

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import SinusoidalPositions
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder_decoder import COPIES, EncoderDecoder, Stack, bart_rows
from kerasformer.models.task_models import Seq2SeqFeatures, heads
from kerasformer.models.weight_table import Names, Row, sinusoid_table
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class MarianConfig(bart.BartBaseConfig):
    """Configuration of Marian; the defaults are those of the reference class.

    Attributes:
        shared: Whether encoder and decoder share a vocabulary and its embeddings.
        decoder_vocab_size: Number of tokens of the decoder, if it has a vocabulary of its own.
    """

    model_type = "marian"
    required = {
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "static_position_embeddings": (True,),
        "add_cross_attention": (False,),
        "tie_encoder_decoder": (False,),
    }
    # LayerDrop, which only training with `transformers` uses, and keys of older files without effect.
    ignored = frozenset(
        """encoder_layerdrop decoder_layerdrop classifier_dropout classif_dropout add_bias_logits
        extra_pos_embeddings""".split()
    )
    same_as = {"decoder_vocab_size": "vocab_size"}

    vocab_size: Size = hf("vocab_size", 58101)
    decoder_vocab_size: Size | None = hf("decoder_vocab_size", None)
    shared: bool = hf("share_encoder_decoder_embeddings", True)
    pad_token_id: TokenId | None = hf("pad_token_id", 58100)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 0)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 58100)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", 0)


class Marian(EncoderDecoder):
    """Marian without head."""

    config_type = MarianConfig
    # Ignored: the shared table of models that share none.
    names = Names("model.", ignored=(r"shared\.weight",), copies=COPIES, tokens="shared.weight")

    @property
    def decoder_vocab_size(self) -> int | None:
        """Size of the decoder's token embeddings, which are separate for two vocabularies and in untied models."""
        config = self.config
        return None if config.shared and config.tied else config.decoder_vocab_size

    @classmethod
    def tied_tables(cls, config: MarianConfig) -> dict[str, str]:
        """See `Backbone.tied_tables`."""
        return super().tied_tables(config) if config.shared else {}

    @property
    def embedding_scale(self) -> float:
        """Factor of the token embeddings at the input."""
        return math.sqrt(self.config.hidden_dim) if self.config.scale_embedding else 1.0

    def make_positions(self, stack: Stack) -> SinusoidalPositions:
        """Creates the sinusoids, where all sines precede all cosines."""
        sizes = self.config.max_length, self.config.hidden_dim
        return SinusoidalPositions(*sizes, interleaved=False, name=f"{stack}_positions")

    def rows(self) -> list[Row]:
        """Returns the weight table, which includes the tables of sinusoids that checkpoints may have."""
        config = self.config
        rows = [row for row in bart_rows(self) if config.shared or not row.copy]
        sizes = config.max_length, config.hidden_dim
        return rows + [sinusoid_table(f"{stack}.embed_positions.weight", *sizes) for stack in self.layer_counts]


class MarianSeq2SeqLM(bart.BartSeq2SeqLM, backbone=Marian):
    """Marian for translation."""

    architecture = "MarianMTModel"

    @classmethod
    def tied_tensor(cls, config: MarianConfig) -> str:
        """See `Seq2SeqLM.tied_tensor`."""
        return super().tied_tensor(config) if config.shared else "decoder.embed_tokens.weight"


class MarianFeatures(Seq2SeqFeatures, backbone=Marian):
    """Marian for feature extraction: hidden states of the decoder, which reads the same text as the encoder.

    Raises:
        UnsupportedConfigError: encoder and decoder have separate vocabularies.
    """

    def make_backbone(self) -> keras.layers.Layer:
        """Creates the backbone."""
        if not self.config.shared:
            raise UnsupportedConfigError(
                "Features need one vocabulary, since the decoder reads the same text as the encoder. "
                "Expected: share_encoder_decoder_embeddings=True. Received: False"
            )
        return super().make_backbone()


MODELS = heads(Marian, MarianSeq2SeqLM, MarianFeatures)
