"""GPT-Neo: a GPT-2 with global and local attention layers in turn, and scores without a scale.

GPT-3 has the same layout, with scaled scores and biases in all projections.

Derived from: `gpt2`.
Paper: Black et al. 2021, "GPT-Neo: Large Scale Autoregressive Language Modeling with Mesh-Tensorflow",
doi:10.5281/zenodo.5297715; local layers: Brown et al. 2020, "Language Models are Few-Shot Learners", arXiv:2005.14165,
section 2.1. Reference: `transformers.models.gpt_neo`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class GPTNeoConfig(Config):
    """Configuration of GPT-Neo; the defaults are those of the model of 1.3 billion parameters.

    Attributes:
        attention_types: Types of the layers as pairs of a list and the number of times that it is repeated, such as
            `[[["global", "local"], 12]]` for 24 layers; by default `"global"` and `"local"` take turns.
        layer_types: Type of each layer, which `attention_types` determines.
        window: Number of tokens, itself included, that a token of a local layer attends to.
    """

    model_type = "gpt_neo"
    # Settings of a head that the reference does not have.
    ignored = frozenset(
        "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split()
    )

    vocab_size: Size = hf("vocab_size", 50257)
    max_length: Size = hf("max_position_embeddings", 2048)
    hidden_dim: Size = hf("hidden_size", 2048)
    num_layers: Layers = hf("num_layers", 24, "num_hidden_layers")
    num_heads: Size = hf("num_heads", 16, "num_attention_heads")
    inner_dim: Size | None = hf("intermediate_size", None)
    attention_types: list[list[list[str] | int]] | None = hf("attention_types", None)
    layer_types: list[str] | None = hf("attention_layers", None)
    window: Size = hf("window_size", 256)
    hidden_act: str = hf("activation_function", "gelu_new")
    residual_dropout: Rate = hf("resid_dropout", 0.0)
    embedding_dropout: Rate = hf("embed_dropout", 0.0)
    attention_dropout: Rate = hf("attention_dropout", 0.0)
    classifier_dropout: Rate = hf("classifier_dropout", 0.1)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", True)
    bos_token_id: TokenId | None = hf("bos_token_id", 50256)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 50256)

    def __post_init__(self) -> None:
        """Sets the default types of the layers and validates them."""
        super().__post_init__()
        if self.attention_types is None:
            default = [[["global", "local"], self.num_layers // 2], [["global"], 1]][: 1 + self.num_layers % 2]
            object.__setattr__(self, "attention_types", default)
        pairs: Any = self.attention_types
        try:
            types = (kind for kinds, count in pairs for _ in range(count) for kind in kinds)
            expanded = list(itertools.islice(types, self.num_layers + 1))
        except (TypeError, ValueError):
            expanded = []
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", expanded)
        valid = len(expanded) == self.num_layers and set(expanded) <= {"global", "local"}
        if not valid or self.layer_types != expanded:
            raise UnsupportedConfigError(
                f"attention_types must give the type of each of the {self.num_layers} layers, global or local, and "
                f"attention_layers must list them. Received: {self.attention_types} and {self.layer_types}"
            )

    @property
    def intermediate_dim(self) -> int:
        """Size of the intermediate layer of the feed-forward network."""
        return 4 * self.hidden_dim if self.inner_dim is None else self.inner_dim


class GPTNeo(CausalDecoder):
    """GPT-Neo without head."""

    config_type = GPTNeoConfig
    has_positions = True
    # Ignored: the causal masks of older files.
    names = Names("transformer.", (r"h\.\d+\.attn\.attention\.(bias|masked_bias)",), tokens="wte.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the window, if the layer is local."""
        window = self.config.window if self.config.layer_types[index] == "local" else None
        biases = {"use_bias": False, "output_bias": True}
        return {"scale": 1.0, "float32_scores": True, "window": window, **biases}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = [*norm("attention_norm", "ln_1"), *norm("feed_forward_norm", "ln_2")]
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
            layer += dense(f"attention/{path}", f"attn.attention.{tensor}", bias=False)
        layer += dense("attention/output", "attn.attention.out_proj")
        layer += [*dense("feed_forward/intermediate", "mlp.c_fc"), *dense("feed_forward/output", "mlp.c_proj")]
        return [
            *embedding("tokens", "wte"),
            *embedding("positions", "wpe"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


MODELS = task_models.heads(
    GPTNeo,
    CausalLM,
    task_models.CausalFeatures,
    task_models.CausalClassification,
    task_models.CausalTokenClassification,
    task_models.CausalQuestionAnswering,
)
