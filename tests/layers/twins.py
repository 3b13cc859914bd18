"""PyTorch twins of the layers, with the argument names of the Keras layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, MobileBertConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mobilebert.modeling_mobilebert import MobileBertEmbeddings, MobileBertLayer
from transformers.models.t5.modeling_t5 import T5Block


class TorchAttention(nn.Module):
    """`nn.MultiheadAttention`, with `True` where a query attends."""

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        key_value_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        sizes = {} if key_value_dim is None else {"kdim": key_value_dim, "vdim": value_dim or key_value_dim}
        self.inner = nn.MultiheadAttention(hidden_dim, num_heads, bias=bias, batch_first=True, **sizes)

    def forward(
        self,
        query: Tensor,
        key_value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        value: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        key_value = query if key_value is None else key_value
        value = key_value if value is None else value
        shape = (query.shape[0], self.inner.num_heads, query.shape[1], key_value.shape[1])
        mask = None if attention_mask is None else ~attention_mask.expand(shape).flatten(0, 1)
        if bias is not None:
            mask = bias.expand(shape).flatten(0, 1)
        return self.inner(query, key_value, value, attn_mask=mask, average_attn_weights=False)


class GroupedAttention(nn.Module):
    """Linear layers and `scaled_dot_product_attention` with grouped heads and a scale."""

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        groups: int,
        head_dim: int,
        bias: tuple[bool, bool] = (True, True),
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.groups, self.head_dim, self.scale = num_heads, groups, head_dim, scale
        self.query = nn.Linear(hidden_dim, num_heads * head_dim, bias=bias[0])
        self.key = nn.Linear(hidden_dim, groups * head_dim, bias=bias[0])
        self.value = nn.Linear(hidden_dim, groups * head_dim, bias=bias[0])
        self.output = nn.Linear(num_heads * head_dim, hidden_dim, bias=bias[1])

    def forward(self, query: Tensor, attention_mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        batch, length, _ = query.shape
        heads = [
            layer(query).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        if positions is not None:
            heads[:2] = apply_rotary_pos_emb(*heads[:2], *llama_angles(self.head_dim, positions))
        context = functional.scaled_dot_product_attention(
            *heads, attn_mask=attention_mask, scale=self.scale, enable_gqa=self.groups != self.num_heads
        )
        return self.output(context.transpose(1, 2).reshape(batch, length, -1))


class TorchHead(nn.Module):
    """One attention head."""

    def __init__(self, hidden_dim: int, head_dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(hidden_dim, head_dim) for _ in range(3))

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return functional.scaled_dot_product_attention(
            self.query(x), self.key(x), self.value(x), attn_mask=attention_mask
        )


class AlibiTwin(GroupedAttention):
    """Causal attention with BLOOM's tensor of linear biases added."""

    def forward(self, query: Tensor) -> Tensor:  # type: ignore[override]
        batch, length, _ = query.shape
        bias = build_alibi_tensor(torch.ones(batch, length), self.num_heads, torch.float32)
        bias = bias.view(batch, self.num_heads, 1, length)
        causal = torch.ones(length, length).tril().bool()
        return super().forward(query, bias.masked_fill(~causal, float("-inf")))


class TorchFeedForward(nn.Module):
    """A feed-forward network, which may be gated (GEGLU, SwiGLU)."""

    def __init__(self, hidden_dim: int, inner: int, activation: nn.Module, gated: bool, bias: bool) -> None:
        super().__init__()
        names = ("gate", "up") if gated else ("intermediate",)
        self.inner = nn.ModuleDict({name: nn.Linear(hidden_dim, inner, bias=bias) for name in names})
        self.output = nn.Linear(inner, hidden_dim, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        first, *others = (linear(x) for linear in self.inner.values())
        return self.output(self.activation(first) * others[0] if others else self.activation(first))


class TorchEmbeddings(nn.Module):
    """The sum of up to three embeddings, with optional norm and projection."""

    def __init__(
        self, vocab: int, size: int, length: int = 0, segments: int = 0, norm: float | None = None, project: int = 0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, size)
        self.positions = nn.Embedding(length, size) if length else None
        self.segments = nn.Embedding(segments, size) if segments else None
        self.norm = nn.Identity() if norm is None else nn.LayerNorm(size, eps=norm)
        self.projection = nn.Linear(size, project) if project else nn.Identity()

    def forward(self, ids: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        x = self.tokens(ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1])[None] if positions is None else positions)
        return self.projection(self.norm(x))


