"""PyTorch twins of the layers, with the argument names of the Keras layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


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

    def forward(self, query: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        batch, length, _ = query.shape
        heads = [
            layer(query).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
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
