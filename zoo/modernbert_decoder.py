"""ModernBERT decoder: ModernBERT as a decoder-only language model, whose windows reach back only (Ettin).

Derived from: `llama`.
Paper: Weller et al. 2025, "Seq vs Seq: An Open Suite of Paired Encoders and Decoders", arXiv:2507.11412.
Reference: `transformers.models.modernbert_decoder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from kerasformer.layers import MaskedLMHead, normalization
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.weight_table import (
    Names,
    Row,
    dense,
    embedding,
    nested,
    norm,
    output_matrix,
    output_rows,
    repeat,
)
from kerasformer.zoo import modernbert


@dataclass(frozen=True, kw_only=True)
class ModernBertDecoderConfig(modernbert.ModernBertConfig):
    """Configuration of a ModernBERT decoder; `window // 2` tokens are in a window, a token itself included."""

    model_type = "modernbert-decoder"
    # The size of the windows that the reference computes; keys of the encoder, also of its classifier.
    ignored = modernbert.ModernBertConfig.ignored | {"sliding_window", "classifier_pooling"}
    pooling: ClassVar[str] = "last"  # type: ignore[misc]


class ModernBertDecoder(CausalDecoder):
    """ModernBERT decoder without head."""

    config_type = ModernBertDecoderConfig
    has_embedding_norm = True
    names = Names("model.", tokens="embeddings.tok_embeddings.weight")

    @property
    def embedding_dropout(self) -> float:
        """Dropout rate of the embeddings."""
        return self.config.hidden_dropout

    @property
    def hidden_dropout(self) -> float:
        """Dropout rate of the outputs, which those of attention and feed-forward network replace."""
        return 0.0

    def make_norm(self, name: str) -> keras.layers.Layer:
        """Creates a layer norm."""
        return normalization(self.norm, self.config.epsilon, self.config.norm_bias, name=name)

    def layer_options(self, index: int) -> dict[str, Any]:
        """Returns the norms of a layer; the first one does not normalize the embeddings again."""
        return {"order": "pre_norm" if index else "feed_forward_pre_norm", "norm_bias": self.config.norm_bias}

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the options of ModernBERT's attention."""
        return modernbert.attention_options(self.config, index)

    def feed_forward_options(self, index: int) -> LayerArguments:
        """Returns the options of a gated feed-forward network."""
        config = self.config
        return {"gated": True, "use_bias": config.feed_forward_bias, "dropout": config.feed_forward_dropout}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        config, norms = self.config, {"bias": self.config.norm_bias}
        projections: list[Row] = []
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
            projections += dense(f"attention/{path}", f"attn.{tensor}", bias=config.attention_bias)
        layer = nested(modernbert.layer_table(config, projections), "decoder/layer_{i}/", "layers.{i}.")
        rows = embedding("tokens", "embeddings.tok_embeddings") + norm("embedding_norm", "embeddings.norm", **norms)
        rows += [*repeat(config.num_layers, layer), *norm("decoder/final_norm", "final_norm", **norms)]
        return [row for row in rows if not row.tensor.startswith("layers.0.attn_norm.")]


class ModernBertDecoderCausalLM(CausalLM, backbone=ModernBertDecoder):
    """ModernBERT decoder for text generation, with the head of masked language models."""

    head_table = (
        *nested(task_models.NORMED_DENSE, prefix="lm_"),
        Row(("bias",), "decoder.bias", optional=True),
        output_matrix("decoder.weight", "projection/kernel"),
    )

    def make_head(self) -> MaskedLMHead:
        """Creates a head of a dense layer, a norm and the output."""
        config = self.config
        biases = {"dense_bias": config.head_bias, "norm_bias": config.norm_bias, "use_bias": config.output_bias}
        options = {"tied": config.tied, "name": "head", **self.head_options(), **biases}
        return MaskedLMHead(config.vocab_size, config.hidden_dim, config.head_act, config.epsilon, **options)

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without the biases and the matrix that it does not have."""
        return output_rows(task_models.present_biases(self.head_table, self.config), self.config.tied)


class ModernBertDecoderCausalClassification(
    task_models.NormedHead, task_models.CausalClassification, backbone=ModernBertDecoder
):
    """ModernBERT decoder for text classification, from the last real token."""

    def head_options(self) -> LayerArguments:
        """Returns the biases, also that of the output."""
        return {**super().head_options(), "use_bias": self.config.head_bias}

    def head_rows(self) -> list[Row]:
        """Returns the rows of the head, without the biases that it does not have."""
        return [row for row in super().head_rows() if self.config.head_bias or row.variables != ("output/bias",)]


MODELS = task_models.heads(
    ModernBertDecoder,
    ModernBertDecoderCausalLM,
    task_models.CausalFeatures,
    ModernBertDecoderCausalClassification,
)
