"""Gemma 3: Gemma 2 with normalized queries and keys, and with rotary positions of local and global layers.

EmbeddingGemma, whose tokens attend to later ones, too, has the same architecture.

Derived from: `gemma2`.
Paper: Gemma Team 2025, "Gemma 3 Technical Report", arXiv:2503.19786; Schechter Vera et al. 2025, "EmbeddingGemma:
Powerful and Lightweight Text Representations", arXiv:2509.20354. Reference: `transformers.models.gemma3`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models.config import hf
from kerasformer.models.config_types import Deviation, Epsilon, Positive, Rate, Size
from kerasformer.models.gated_decoder import FULL, SLIDING
from kerasformer.models.rotary_config import LayerRotaryConfig
from kerasformer.models.task_models import CausalClassification, CausalFeatures, heads
from kerasformer.models.weight_table import Row, norm
from kerasformer.zoo import gemma2


@dataclass(frozen=True, kw_only=True)
class Gemma3TextConfig(gemma2.GemmaConfig, LayerRotaryConfig):
    """Configuration of Gemma 3; the defaults are those of the reference class.

    Attributes:
        bidirectional: Whether tokens attend to later tokens, too (EmbeddingGemma). A token of a local layer then sees
            half of `window_size` on each side.
        global_every: Distance between layers of the type `full_attention`, for files without `layer_types`.
        softcap: Limits the logits to this range by `softcap * tanh(logits / softcap)`; optional.
    """

    model_type = "gemma3_text"
    # The reference ignores the soft limit of attention scores.
    required = {"attn_logit_softcapping": (None,)}
    bases = {FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 1e4)}
    scaled = (FULL,)

    vocab_size: Size = hf("vocab_size", 262208)
    max_length: Size = hf("max_position_embeddings", 131072)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    softcap: Positive | None = hf("final_logit_softcapping", None)
    bidirectional: bool = hf("use_bidirectional_attention", False)
    global_every: Size = hf("sliding_window_pattern", 6, "_sliding_window_pattern")
    epsilon: Epsilon = hf("rms_norm_eps", 1e-6)
    initializer_range: Deviation = hf("initializer_range", 0.02)

    def __post_init__(self) -> None:
        """Validates that a window on both sides has tokens on each."""
        super().__post_init__()
        if self.bidirectional and self.window_size == 1:
            raise UnsupportedConfigError(
                "sliding_window must be at least 2 with use_bidirectional_attention. Received: sliding_window=1"
            )

    def default_layer_types(self) -> list[str]:
        """Returns the types of layers at equal distances, the global ones last."""
        return [SLIDING if (index + 1) % self.global_every else FULL for index in range(self.num_layers)]

    def window(self, index: int) -> int | None:
        """Returns the size of the window of a local layer; of one side, if the window has two."""
        size = super().window(index)
        return size // 2 if size and self.bidirectional else size


class Gemma3Text(gemma2.Gemma2):
    """Gemma 3 without head."""

    config_type = Gemma3TextConfig

    @property
    def causal(self) -> bool:
        """See `CausalDecoder.causal`."""
        return not self.config.bidirectional

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of grouped, normalized heads, with the window and the positions of the layer's type."""
        config = self.config
        return {
            "head_dim": config.head_dim,
            "num_key_value_heads": config.num_key_value_heads,
            "use_bias": config.attention_bias,
            "scale": config.score_scale**-0.5,
            "query_key_norm": config.epsilon,
            "rotary": config.rotary(config.layer_types[index]),
            "window": config.window(index),
        }

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the options of a gated feed-forward network."""
        return {"gated": True, "use_bias": False}

    def layer_rows(self) -> list[Row]:
        """Returns the weight table of one layer; the norms of queries and keys multiply by `1 + w`, too."""
        norms = {"attention/query_norm": "self_attn.q_norm", "attention/key_norm": "self_attn.k_norm"}
        rows = [row for path, name in norms.items() for row in norm(path, name, bias=False, offset=1.0)]
        return [*super().layer_rows(), *rows]


class Gemma3TextCausalLM(gemma2.Gemma2CausalLM, backbone=Gemma3Text):
    """Gemma 3 for text generation."""

    architecture = "Gemma3ForCausalLM"


MODELS = heads(Gemma3Text, Gemma3TextCausalLM, CausalFeatures, CausalClassification)
