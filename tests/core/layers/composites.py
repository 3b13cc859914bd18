"""Composite layers as models use them, for tests that a single layer cannot cover."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from kerasformer import layers
from kerasformer.layers.core import serialize_part

register = keras.saving.register_keras_serializable("kerasformer_tests")


@register
class TiedLM(keras.layers.Layer):
    """Embeddings that are tied to the output of a masked language model."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(11, 8, name="embedding")
        self.head = layers.MaskedLMHead(11, 8, name="head")

    def build(self, ids_shape: Any) -> None:
        self.embedding.build()
        self.head.build((*ids_shape, 8))

    def call(self, ids: Any) -> Any:
        return self.head(self.embedding(ids), embedding=self.embedding)


@register
class MaskedDecoder(keras.layers.Layer):
    """A causal decoder layer or stack with cross attention to a padded memory."""

    def __init__(self, decoder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decoder = decoder

    def build(self, x_shape: Any, memory_shape: Any, memory_mask_shape: Any) -> None:
        self.decoder.build(x_shape)

    def call(self, x: Any, memory: Any, memory_mask: Any) -> Any:
        mask = layers.causal_mask(ops.shape(x)[1])
        return self.decoder(x, memory=memory, attention_mask=mask, memory_mask=memory_mask)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "decoder": serialize_part(self.decoder)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MaskedDecoder:
        return cls(**{**config, "decoder": keras.saving.deserialize_keras_object(config["decoder"])})


@register
class LlamaLayer(keras.layers.Layer):
    """A decoder layer of LLaMA."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        attention = layers.MultiHeadAttention(
            6, 18, head_dim=6, num_key_value_heads=2, use_bias=False, rotary=layers.Rotary(dim=6), name="attention"
        )
        feed_forward = layers.FeedForward(18, 20, "silu", gated=True, use_bias=False, name="feed_forward")
        self.layer = layers.DecoderLayer(
            attention, feed_forward, norm="rms_norm", epsilon=1e-6, order="pre_norm", name="layer"
        )

    def build(self, x_shape: Any, positions_shape: Any = None) -> None:
        self.layer.build(x_shape)

    def call(self, x: Any, positions: Any) -> Any:
        return self.layer(x, visibility=layers.Visibility.of_text(ops.shape(x)[1], causal=True, positions=positions))
