"""GPT-J: a GPT-2 with rotary positions, and attention and feed-forward in parallel after the same norm.

Derived from: `gpt2`.
Paper: Wang and Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",
https://github.com/kingoflolz/mesh-transformer-jax; rotary positions: Su et al. 2021, arXiv:2104.09864.
Reference: `transformers.models.gptj`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import Rotary
from kerasformer.layers.layer_types import LayerArguments
from kerasformer.models import task_models
from kerasformer.models.config import Config, hf
from kerasformer.models.config_types import Deviation, Epsilon, Layers, Rate, Size, TokenId
from kerasformer.models.contracts import CausalLM
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.weight_table import Names, Row, dense, embedding, nested, norm, repeat


@dataclass(frozen=True, kw_only=True)
class GPTJConfig(Config):
    """Configuration of GPT-J; the defaults are those of the model of 6 billion parameters.

    Attributes:
        rotary_dim: Number of rotated entries of each head, even.
    """

    model_type = "gptj"
    required = {"rotary": (True,), "scale_attn_weights": (True,)}
    # Settings of a head that the reference does not have.
    ignored = frozenset(
        "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout".split()
    )

    vocab_size: Size = hf("vocab_size", 50400)
    max_length: Size = hf("n_positions", 2048, "max_position_embeddings")
    hidden_dim: Size = hf("n_embd", 4096, "hidden_size")
    num_layers: Layers = hf("n_layer", 28, "num_hidden_layers")
    num_heads: Size = hf("n_head", 16, "num_attention_heads")
    rotary_dim: Size = hf("rotary_dim", 64)
    inner_dim: Size | None = hf("n_inner", None)
    hidden_act: str = hf("activation_function", "gelu_new")
    residual_dropout: Rate = hf("resid_pdrop", 0.0)
    embedding_dropout: Rate = hf("embd_pdrop", 0.0)
    attention_dropout: Rate = hf("attn_pdrop", 0.0)
    epsilon: Epsilon = hf("layer_norm_epsilon", 1e-5)
    initializer_range: Deviation = hf("initializer_range", 0.02)
    tied: bool = hf("tie_word_embeddings", False)
    bos_token_id: TokenId | None = hf("bos_token_id", 50256)
    eos_token_id: TokenId | list[TokenId] | None = hf("eos_token_id", 50256)

    def __post_init__(self) -> None:
        """Validates the number of rotated entries."""
        super().__post_init__()
        size = self.hidden_dim // self.num_heads
        if self.rotary_dim % 2 or self.rotary_dim > size:
            raise UnsupportedConfigError(
                f"rotary_dim must be even and at most the size of a head, {size}. Received: {self.rotary_dim}"
            )

    @property
    def intermediate_dim(self) -> int:
        """Size of the intermediate layer of the feed-forward network."""
        return 4 * self.hidden_dim if self.inner_dim is None else self.inner_dim


class GPTJ(CausalDecoder):
    """GPT-J without head."""

    config_type = GPTJConfig
    order = "shared_parallel"
    # Ignored: the causal masks of older files.
    names = Names("transformer.", (r"h\.\d+\.attn\.(bias|masked_bias)",), tokens="wte.weight")

    def attention_options(self, index: int) -> LayerArguments:
        """Returns the rotary positions of pairs of neighboring entries."""
        rotary = Rotary(dim=self.config.rotary_dim, interleaved=True)
        return {"rotary": rotary, "use_bias": False, "float32_scores": True}

    def rows(self) -> list[Row]:
        """Returns the weight table."""
        layer = norm("attention_norm", "ln_1")
        for path, tensor in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}.items():
            layer += dense(f"attention/{path}", f"attn.{tensor}", bias=False)
        layer += [*dense("feed_forward/intermediate", "mlp.fc_in"), *dense("feed_forward/output", "mlp.fc_out")]
        return [
            *embedding("tokens", "wte"),
            *repeat(self.config.num_layers, nested(layer, "decoder/layer_{i}/", "h.{i}.")),
            *norm("decoder/final_norm", "ln_f"),
        ]


class GPTJCausalLM(CausalLM, backbone=GPTJ):
    """GPT-J for text generation."""

    head_table = (*CausalLM.head_table, Row(("bias",), "lm_head.bias"))

    def head_options(self) -> LayerArguments:
        """Returns the arguments of a head with a bias."""
        return {**super().head_options(), "use_bias": True}


MODELS = task_models.heads(
    GPTJ,
    GPTJCausalLM,
    task_models.CausalFeatures,
    task_models.CausalClassification,
    task_models.CausalQuestionAnswering,
)
