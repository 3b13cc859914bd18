"""Small Keras models made of kerasformer.layers, and their functions for an exporter."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.export.graph.functions import Function
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.blocks import DecoderLayer, EncoderLayer
from kerasformer.layers.cache import FixedCache, StaticCache
from kerasformer.layers.core import Dense
from kerasformer.layers.embeddings import TransformerEmbeddings
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.masks import padding_mask
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.positions import RelativePositionBias
from kerasformer.layers.stacks import Decoder, Encoder


def _spread(model: keras.Model, seed: int) -> None:
    """Sets weights of a scale that gives a clear best token."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        if variable.dtype == "float32":
            wide = 0.5 if "embeddings" in variable.path else 0.15 if len(variable.shape) == 2 else 0.1
            start = 1.0 if "scale" in variable.path else 0.0
            variable.assign(start + wide * generator.standard_normal(variable.shape).astype("float32"))


def _parts(dim: int, heads: int, forward: int, cross: bool = False) -> dict[str, Any]:
    attention = {"attention": MultiHeadAttention(heads, dim, name="attention")}
    if cross:
        attention["cross_attention"] = MultiHeadAttention(heads, dim, name="cross")
    return {**attention, "feed_forward": FeedForward(dim, forward, "gelu_new", name="feed_forward")}


