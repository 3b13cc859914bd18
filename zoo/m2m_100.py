"""M2M-100: a model that translates between 100 languages, with sinusoidal positions. NLLB has the same layers.

Derived from: `bart`.
Paper: Fan et al. 2020, "Beyond English-Centric Multilingual Machine Translation", arXiv:2010.11125;
NLLB: NLLB Team 2022, "No Language Left Behind", arXiv:2207.04672. Reference: `transformers.models.m2m_100`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import SinusoidalPositions, Visibility
from kerasformer.layers.tensor import Tensor
from kerasformer.models.config import hf
from kerasformer.models.config_types import Rate, Size, TokenId
from kerasformer.models.contracts import Seq2SeqLM
from kerasformer.models.encoder_decoder import Stack
from kerasformer.models.task_models import heads
from kerasformer.zoo import bart


@dataclass(frozen=True, kw_only=True)
class M2m100Config(bart.BartBaseConfig):
    """Configuration of M2M-100; the defaults are those of `m2m100_418M`.

    Raises:
        UnsupportedConfigError: the decoder starts with the padding token, after which the reference gives tokens other
            positions in training than in generation.
    """

    model_type = "m2m_100"
    positions_follow_padding = True
    required = {
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (False,),
    }
    # LayerDrop, which only training with `transformers` uses.
    ignored = frozenset(("encoder_layerdrop", "decoder_layerdrop"))

    vocab_size: Size = hf("vocab_size", 128112)
    hidden_act: str = hf("activation_function", "relu")
    attention_dropout: Rate = hf("attention_dropout", 0.1)
    scale_embedding: bool = hf("scale_embedding", True)
    pad_token_id: TokenId = hf("pad_token_id", 1)
    bos_token_id: TokenId | None = hf("bos_token_id", 0)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 2)
    decoder_start_token_id: TokenId | None = hf("decoder_start_token_id", 2)
    forced_bos_token_id: TokenId | None = hf("forced_bos_token_id", None)
    forced_eos_token_id: TokenId | list[TokenId] | None = hf("forced_eos_token_id", None)

    def __post_init__(self) -> None:
        """Checks that the decoder does not start with padding."""
        super().__post_init__()
        if self.decoder_start_token_id == self.pad_token_id:
            raise UnsupportedConfigError(
                f"decoder_start_token_id of {self.model_type} must not be pad_token_id, since the padding token has no "
                f"position. Received: {self.pad_token_id} for both"
            )


class M2m100(bart.Bart):
    """M2M-100 without head.

    The vectors of positions start with the row after `pad_token_id`. The padding token has the vector 0; in the
    encoder, it does not count as a position.
    """

    config_type = M2m100Config
    architecture_prefix = "M2M100"
    learned_positions = False
    embedding_norm = False
    order = "pre_norm"
    final_norm = True
    # Ignored: the sinusoids of older files, besides what BART ignores.
    names = replace(bart.Bart.names, ignored=(*bart.Bart.names.ignored, r"(encoder|decoder)\.embed_positions\.weights"))

    def make_positions(self, stack: Stack) -> SinusoidalPositions:
        """Creates the sinusoids, see `EncoderDecoder.make_positions`."""
        config, offset = self.config, self.config.pad_token_id + 1
        return SinusoidalPositions(
            config.max_length + offset,
            config.hidden_dim,
            interleaved=False,
            endpoint=True,
            zero_row=config.pad_token_id,
            name=f"{stack}_positions",
        )

    def position_rows(self, stack: Stack, ids: Tensor, visibility: Visibility) -> Tensor:
        """Returns the rows of the sinusoids, see `EncoderDecoder.position_rows`."""
        pad = self.config.pad_token_id
        real = ops.cast(ids != pad, "int32")
        if stack == "decoder" or visibility.positions is not None:
            return (visibility.query_positions(ops.shape(ids)[1]) + 1) * real + pad
        if visibility.key_mask is not None:
            real = real * ops.cast(visibility.key_mask > 0, "int32")
        return ops.cumsum(real, axis=1) * real + pad


MODELS = heads(M2m100, Seq2SeqLM)
