"""Additional inputs and outputs of exported functions, for runtimes that do no pre- or postprocessing."""

from __future__ import annotations

from dataclasses import replace

from keras import ops

from kerasformer.bundle import PROBABILITIES, SENTENCE_EMBEDDING, TensorInfo
from kerasformer.export.graph.functions import Function
from kerasformer.layers.tensor import Tensor


def with_probabilities(function: Function, multi_label: bool) -> Function:
    """Makes a text classifier return `probabilities` `(B, C)` instead of `logits`.

    Args:
        function: Function of a text classifier.
        multi_label: Whether several classes can apply to a text: a sigmoid instead of a softmax.
    """

    def call(**inputs: Tensor) -> dict[str, Tensor]:
        logits = function.call(**inputs)["logits"]
        return {PROBABILITIES: ops.sigmoid(logits) if multi_label else ops.softmax(logits, axis=-1)}

    return replace(function, outputs={PROBABILITIES: function.outputs["logits"]}, call=call)


def with_mean(function: Function) -> Function:
    """Makes an encoder return the mean of a text's hidden states, `sentence_embedding` `(B, E)`.

    The mean includes special tokens but not padding, as in sentence-transformers.

    Args:
        function: Function that returns `last_hidden_state` and takes an `attention_mask`.
    """

    def call(**inputs: Tensor) -> dict[str, Tensor]:
        states = function.call(**inputs)["last_hidden_state"]
        real = ops.expand_dims(ops.cast(inputs["attention_mask"], "float32"), -1)
        return {SENTENCE_EMBEDDING: ops.sum(states * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)}

    batch, _, size = function.outputs["last_hidden_state"].shape
    return replace(function, outputs={SENTENCE_EMBEDDING: TensorInfo((batch, size), "float32")}, call=call)


def with_segments(function: Function) -> Function:
    """Adds the input `token_type_ids` to a function, for a runtime that passes it to every model.

    To a model without segments, `token_type_ids` only mean that tokens of the second text are not padding. They are
    merged into the attention mask: this does not change the result, and no converter can remove the input as unused.

    Args:
        function: Function that takes an `attention_mask`.
    """
    if "token_type_ids" in function.inputs:
        return function

    def call(attention_mask: Tensor, token_type_ids: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        return function.call(attention_mask=ops.maximum(attention_mask, token_type_ids), **inputs)

    inputs = {**function.inputs, "token_type_ids": function.inputs["attention_mask"]}
    return replace(function, inputs=inputs, call=call)
