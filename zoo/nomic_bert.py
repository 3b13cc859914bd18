"""Nomic BERT: BERT with rotary positions and gated feed-forward networks, without biases, for longer texts.

Derived from: `bert`.
Paper: Nussbaum et al. 2024, "Nomic Embed: Training a Reproducible Long Context Text Embedder", arXiv:2402.01613.
Reference: `transformers.models.nomic_bert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from kerasformer.layers import FeedForward
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import TOKENS, BidirectionalEncoder, EncoderConfig
from kerasformer.models.rotary_config import RotaryConfig
from kerasformer.models.weight_table import Names, Row, dense, norm


@dataclass(frozen=True, kw_only=True)
class RotaryEncoderConfig(RotaryConfig, EncoderConfig):
    """Base of the configurations of encoders with the layers of Nomic BERT."""

    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.1, "resid_pdrop")
    attention_dropout: Rate = hf("attention_probs_dropout_prob", 0.0, "attn_pdrop")
    classifier_dropout: Rate | None = hf("classifier_dropout", None)
    pad_token_id: TokenId | None = hf("pad_token_id", 0)

    @property
    def head_dropout(self) -> float:
        """Dropout rate before a classifier."""
        return self.hidden_dropout if self.classifier_dropout is None else self.classifier_dropout


@dataclass(frozen=True, kw_only=True)
class NomicBertConfig(RotaryEncoderConfig):
    """Configuration of Nomic BERT; the defaults are those of `nomic-embed-text-v1.5`."""

    model_type = "nomic_bert"
    default_base = 1000.0
    base_keys = ("rotary_emb_base", "rope_theta")
    # What the code of the authors can do beyond the reference.
    required = {
        **dict.fromkeys(("causal", "parallel_block", "parallel_block_tied_norm", "prenorm"), (False,)),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_interleaved"), (False,)),
        **dict.fromkeys(("use_rms_norm", "scale_attn_by_inverse_layer_idx"), (False, None)),
        **dict.fromkeys(("rotary_emb_scale_base", "rotary_scaling_factor"), (None,)),
        **{"activation_function": ("swiglu",), "rotary_emb_fraction": (1.0,), "scale_attn_weights": (True,)},
        **{"num_experts": (0, None), "moe_every_n_layers": (0, None)},
    }
    # Lengths beyond the training, kernels with equal results, and what the reference does not use.
    ignored = frozenset(
        """dense_seq_output embd_pdrop fused_bias_fc fused_dropout_add_ln last_layer_subset max_trained_positions
        n_positions pad_vocab_size_multiple reorder_and_upcast_attn summary_activation summary_first_dropout
        summary_proj_to_labels summary_type summary_use_proj use_flash_attn use_xentropy""".split()
    )

    vocab_size: Size = hf("vocab_size", 30528)
    hidden_dim: Size = hf("hidden_size", 768, "n_embd")
    num_layers: Layers = hf("num_hidden_layers", 12, "n_layer")
    num_heads: Size = hf("num_attention_heads", 12, "n_head")
    head_dim: Size | None = hf("head_dim", None)
    intermediate_dim: Size = hf("intermediate_size", 3072, "n_inner")
    hidden_act: str = hf("hidden_act", "silu")
    hidden_dropout: Rate = hf("hidden_dropout_prob", 0.0, "resid_pdrop")
    epsilon: Epsilon = hf("layer_norm_eps", 1e-12, "layer_norm_epsilon")
    max_length: Size = hf("max_position_embeddings", 2048)


class NomicBert(BidirectionalEncoder):
    """Nomic BERT without head.

    Attributes:
        biases: Whether the attention and the output of the feed-forward network have biases.
    """

    config_type: ClassVar[type[RotaryEncoderConfig]] = NomicBertConfig
    # Ignored: an unused pooler.
    names = Names(
        "nomic_bert.",
        (r"pooler\..*",),
        tokens=TOKENS,
        other_prefixes=("bert.",),
        published={
            "encoder.layers.": ("layers.",),
            "emb_ln": ("embeddings.LayerNorm",),
            "attn.Wqkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attn.out_proj": ("self_attn.o_proj",),
            "mlp.fc11": ("mlp.up_proj",),
            "mlp.fc12": ("mlp.gate_proj",),
            "mlp.fc2": ("mlp.down_proj",),
            ".norm1.": (".post_attention_layernorm.",),
            ".norm2.": (".post_mlp_layernorm.",),
        },
    )
    biases: ClassVar[bool] = False

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates embeddings without positions."""
        return super().make_embeddings(max_length=None, **options)

    def make_feed_forward(self, **options: Any) -> FeedForward:
        """Creates a gated feed-forward network, of which only the output may have a bias."""
        return super().make_feed_forward(gated=True, use_bias=False, output_bias=self.biases, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the rotary positions, the size of heads, and whether there are biases."""
        head_dim = getattr(self.config, "head_dim", None)
        return {"rotary": self.config.rotary, "use_bias": self.biases, "head_dim": head_dim}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [*norm("attention_norm", "post_attention_layernorm"), *norm("feed_forward_norm", "post_mlp_layernorm")]
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}.items():
            layer += dense(f"attention/{path}", f"self_attn.{tensor}", bias=self.biases)
        for path, tensor in {"gate": "gate_proj", "up": "up_proj"}.items():
            layer += dense(f"feed_forward/{path}", f"mlp.{tensor}", bias=False)
        layer += dense("feed_forward/output", "mlp.down_proj", bias=self.biases)
        rows = [*self.embedding_rows(), *self.layer_rows(layer, "layers.{}.".format)]
        return [*rows, *self.pooler_rows("pooler.dense")]


class NomicBertFillMask(task_models.FillMask, backbone=NomicBert):
    """Nomic BERT for masked language modelling."""

    head_table = task_models.prediction_rows("cls.predictions", "transform.dense", "transform.layer_norm")


class NomicBertTextClassification(task_models.PooledTextClassification, backbone=NomicBert):
    """Nomic BERT for text classification, with the pooler; rotary positions are those of whole texts."""

    count = None


MODELS = task_models.heads(
    NomicBert,
    task_models.FeatureExtraction,
    NomicBertFillMask,
    NomicBertTextClassification,
    task_models.TokenClassification,
)
