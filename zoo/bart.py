"""BART: an encoder-decoder pretrained to restore corrupted text, for summarization and classification.

Derived from: the Transformer.
Paper: Lewis et al. 2019, "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation,
Translation, and Comprehension", arXiv:1910.13461. Reference: `transformers.models.bart`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import ProjectingModel, Seq2SeqLM
from kerasformer.models.encoder_decoder import COPIES, EncoderDecoder, bart_rows
from kerasformer.models.layouts import Stacked
from kerasformer.models.task_models import (
    Seq2SeqClassification,
    Seq2SeqFeatures,
    Seq2SeqFillMask,
    Seq2SeqQuestionAnswering,
    heads,
    heads_like,
)
from kerasformer.models.weight_table import Names, Row


@dataclass(frozen=True, kw_only=True)
class BartBaseConfig(Config):
    """Settings that the configurations of BART and of architectures derived from it have in common."""

    max_length: Size = hf("max_position_embeddings", 1024)
    hidden_dim: Size = hf("d_model", 1024, "hidden_size")
    num_layers: Layers = hf("encoder_layers", 12, "num_hidden_layers")
    num_decoder_layers: Layers = hf("decoder_layers", 12)
    num_heads: Size = hf("encoder_attention_heads", 16, "num_attention_heads")
    decoder_num_heads: Size = hf("decoder_attention_heads", 16)
    intermediate_dim: Size = hf("encoder_ffn_dim", 4096)
    decoder_intermediate_dim: Size = hf("decoder_ffn_dim", 4096)
    hidden_act: str = hf("activation_function", "gelu")
    dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    activation_dropout: Rate = hf("activation_dropout", 0.0)
    initializer_range: Deviation = hf("init_std", 0.02)
    scale_embedding: bool = hf("scale_embedding", False)
    tied: bool = hf("tie_word_embeddings", True)


@dataclass(frozen=True, kw_only=True)
class BartConfig(BartBaseConfig):
    """Configuration of BART; the defaults are those of `bart-large`."""

    model_type = "bart"
    required = {
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "static_position_embeddings": (False,),
    }
    # LayerDrop, which only training with `transformers` uses, and keys of older files.
    ignored = frozenset(
        """encoder_layerdrop decoder_layerdrop add_bias_logits extra_pos_embeddings
        force_bos_token_to_be_generated""".split()
    )

    vocab_size: Size = hf("vocab_size", 50265)
    head_dropout: Rate = hf("classifier_dropout", 0.0, "classif_dropout")
    pad_token_id: TokenId | None = hf("pad_token_id", 1)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 2)
    forced_bos_token_id: TokenId | None = hf("forced_bos_token_id", None)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", 2)
    id2label: dict[int, str] = hf("id2label", {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})


class Bart(EncoderDecoder):
    """BART without head; the first two rows of its position tables are unused."""

    config_type: ClassVar[type[BartBaseConfig]] = BartConfig
    learned_positions = True
    position_offset = 2
    embedding_norm = True
    # Ignored: a buffer of older files.
    names = Names("model.", ignored=(r"(encoder|decoder)\.version",), copies=COPIES, tokens="shared.weight")

    @property
    def decoder_vocab_size(self) -> int | None:
        """Size of the decoder's token embeddings, which are separate in untied models, as in `transformers` 5."""
        return None if self.config.tied else self.config.vocab_size

    @property
    def embedding_scale(self) -> float:
        """Factor of the token embeddings at the input."""
        return math.sqrt(self.config.hidden_dim) if self.config.scale_embedding else 1.0

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        return bart_rows(self)


class _BiasedHead(ProjectingModel):
    """A language modelling head with a bias."""

    head_table = (*ProjectingModel.head_table, Row(("bias",), "final_logits_bias", layout=Stacked(), optional=True))

    def head_options(self) -> LayerArguments:
        """Returns further arguments of `LMHead`."""
        return {**super().head_options(), "use_bias": True, "train_bias": False}


class BartSeq2SeqLM(_BiasedHead, Seq2SeqLM, backbone=Bart):
    """BART for text-to-text generation, such as summarization."""


class BartFillMask(_BiasedHead, Seq2SeqFillMask, backbone=Bart):
    """BART for masked words, see `Seq2SeqFillMask`."""


SHARED = heads(Bart, BartSeq2SeqLM, Seq2SeqFeatures, Seq2SeqClassification, Seq2SeqQuestionAnswering)
MODELS = heads_like(SHARED, Bart, BartFillMask)
