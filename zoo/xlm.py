"""XLM: an encoder for several languages, with an embedding for each language.

Derived from: `bert`.
Paper: Lample and Conneau 2019, "Cross-lingual Language Model Pretraining", arXiv:1901.07291.
Reference: `transformers.models.xlm`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from keras import ops

from kerasformer import layers
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.encoder import BidirectionalEncoder, layer_table
from kerasformer.models.named_arrays import Inputs
from kerasformer.models.text_inputs import ATTENTION_MASK, INPUT_IDS, POSITION_IDS, TextInput
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, output_matrix, repeat


@dataclass(frozen=True, kw_only=True)
class XlmConfig(Config):
    """Configuration of XLM; the defaults are those of `transformers`."""

    model_type = "xlm"
    num_segments: ClassVar[int] = 0
    required = {
        **dict.fromkeys(("is_encoder", "summary_use_proj", "summary_proj_to_labels"), (True,)),
        **{"asm": (False,), "is_decoder": (False,), "summary_type": ("first",)},  # others would depend on padding
    }
    # Settings of the pretraining, of the tokenizer, of generation, and of a head that is not implemented.
    ignored = frozenset("max_vocab min_count same_enc_dec share_inout_emb embed_init_std".split()) | frozenset(
        "unk_index mask_index mask_token_id lang_id start_n_top end_n_top".split()
    )

    vocab_size: Size = hf("vocab_size", 30145, "n_words")
    hidden_dim: Size = hf("emb_dim", 2048, "hidden_size")
    num_layers: Layers = hf("n_layers", 12, "num_hidden_layers")
    num_heads: Size = hf("n_heads", 16, "num_attention_heads")
    hidden_dropout: Rate = hf("dropout", 0.1)
    attention_dropout: Rate = hf("attention_dropout", 0.1)
    gelu: bool = hf("gelu_activation", True)
    sinusoidal: bool = hf("sinusoidal_embeddings", False)
    causal: bool = hf("causal", False)
    n_languages: Size = hf("n_langs", 1)
    language_embeddings: bool = hf("use_lang_emb", True)
    lang2id: dict[str, int] | None = hf("lang2id", None)
    id2lang: dict[str, str] | None = hf("id2lang", None)
    max_length: Size = hf("max_position_embeddings", 512)
    epsilon: Epsilon = hf("layer_norm_eps", 1e-12)
    initializer_range: Deviation = hf("init_std", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    classifier_act: str | None = hf("summary_activation", None)
    classifier_dropout: Rate = hf("summary_first_dropout", 0.1)
    pad_token_id: TokenId | None = hf("pad_token_id", 2, "pad_index")
    bos_token_id: TokenId | None = hf("bos_token_id", 0, "bos_index")
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 1, "eos_index")

    intermediate_dim = property(lambda self: 4 * self.hidden_dim)
    hidden_act = property(lambda self: "gelu" if self.gelu else "relu")
    head_dropout = property(lambda self: self.hidden_dropout)

    @property
    def num_languages(self) -> int:
        """Number of rows of the language table; 0 for a model without one."""
        return self.n_languages if self.language_embeddings and self.n_languages > 1 else 0


class Xlm(BidirectionalEncoder):
    """XLM without head.

    The input `langs` is the language of each token; without it, or where it is -1, no language embedding is added.
    """

    config_type = XlmConfig
    architecture_prefix = "XLM"
    input_arrays = (INPUT_IDS, ATTENTION_MASK, TextInput("langs", "langs", "num_languages", default=-1), POSITION_IDS)
    layer_type = layers.MaskedEncoderLayer
    zero_padding = True
    # Ignored: a buffer.
    names = Names("transformer.", ("position_ids",), tokens="embeddings.weight")

    def make_embeddings(self, **options: Any) -> layers.TransformerEmbeddings:
        """Creates embeddings with a table of languages."""
        options["tables"] = {"langs": count} if (count := self.config.num_languages) else {}
        embeddings = super().make_embeddings(optional_tables=True, **options)
        if self.config.sinusoidal:
            embeddings.positions.embeddings_initializer = lambda shape, dtype: ops.cast(layers.sinusoids(*shape), dtype)
        return embeddings

    def make_visibility(self, ids: Tensor, attention_mask: Tensor | None) -> layers.Visibility:
        """Returns the causal visibility; as in the reference, it includes padding on the left, whose states are 0."""
        if not self.config.causal:
            return super().make_visibility(ids, attention_mask)
        return replace(layers.Visibility.of_text(ops.shape(ids)[1], causal=True), query_mask=attention_mask)

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        tables = {"tokens": "embeddings", "positions": "position_embeddings", "langs": "lang_embeddings"}
        parts = [*tables] if self.config.num_languages else ["tokens", "positions"]
        rows = [row for part in parts for row in embedding(f"embeddings/{part}", tables[part])]
        attention = [f"attentions.{{i}}.{name}_lin" for name in ("q", "k", "v", "out")]
        feed_forward = ("ffns.{i}.lin1", "ffns.{i}.lin2", "layer_norm2.{i}")
        layer = nested(layer_table((*attention, "layer_norm1.{i}"), feed_forward), "encoder/layer_{i}/")
        return [*rows, *norm("embeddings/norm", "layer_norm_emb"), *repeat(self.config.num_layers, layer)]


class XlmFillMask(task_models.FillMask, backbone=Xlm):
    """XLM for language modelling of masked words, or causal; the output layer has no dense layer before it."""

    architecture = "XLMWithLMHeadModel"
    head_table = (Row(("bias",), "pred_layer.proj.bias"), output_matrix("pred_layer.proj.weight"))

    def make_head(self) -> layers.LMHead:
        """Creates the output layer."""
        return layers.LMHead(self.config.vocab_size, self.tied, use_bias=True, name="head")


class XlmTextClassification(task_models.TextClassification, backbone=Xlm):
    """XLM for text classification by the first token."""

    head_table = dense("output", "sequence_summary.summary")
    count = property(lambda self: None if self.config.causal else 1)  # a causal mask has a row for each token

    def make_head(self) -> layers.ClassificationHead:
        """Creates a head of dropout and a dense layer."""
        return layers.ClassificationHead(self.config.num_labels, dropout=self.config.classifier_dropout, name="head")

    def answer(self, states: Outputs, inputs: Inputs, training: bool) -> Tensor:
        """Returns the scores."""
        return layers.activation(self.config.classifier_act)(super().answer(states, inputs, training))


class XlmQuestionAnswering(task_models.QuestionAnswering, backbone=Xlm):
    """XLM for extractive question answering with a dense layer; the head with a beam search is not supported."""

    architecture = "XLMForQuestionAnsweringSimple"


MODELS = task_models.heads(
    Xlm,
    task_models.FeatureExtraction,
    XlmFillMask,
    XlmTextClassification,
    task_models.TokenClassification,
    XlmQuestionAnswering,
)
