"""PEGASUS: a BART with norms before its layers and sinusoidal positions, pretrained to write missing sentences.

Derived from: `bart`.
Paper: Zhang et al. 2020, "PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization",
arXiv:1912.08777. Reference: `transformers.models.pegasus`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.layers import SinusoidalPositions
from kerasformer.models.config import hf
from kerasformer.models.config_types import Size, TokenId
from kerasformer.models.encoder_decoder import Stack
from kerasformer.models.task_models import Seq2SeqFeatures, heads
from kerasformer.models.weight_table import Row, sinusoid_table
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class PegasusConfig(bart.BartBaseConfig):
    """Configuration of PEGASUS; the defaults are those of the reference class."""

    model_type = "pegasus"
    required = {
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (False,),
        "static_position_embeddings": (True,),
    }
    # What BART ignores, and the dropout of a classification head, which PEGASUS does not have.
    ignored = bart.BartConfig.ignored | {"classifier_dropout", "classif_dropout"}

    vocab_size: Size = hf("vocab_size", 50265)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 0)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", 1)


class Pegasus(bart.Bart):
    """PEGASUS without head."""

    config_type = PegasusConfig
    learned_positions = False
    position_offset = 0
    embedding_norm = False
    order = "pre_norm"
    final_norm = True

    def make_positions(self, stack: Stack) -> SinusoidalPositions:
        """Creates the sinusoids, with all sines before all cosines."""
        sizes = self.config.max_length, self.config.hidden_dim
        return SinusoidalPositions(*sizes, interleaved=False, name=f"{stack}_positions")

    def rows(self) -> list[Row]:
        """Returns the weight table, with the tables of sinusoids that checkpoints may have."""
        sizes = self.config.max_length, self.config.hidden_dim
        tables = [sinusoid_table(f"{stack}.embed_positions.weight", *sizes) for stack in self.layer_counts]
        return [*super().rows(), *tables]


MODELS = heads(Pegasus, bart.BartSeq2SeqLM, Seq2SeqFeatures)
