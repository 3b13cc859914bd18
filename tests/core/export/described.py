"""A small decoder whose attention is described layer by layer, with every kind of `AttentionSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.layers import CacheSpec, GrowingCache, LayerCache, Visibility
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.attention_spec import Rotary, RotaryScaling
from kerasformer.layers.blocks import DecoderLayer
from kerasformer.layers.embeddings import TransformerEmbeddings
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.norms import RMSNormalization
from kerasformer.layers.positions import alibi_bias
from kerasformer.layers.stacks import Decoder
from kerasformer.models.contracts import CausalLM
from kerasformer.models.pretrained import PretrainedModel

GROUPS = {"num_key_value_heads": 2}
LLAMA = {"rotary": Rotary(dim=16), **GROUPS}
SCALING = RotaryScaling(kind="llama3", factor=4.0, original_length=8)

ATTENTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "rotary and groups": (LLAMA, LLAMA),
    "partial rotary": ({"rotary": Rotary(dim=4)},),
    "partial and interleaved": ({"rotary": Rotary(dim=6, interleaved=True), **GROUPS},),
    "interleaved and scaled": ({"rotary": Rotary(dim=16, interleaved=True, scaling=SCALING)},),
    "windows and two bases": ({**LLAMA, "window": 3}, {"rotary": Rotary(dim=16, base=50.0), **GROUPS}),
    "window and softcap": ({**LLAMA, "window": 4, "softcap": 1.5, "scale": 0.7, "query_key_norm": 1e-6},),
    "softcap": ({"softcap": 2.0, "num_key_value_heads": 1}, {}),
    "rotary in heads of 6": ({"rotary": Rotary(dim=6), "head_dim": 6, **GROUPS},),
}
"""Arguments of each layer's `MultiHeadAttention` with 4 heads of 16."""


class DescribedDecoder(keras.Model):
    """Tokens, layers that normalize first, and the table of tokens as output.

    Args:
        attentions: Arguments of each layer's attention.
        alibi: Adds linear biases to the scores.
        dim: Size of the hidden states.
        heads: Number of query heads.
        head_dim: Size of a head, where `attentions` names none.
        vocab_size: Number of tokens.
        forward: Size of the feed-forward.
    """

    generates = True
    is_encoder_decoder = False
    max_length = None
    max_answer_length = None
    attention_specs = PretrainedModel.attention_specs
    cache_shapes = CausalLM.cache_shapes
    rewinds = CausalLM.rewinds

    def __init__(
        self,
        attentions: Sequence[dict[str, Any]],
        alibi: bool = False,
        dim: int = 40,
        heads: int = 4,
        head_dim: int = 16,
        vocab_size: int = 61,
        forward: int = 56,
    ) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocab_size, prefix_lm=None)
        self.output_vocab_size = vocab_size
        self.alibi, self.heads = alibi, heads
        self.embeddings = TransformerEmbeddings(vocab_size, None, dim, epsilon=None, name="embeddings")
        self.decoder = Decoder(
            [
                DecoderLayer(
                    MultiHeadAttention(
                        heads, dim, use_bias=False, name="attention", **{"head_dim": head_dim, **arguments}
                    ),
                    FeedForward(dim, forward, "silu", gated=True, use_bias=False, name="feed_forward"),
                    norm="rms_norm",
                    order="pre_norm",
                    name=f"layer_{i}",
                )
                for i, arguments in enumerate(attentions)
            ],
            RMSNormalization(name="final_norm"),
            name="decoder",
        )
        self.embeddings.build()
        self.decoder.build((None, None, dim))
        generator = np.random.default_rng(0)
        for variable in self.trainable_variables:
            wide = 1.2 / np.sqrt(variable.shape[0]) if len(variable.shape) == 2 else 0.1
            start = 1.0 if len(variable.shape) == 1 else 0.0
            variable.assign(start + generator.normal(0, wide, variable.shape))

    def cache_specs(self) -> list[CacheSpec]:
        """Like a model of the zoo."""
        return self.decoder.cache_specs()

    def decode(self, tokens: Any, visibility: Visibility, caches: Sequence[LayerCache]) -> Any:
        """As a model of the zoo."""
        states, new = self.decode_states(tokens, visibility, caches)
        return self.project(states), new

    def decode_states(self, tokens: Any, visibility: Visibility, caches: Sequence[LayerCache]) -> Any:
        """As a model of the zoo."""
        if self.alibi:
            visibility = visibility.with_bias(alibi_bias(self.heads, visibility.query_slots, visibility.key_slots))
        states = self.decoder(self.embeddings(tokens), visibility=visibility, caches=caches, return_cache=True)
        return states["output"], states["caches"]

    def project(self, states: Any) -> Any:
        """As a model of the zoo."""
        return self.embeddings.tokens.project(states)

    def answers(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Logits `(B, T, V)` of a padded batch, in Keras, from one call."""
        shapes = [spec.shape(len(ids), 0) for spec in self.cache_specs()]
        caches = [GrowingCache((ops.zeros(shape), ops.zeros(shape)), causal=True) for shape in shapes]
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0).astype("int32")
        visibility = Visibility.of_text(ids.shape[1], ops.convert_to_tensor(mask), causal=True, positions=positions)
        return np.asarray(self.decode(ops.convert_to_tensor(ids), visibility, caches)[0])