def mobilebert_config(**settings: Any) -> MobileBertConfig:
    """Returns a configuration of MobileBERT whose hidden states are larger than those in its layers."""
    sizes = {"hidden_size": 14, "intra_bottleneck_size": 12, "intermediate_size": 20, "num_attention_heads": 3}
    embeddings = {"vocab_size": 11, "max_position_embeddings": 9, "type_vocab_size": 2, "embedding_size": 5}
    options = {"layer_norm_eps": 1e-5, "attention_probs_dropout_prob": 0.0, "pad_token_id": None}
    return MobileBertConfig(**{**sizes, **embeddings, **options, "attn_implementation": "eager", **settings})


class MobileBertEmbeddingsTwin(nn.Module):
    """The embeddings of MobileBERT, with trigrams."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = MobileBertEmbeddings(mobilebert_config())

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        return self.inner(ids, segments)


class MobileBertTwin(nn.Module):
    """A layer of MobileBERT."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.inner = MobileBertLayer(mobilebert_config(**settings))

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.inner(x, torch.zeros(attention_mask.shape).masked_fill(~attention_mask, -1e9))


class TorchTiedLM(nn.Module):
    """The prediction head of BERT, whose output is tied to the embeddings."""

    def __init__(self, vocab: int, hidden_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden_dim)
        self.dense = nn.Linear(hidden_dim, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids: Tensor) -> Tensor:
        y = self.norm(functional.gelu(self.dense(self.embedding(ids))))
        return functional.linear(y, self.embedding.weight, self.bias)


class OneInput(nn.Module):
    """A module with one input, by the argument name of the Keras layer."""

    def __init__(self, inner: nn.Module, name: str = "x") -> None:
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.inner(inputs[self.name])


class TorchEncoder(nn.Module):
    """`nn.TransformerEncoderLayer` or `nn.TransformerEncoder`, with `True` where a query attends."""

    def __init__(self, inner: nn.Module, num_heads: int) -> None:
        super().__init__()
        self.inner, self.num_heads = inner, num_heads

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return self.inner(x)
        shape = (x.shape[0], self.num_heads, x.shape[1], x.shape[1])
        mask = ~attention_mask.expand(shape).flatten(0, 1)
        return self.inner(x, mask)


class TorchDecoder(nn.Module):
    """Causal `nn.TransformerDecoderLayer` or `nn.TransformerDecoder` with a padded memory."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.inner(x, memory, tgt_mask=causal, memory_key_padding_mask=memory_mask == 0)


class LlamaTwin(nn.Module):
    """A causal LLaMA layer: RMS norm first, rotary, grouped heads, SwiGLU; `head_dim` is not `hidden / heads`."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            hidden_size=18,
            intermediate_size=20,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=6,
            rms_norm_eps=1e-6,
            attn_implementation="eager",
        )
        self.inner = LlamaDecoderLayer(config, 0)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        length = x.shape[1]
        mask = torch.zeros(length, length).masked_fill(torch.ones(length, length).triu(1).bool(), -1e9)
        return self.inner(x, attention_mask=mask[None, None], position_embeddings=llama_angles(6, positions))


class T5Twin(nn.Module):
    """A T5 block with its relative bias, cross attention and GEGLU; `d_kv` is not `d_model / heads`."""

    def __init__(self, is_decoder: bool) -> None:
        super().__init__()
        config = T5Config(
            d_model=12,
            d_kv=5,
            num_heads=3,
            d_ff=20,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
            is_decoder=is_decoder,
            attn_implementation="eager",
        )
        self.inner = T5Block(config, has_relative_attention_bias=True)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        mask = None
        if memory is not None:
            mask = torch.zeros(length, length).masked_fill(torch.ones(length, length).triu(1).bool(), -1e9)[None, None]
        return self.inner(x, attention_mask=mask, encoder_hidden_states=memory)[0]


def llama_angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Returns the cosines and sines of LLaMA, `(B, T, D)` each."""
    config = LlamaConfig(head_dim=head_dim, rope_parameters={"rope_type": "default", "rope_theta": theta})
    return LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
