"""ModernBERT: a pre-norm encoder with rotary positions, gated feed-forward, and a sliding window in most layers.

Derived from: `bert`.
Paper: Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient,
and Long Context Finetuning and Inference", arXiv:2412.13663. Reference: `transformers.models.modernbert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras

from kerasformer import layers
from kerasformer.basics.arguments import integer
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import hf
from kerasformer.models.config_types import Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder, EncoderConfig
from kerasformer.models.multi_vector_similarity import MultiVectorSimilarity
from kerasformer.models.rotary_config import LayerRotaryConfig
from kerasformer.models.span_extraction import SpanExtraction
from kerasformer.models.sparse_similarity import SparseSimilarity
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS
from kerasformer.models.weight_table import Names, Row, dense, embedding, fused, norm, output_matrix


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(LayerRotaryConfig, EncoderConfig):
    """Configuration of ModernBERT; the defaults are those of `ModernBERT-base`.

    Attributes:
        window: Number of tokens in the window of a layer of the type `sliding_attention`, half of them on each side.
        global_every: Distance between layers of the type `full_attention`, for files without `layer_types`.
    """

    model_type = "modernbert"
    # Keys of training (which losses, initial weights, kernels), and of other models that files contain without effect.
    ignored = frozenset(
        """cls_token_id deterministic_flash_attn initializer_cutoff_factor layer_norm_eps position_embedding_type
        reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction""".split()
    )
    bases = {"full_attention": ("global_rope_theta", 160000.0), "sliding_attention": ("local_rope_theta", 10000.0)}
    num_segments: ClassVar[int] = 0  # type: ignore[misc]

    vocab_size: Size = hf("vocab_size", 50368)
    num_layers: Layers = hf("num_hidden_layers", 22)
    intermediate_dim: Size = hf("intermediate_size", 1152)
    hidden_act: str = hf("hidden_activation", "gelu")
    hidden_dropout: Rate = hf("embedding_dropout", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    feed_forward_dropout: Rate = hf("mlp_dropout", 0.0)
    head_dropout: Rate = hf("classifier_dropout", 0.0)
    epsilon: Epsilon = hf("norm_eps", 1e-5)
    max_length: Size = hf("max_position_embeddings", 8192)
    window: Annotated[int, integer(2, 2**31 - 1)] = hf("local_attention", 128)
    global_every: Size = hf("global_attn_every_n_layers", 3)
    norm_bias: bool = hf("norm_bias", False)
    attention_bias: bool = hf("attention_bias", False)
    feed_forward_bias: bool = hf("mlp_bias", False)
    output_bias: bool = hf("decoder_bias", True)
    head_bias: bool = hf("classifier_bias", False)
    head_act: str = hf("classifier_activation", "gelu")
    pooling: Literal["cls", "mean"] = hf("classifier_pooling", "cls")
    bos_token_id: TokenId | None = hf("bos_token_id", 50281)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 50282)
    sep_token_id: TokenId | None = hf("sep_token_id", 50282)
    pad_token_id: TokenId | None = hf("pad_token_id", 50283)

    def default_layer_types(self) -> list[str]:
        """Returns the types of layers at equal distances."""
        return [list(self.bases)[index % self.global_every > 0] for index in range(self.num_layers)]


class ModernBert(BidirectionalEncoder):
    """ModernBERT without head."""

    config_type = ModernBertConfig
    input_arrays = (INPUT_IDS, ATTENTION_MASK, POSITION_IDS)
    names = Names("model.", tokens="embeddings.tok_embeddings.weight")

    def make_embeddings(self, **options: Any) -> keras.layers.Layer:
        """Creates embeddings without positions."""
        return super().make_embeddings(max_length=None, norm_bias=self.config.norm_bias, **options)

    def make_layer(
        self, index: int, kind: type[layers.EncoderLayer] | None = layers.EncoderLayer, **options: Any
    ) -> layers.EncoderLayer:
        """Creates a layer; the first one does not normalize the embeddings again."""
        order = "pre_norm" if index else "feed_forward_pre_norm"
        options |= {"order": order, "norm_bias": self.config.norm_bias, "dropout": 0.0}
        return super().make_layer(index, kind, **options)

    def make_feed_forward(self, **options: Any) -> layers.FeedForward:
        """Creates a gated feed-forward network."""
        options |= {"use_bias": self.config.feed_forward_bias, "dropout": self.config.feed_forward_dropout}
        return super().make_feed_forward(gated=True, **options)

    def attention_options(self, index: int) -> LayerArguments:
        """See the function `attention_options`."""
        return attention_options(self.config, index)

    def make_final_norm(self) -> keras.layers.Layer:
        """Creates the norm of the output."""
        return layers.LayerNormalization(self.config.epsilon, self.config.norm_bias, name="final_norm")

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        config, norms = self.config, {"bias": self.config.norm_bias}
        projections = [f"attention/{name}" for name in ("query", "key", "value")]
        layer = layer_table(config, fused(projections, "attn.Wqkv", bias=config.attention_bias))
        rows = embedding("embeddings/tokens", "embeddings.tok_embeddings")
        rows += norm("embeddings/norm", "embeddings.norm", **norms)
        rows += [*self.layer_rows(layer, "layers.{}.".format), *norm("encoder/final_norm", "final_norm", **norms)]
        return [row for row in rows if not row.tensor.startswith("layers.0.attn_norm.")]


def attention_options(config: ModernBertConfig, index: int) -> LayerArguments:
    """Returns the window of a layer, if it has one, and the rotary positions of its type."""
    layer_type = (config.layer_types or ())[index]
    window = config.window // 2 if layer_type == "sliding_attention" else None
    options = {"use_bias": config.attention_bias, "output_dropout": config.attention_dropout}
    return {"window": window, "rotary": config.rotary(layer_type), **options}


def layer_table(config: ModernBertConfig, projections: Sequence[Row]) -> list[Row]:
    """Returns the rows of one layer, of which `projections` are those of queries, keys and values."""
    norms = {"bias": config.norm_bias}
    return [
        *projections,
        *dense("attention/output", "attn.Wo", bias=config.attention_bias),
        *fused(["feed_forward/gate", "feed_forward/up"], "mlp.Wi", bias=config.feed_forward_bias),
        *dense("feed_forward/output", "mlp.Wo", bias=config.feed_forward_bias),
        *norm("attention_norm", "attn_norm", **norms),
        *norm("feed_forward_norm", "mlp_norm", **norms),
    ]


class ModernBertFillMask(task_models.FillMask, task_models.NormedHead, backbone=ModernBert):
    """ModernBERT for masked language modelling."""

    head_table = (
        *task_models.NORMED_DENSE,
        Row(("bias",), "decoder.bias", optional=True),
        output_matrix("decoder.weight", "projection/kernel"),
    )


class ModernBertTextClassification(task_models.NormedHead, task_models.TextClassification, backbone=ModernBert):
    """ModernBERT for text classification, from the first token or from the mean of all tokens."""

    count = None


MODELS = task_models.heads(
    ModernBert,
    task_models.FeatureExtraction,
    ModernBertFillMask,
    ModernBertTextClassification,
    (task_models.NormedHead, task_models.TokenClassification),
    (task_models.NormedHead, task_models.QuestionAnswering),
    SpanExtraction,
    (SparseSimilarity, ModernBertFillMask),
    MultiVectorSimilarity,
)