class TinyEncoder(keras.Model):
    """Two BERT-like layers and a classifier on the first token."""

    def __init__(self, vocab_size: int = 211, dim: int = 72, heads: int = 3, labels: int = 5) -> None:
        super().__init__()
        self.embeddings = TransformerEmbeddings(vocab_size, 32, dim, num_segments=2, name="embeddings")
        layers = [
            EncoderLayer(
                MultiHeadAttention(heads, dim, name="attention"),
                FeedForward(dim, 2 * dim, "gelu", name="feed_forward"),
                name=f"layer_{i}",
            )
            for i in range(2)
        ]
        self.encoder = Encoder(layers, name="encoder")
        self.classifier = Dense(labels, name="classifier")
        self.labels, self.dim = labels, dim
        self.embeddings.build()
        self.encoder.build((None, None, dim))
        self.classifier.build((None, dim))
        _spread(self, 1)

    def call(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[Any, Any]:
        x = self.embeddings(input_ids, token_type_ids)
        hidden = self.encoder(x, attention_mask=padding_mask(attention_mask))
        return self.classifier(hidden[:, 0]), hidden

    def function(self, length: int) -> Function:
        def call(input_ids: Any, attention_mask: Any, token_type_ids: Any) -> dict[str, Any]:
            logits, hidden = self(input_ids, attention_mask, token_type_ids)
            return {"logits": logits, "last_hidden_state": hidden, "start_logits": hidden[..., 0]}

        ids = TensorInfo((1, length), "int32")
        names = ("input_ids", "attention_mask", "token_type_ids")
        outputs = {
            "logits": TensorInfo((1, self.labels), "float32"),
            "last_hidden_state": TensorInfo((1, length, self.dim), "float32"),
            "start_logits": TensorInfo((1, length), "float32"),
        }
        return Function(f"forward_{length}", dict.fromkeys(names, ids), outputs, call)


class TinyDecoder(keras.Model):
    """A GPT-2-like model: learned positions, pre-norm layers, and tied embeddings."""

    def __init__(
        self,
        vocab_size: int = 203,
        dim: int = 72,
        heads: int = 3,
        layers: int = 2,
        capacity: int = 48,
        seed: int = 2,
        forward: int | None = None,
    ) -> None:
        super().__init__()
        self.vocab_size, self.dim, self.heads, self.capacity = vocab_size, dim, heads, capacity
        self.embeddings = TransformerEmbeddings(vocab_size, capacity, dim, epsilon=None, name="embeddings")
        blocks = [
            DecoderLayer(**_parts(dim, heads, forward or 4 * dim), order="pre_norm", name=f"layer_{i}")
            for i in range(layers)
        ]
        self.decoder = Decoder(blocks, LayerNormalization(name="final_norm"), name="decoder")
        self.embeddings.build()
        self.decoder.build((None, None, dim))
        _spread(self, seed)

    def call(self, tokens: Any) -> Any:
        """Logits `(B, T, V)` without a cache."""
        length = tokens.shape[1]
        place = ops.arange(length)
        mask = ops.reshape(place, (1, 1, 1, -1)) <= ops.reshape(place, (1, 1, -1, 1))
        hidden = self.decoder(self.embeddings(tokens), attention_mask=mask)
        return self.embeddings.tokens.project(hidden)

    def _cached(self, tokens: Any, input_pos: Any, **caches: Any) -> tuple[Any, dict[str, Any]]:
        x = self.embeddings(tokens, positions=ops.reshape(input_pos, (1, -1)))
        mask = ops.reshape(ops.arange(self.capacity), (1, 1, 1, -1)) <= ops.reshape(input_pos, (1, 1, -1, 1))
        given = [
            StaticCache((caches[f"kv_cache_k_{i}"], caches[f"kv_cache_v_{i}"]), input_pos[0])
            for i in range(len(self.decoder.layers))
        ]
        result = self.decoder(x, attention_mask=mask, caches=given, return_cache=True)
        after = {f"kv_cache_k_{i}": cache.key for i, cache in enumerate(result["caches"])}
        after |= {f"kv_cache_v_{i}": cache.value for i, cache in enumerate(result["caches"])}
        return result["output"], after

    def functions(self, *prefill: int) -> list[Function]:
        def decode(**inputs: Any) -> dict[str, Any]:
            hidden, caches = self._cached(**inputs)
            return {"logits": self.embeddings.tokens.project(hidden), **caches}

        def fill(**inputs: Any) -> dict[str, Any]:
            return self._cached(**inputs)[1]

        shape = (1, self.heads, self.capacity, self.dim // self.heads)
        caches = {
            f"kv_cache_{kind}_{i}": TensorInfo(shape, "float32")
            for i in range(len(self.decoder.layers))
            for kind in "kv"
        }
        made = []
        for length in (*prefill, 1):
            tokens = {"tokens": TensorInfo((1, length), "int32"), "input_pos": TensorInfo((length,), "int32")}
            logits = {"logits": TensorInfo((1, 1, self.vocab_size), "float32")} if length == 1 else {}
            name, call = ("decode", decode) if length == 1 else (f"prefill_{length}", fill)
            made.append(Function(name, {**tokens, **caches}, {**logits, **caches}, call))
        return made


class TinySeq2Seq(keras.Model):
    """A T5-like model: relative positions, and cross attention whose keys and values are computed once."""

    def __init__(self, vocab_size: int = 197, dim: int = 72, heads: int = 3, capacity: int = 20, longest: int = 24):
        super().__init__()
        self.vocab_size, self.dim, self.heads = vocab_size, dim, heads
        self.capacity, self.longest = capacity, longest
        self.embeddings = TransformerEmbeddings(vocab_size, None, dim, epsilon=None, name="embeddings")
        blocks = [EncoderLayer(**_parts(dim, heads, 2 * dim), norm="rms_norm", order="pre_norm") for _ in range(2)]
        self.encoder = Encoder(blocks, name="encoder")
        self.encoder_bias = RelativePositionBias(8, 16, heads, bidirectional=True, name="encoder_bias")
        cross = [DecoderLayer(**_parts(dim, heads, 2 * dim, True), norm="rms_norm", order="pre_norm") for _ in range(2)]
        self.decoder = Decoder(cross, LayerNormalization(name="final_norm"), name="decoder")
        self.decoder_bias = RelativePositionBias(8, 16, heads, bidirectional=False, name="decoder_bias")
        self.embeddings.build()
        self.encoder_bias.build()
        self.decoder_bias.build()
        self.encoder.build((None, None, dim))
        self.decoder.build((None, None, dim))
        _spread(self, 3)

    def encode(self, input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        """Cross keys and values at full encoder capacity."""
        place = ops.arange(input_ids.shape[1], dtype="int32")
        bias = self.encoder_bias(place, place)
        x = self.embeddings(input_ids)
        memory = self.encoder(x, attention_mask=padding_mask(attention_mask), bias=bias)
        memory = ops.pad(memory, ((0, 0), (0, self.longest - input_ids.shape[1]), (0, 0)))
        crossed = [layer.cross_attention.project(memory) for layer in self.decoder.layers]
        keys = {f"cross_k_{i}": key for i, (key, _) in enumerate(crossed)}
        return keys | {f"cross_v_{i}": value for i, (_, value) in enumerate(crossed)}

    def decode(self, tokens: Any, input_pos: Any, encoder_mask: Any, **caches: Any) -> dict[str, Any]:
        """One token."""
        keys = ops.arange(self.capacity, dtype="int32")
        mask = ops.reshape(keys, (1, 1, 1, -1)) <= ops.reshape(input_pos, (1, 1, -1, 1))
        layers = range(len(self.decoder.layers))
        result = self.decoder(
            self.embeddings(tokens),
            attention_mask=mask,
            bias=self.decoder_bias(input_pos, keys),
            memory_mask=padding_mask(encoder_mask),
            caches=[StaticCache((caches[f"kv_cache_k_{i}"], caches[f"kv_cache_v_{i}"]), input_pos[0]) for i in layers],
            cross_caches=[FixedCache((caches[f"cross_k_{i}"], caches[f"cross_v_{i}"])) for i in layers],
            return_cache=True,
        )
        after = {f"kv_cache_k_{i}": cache.key for i, cache in enumerate(result["caches"])}
        after |= {f"kv_cache_v_{i}": cache.value for i, cache in enumerate(result["caches"])}
        return {"logits": self.embeddings.tokens.project(result["output"]), **after}

    def functions(self, *lengths: int) -> list[Function]:
        def info(slots: int) -> TensorInfo:
            return TensorInfo((1, self.heads, slots, self.dim // self.heads), "float32")

        def named(kind: str, slots: int) -> dict[str, TensorInfo]:
            return {f"{kind}_{x}_{i}": info(slots) for i in range(2) for x in "kv"}

        cross, caches = named("cross", self.longest), named("kv_cache", self.capacity)
        made = []
        for length in lengths:
            ids = TensorInfo((1, length), "int32")
            made.append(Function(f"encode_{length}", {"input_ids": ids, "attention_mask": ids}, cross, self.encode))
        tokens = {"tokens": TensorInfo((1, 1), "int32"), "input_pos": TensorInfo((1,), "int32")}
        mask = {"encoder_mask": TensorInfo((1, self.longest), "int32")}
        logits = {"logits": TensorInfo((1, 1, self.vocab_size), "float32")}
        made.append(Function("decode", {**tokens, **mask, **caches, **cross}, {**logits, **caches}, self.decode))
        return made
