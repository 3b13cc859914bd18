"""Small models with the interfaces of the real ones: an encoder, a decoder and an encoder-decoder, and their functions."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.export.functions import Function
from kerasformer.layers import (
    Decoder,
    DecoderLayer,
    Dense,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    GrowingCache,
    LayerNormalization,
    MultiHeadAttention,
    causal_mask,
    padding_mask,
)

BATCH, LENGTH, TOTAL = "batch_size", "sequence_length", "total_sequence_length"


def ids(*names: str, length: str = LENGTH) -> dict[str, TensorInfo]:
    return {name: TensorInfo((BATCH, length), "int64") for name in names}


def randomize(layer: keras.layers.Layer, seed: int = 0) -> None:
    """Weights large enough that the best answer stands out, biases and scales that are not 0 and 1."""
    generator = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(generator.normal(0, 1.2 / np.sqrt(variable.shape[-1]), variable.shape))
        else:
            variable.assign(np.asarray(variable) + generator.normal(0, 0.1, variable.shape))


class TinyEncoder(keras.layers.Layer):
    """BERT's shape: two tables, layers with the norm after, exact GELU, a classifier on the first token."""

    def __init__(self, vocab_size: int = 50, hidden_dim: int = 24, num_labels: int = 3) -> None:
        super().__init__(name="encoder")
        self.tokens = Embedding(vocab_size, hidden_dim, name="tokens")
        self.positions = Embedding(32, hidden_dim, name="positions")
        self.norm = LayerNormalization(1e-12, name="norm")
        layers = [
            EncoderLayer(MultiHeadAttention(3, hidden_dim), FeedForward(hidden_dim, 40), name=f"layer_{index}")
            for index in range(2)
        ]
        self.stack = Encoder(layers, name="stack")
        self.classifier = Dense(num_labels, name="classifier")
        self.tokens.build()
        self.positions.build()
        for part in (self.norm, self.stack, self.classifier):
            part.build((None, None, hidden_dim))
        self.built = True
        randomize(self)

    def call(self, input_ids: Any, attention_mask: Any) -> Any:
        positions = ops.expand_dims(ops.arange(ops.shape(input_ids)[1], dtype="int32"), 0)
        x = self.norm(self.tokens(input_ids) + self.positions(positions))
        return self.classifier(self.stack(x, attention_mask=padding_mask(attention_mask)).output[:, 0])

    def function(self) -> Function:
        def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
            return {"logits": self(ops.cast(input_ids, "int32"), ops.cast(attention_mask, "int32"))}

        outputs = {"logits": TensorInfo((BATCH, 3), "float32")}
        return Function("model", ids("input_ids", "attention_mask"), outputs, call)


class TinyDecoder(keras.layers.Layer):
    """GPT-2's shape: a table that is also the output, layers with the norm first, GELU by tanh, a growing cache."""

    def __init__(
        self, vocab_size: int = 61, hidden_dim: int = 32, num_heads: int = 4, num_layers: int = 2, length: int = 40
    ) -> None:
        super().__init__(name="decoder")
        self.shape = (num_heads, hidden_dim // num_heads)
        self.vocab_size, self.num_layers = vocab_size, num_layers
        self.tokens = Embedding(vocab_size, hidden_dim, name="tokens")
        self.positions = Embedding(length, hidden_dim, name="positions")
        layers = [
            DecoderLayer(
                MultiHeadAttention(num_heads, hidden_dim, name="attention"),
                FeedForward(hidden_dim, 4 * hidden_dim, "gelu_new", name="feed_forward"),
                norm_first=True,
                name=f"layer_{index}",
            )
            for index in range(num_layers)
        ]
        self.stack = Decoder(layers, LayerNormalization(name="final_norm"), name="stack")
        self.tokens.build()
        self.positions.build()
        self.stack.build((None, None, hidden_dim))
        self.built = True
        randomize(self)

    def call(self, input_ids: Any, positions: Any, attention_mask: Any = None, caches: Any = None) -> Any:
        x = self.tokens(input_ids) + self.positions(positions)
        out = self.stack(x, attention_mask=attention_mask, caches=caches)
        return self.tokens.project(out.output), out.caches

    def logits(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """The whole sequence at once, without a cache."""
        positions = np.maximum(np.cumsum(attention_mask, axis=1) - 1, 0)
        mask = ops.logical_and(causal_mask(input_ids.shape[1]), padding_mask(ops.convert_to_tensor(attention_mask)))
        return np.asarray(self(input_ids, positions, attention_mask=mask)[0])

    def function(self) -> Function:
        def call(input_ids: Any, attention_mask: Any, position_ids: Any, **past: Any) -> dict[str, Any]:
            caches = [
                GrowingCache(past[f"past_key_values.{i}.key"], past[f"past_key_values.{i}.value"])
                for i in range(self.num_layers)
            ]
            query, total = ops.shape(input_ids)[1], ops.shape(attention_mask)[1]
            mask = ops.logical_and(causal_mask(query, total), padding_mask(attention_mask))
            tokens, positions = ops.cast(input_ids, "int32"), ops.cast(position_ids, "int32")
            logits, caches = self(tokens, positions, attention_mask=mask, caches=caches)
            present = {}
            for i, cache in enumerate(caches):
                present |= {f"present.{i}.key": cache.key, f"present.{i}.value": cache.value}
            return {"logits": logits, **present}

        heads, size = self.shape
        names = [f"{i}.{part}" for i in range(self.num_layers) for part in ("key", "value")]
        past = TensorInfo((BATCH, heads, "past_sequence_length", size), "float32")
        present = TensorInfo((BATCH, heads, TOTAL, size), "float32")
        inputs = ids("input_ids") | ids("attention_mask", length=TOTAL) | ids("position_ids")
        inputs |= {f"past_key_values.{name}": past for name in names}
        outputs = {"logits": TensorInfo((BATCH, LENGTH, self.vocab_size), "float32")}
        outputs |= {f"present.{name}": present for name in names}
        return Function("model", inputs, outputs, call)
