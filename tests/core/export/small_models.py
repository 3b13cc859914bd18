"""Small Keras models, and their functions for an exporter."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from kerasformer import zoo
from kerasformer.bundle import TensorInfo
from kerasformer.export.formats.tflite.signatures import DecoderSignatures, tflite_functions
from kerasformer.export.graph.functions import Function
from kerasformer.layers.attention import MultiHeadAttention
from kerasformer.layers.blocks import EncoderLayer
from kerasformer.layers.core import Dense
from kerasformer.layers.embeddings import TransformerEmbeddings
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.masks import padding_mask
from kerasformer.layers.stacks import Encoder

CAPACITY, LONGEST = 48, 24
"""Slots of the decoder's cache, and the longest text of the encoder-decoder."""


def _spread(model: keras.Model, seed: int) -> None:
    """Sets weights of a scale that gives a clear best token."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        if variable.dtype == "float32":
            wide = 0.5 if "embeddings" in variable.path else 0.15 if len(variable.shape) == 2 else 0.1
            start = 1.0 if "scale" in variable.path else 0.0
            variable.assign(start + wide * generator.standard_normal(variable.shape).astype("float32"))


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


def tiny_decoder(dim: int = 72) -> Any:
    """Returns a GPT-2 whose best tokens are clear."""
    return _built("gpt2", 2, vocab_size=203, hidden_dim=dim, max_length=CAPACITY)


def tiny_seq2seq(dim: int = 72) -> Any:
    """Returns a BART whose best tokens are clear."""
    sizes = {"num_decoder_layers": 2, "decoder_num_heads": 3, "intermediate_dim": 2 * dim}
    sizes |= {"decoder_intermediate_dim": 2 * dim, "max_length": LONGEST}
    return _built("bart", 3, vocab_size=197, hidden_dim=dim, **sizes)


def _built(model_type: str, seed: int, **sizes: int) -> Any:
    model = zoo.build(model_type, num_layers=2, num_heads=3, **sizes)
    _spread(model, seed)
    return model


def functions_of(model: Any, *lengths: int) -> list[Function]:
    """Returns the functions that read a text at these lengths, and the step of one token."""
    alone = DecoderSignatures(lengths, cache_lengths=(), batch_sizes=(), verify_lengths=())
    if model.is_encoder_decoder:
        return tflite_functions(model, 20, LONGEST, lengths, alone)
    return tflite_functions(model, CAPACITY, None, (), alone)
