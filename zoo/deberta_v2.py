"""DeBERTa v2 and v3: DeBERTa with distances in logarithmic buckets, shared projections and a convolution over tokens.

Derived from: `deberta`.
Paper: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654; version 3:
arXiv:2111.09543. Reference: `transformers.models.deberta_v2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kerasformer import layers
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Count, Layers, Size
from kerasformer.models.encoder import TOKENS
from kerasformer.models.span_extraction import SpanExtraction
from kerasformer.models.weight_table import Names, Row, convolution, dense, norm
from kerasformer.zoo import deberta


@dataclass(frozen=True, kw_only=True)
class DebertaV2Config(deberta.DebertaConfig):
    """Configuration of DeBERTa v2 and v3; the defaults are those of `transformers`."""

    model_type = "deberta-v2"
    required = {"conv_groups": (1,)}

    vocab_size: Size = hf("vocab_size", 128100)
    hidden_dim: Size = hf("hidden_size", 1536)
    num_layers: Layers = hf("num_hidden_layers", 24)
    num_heads: Size = hf("num_attention_heads", 24)
    intermediate_dim: Size = hf("intermediate_size", 6144)
    relative_norm: str = hf("norm_rel_ebd", "none")
    num_buckets: int = hf("position_buckets", -1)
    share_projections: bool = hf("share_att_key", False)
    convolution_size: Count = hf("conv_kernel_size", 0)
    convolution_act: str = hf("conv_act", "tanh")


class DebertaV2(deberta.Deberta):
    """DeBERTa v2 without head."""

    config_type = DebertaV2Config
    # Ignored: buffers, the discriminator head of the pretraining of version 3.
    names = Names("deberta.", (r"(mask_predictions|encoder\.LayerNorm)\..*", r"embeddings\.position_.*"), tokens=TOKENS)

    def make_layer(
        self, index: int, kind: type[layers.EncoderLayer] | None = None, **options: Any
    ) -> layers.EncoderLayer:
        """Creates a layer; the first one has a convolution in models with one."""
        if index == 0 and self.config.convolution_size:
            kind = layers.ConvolutionEncoderLayer
            options |= {"kernel_size": self.config.convolution_size, "activation": self.config.convolution_act}
        return super().make_layer(index, kind, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the terms for relative positions."""
        config = self.config
        terms = {"terms": config.relative_terms, "positions": config.relative_attention}
        return {**terms, "share_projections": config.share_projections, "relative_dropout": config.hidden_dropout}

    def make_relative(self, **options: Any) -> layers.RelativeEmbeddings | None:
        """Creates the embeddings of relative positions."""
        config = self.config
        epsilon = config.epsilon if "layer_norm" in config.relative_norm.lower() else None
        return super().make_relative(num_buckets=config.num_buckets, epsilon=epsilon, **options)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        rows = super().rows()
        if self.relative is not None and self.relative.norm is not None:
            rows += norm("relative/norm", "encoder.LayerNorm")
        if size := self.config.convolution_size:
            rows += convolution("encoder/layer_0/convolution", "encoder.conv.conv", size)
            rows += norm("encoder/layer_0/convolution_norm", "encoder.conv.LayerNorm")
        return rows

    def attention_rows(self, attention: layers.DisentangledAttention) -> list[Row]:
        """Returns the rows of the projections of an attention layer."""
        rows = [row for name in ("query", "key", "value") for row in _projection(name, f"{name}_proj")]
        for name in ("key", "query"):
            if getattr(attention, f"relative_{name}") is not None:
                rows += _projection(f"relative_{name}", f"pos_{name}_proj")
        return rows


def _projection(path: str, tensor: str) -> list[Row]:
    return dense(f"attention/{path}", f"attention.self.{tensor}")


MODELS = task_models.heads_like(deberta.MODELS, DebertaV2, SpanExtraction)
