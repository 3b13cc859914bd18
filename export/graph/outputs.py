"""What a graph makes of a model's answer, for a runtime that leaves nothing to its caller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from keras import ops

from kerasformer.bundle import PROBABILITIES, SENTENCE_EMBEDDING, TensorInfo
from kerasformer.export.graph.functions import Function


def with_probabilities(function: Function, each_by_itself: bool) -> Function:
    """A classifier that gives `probabilities` `(B, C)` where it gave `logits`.

    Args:
        function: Of a model for classes of texts.
        each_by_itself: The classes do not exclude each other: a sigmoid instead of a softmax.
    """

    def call(**inputs: Any) -> dict[str, Any]:
        logits = function.call(**inputs)["logits"]
        return {PROBABILITIES: ops.sigmoid(logits) if each_by_itself else ops.softmax(logits, axis=-1)}

    return replace(function, outputs={PROBABILITIES: function.outputs["logits"]}, call=call)


def with_mean(function: Function) -> Function:
    """An encoder that gives one vector of a text, `sentence_embedding` `(B, E)`, the mean of its tokens' vectors.

    Special tokens count, padding does not, as in sentence-transformers.

    Args:
        function: Of a model for hidden states, which takes an `attention_mask`.
    """

    def call(**inputs: Any) -> dict[str, Any]:
        states = function.call(**inputs)["last_hidden_state"]
        real = ops.expand_dims(ops.cast(inputs["attention_mask"], "float32"), -1)
        return {SENTENCE_EMBEDDING: ops.sum(states * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)}

    batch, _, size = function.outputs["last_hidden_state"].shape
    return replace(function, outputs={SENTENCE_EMBEDDING: TensorInfo((batch, size), "float32")}, call=call)


def with_segments(function: Function) -> Function:
    """A function that takes `token_type_ids` too, for a runtime that gives them to every model.

    A token of the second text is a real token: that is all that they can say to a model without segments. So they join
    the mask, which changes nothing, and which no converter can leave out.

    Args:
        function: It takes an `attention_mask`.
    """
    if "token_type_ids" in function.inputs:
        return function

    def call(attention_mask: Any, token_type_ids: Any, **inputs: Any) -> dict[str, Any]:
        return function.call(attention_mask=ops.maximum(attention_mask, token_type_ids), **inputs)

    inputs = {**function.inputs, "token_type_ids": function.inputs["attention_mask"]}
    return replace(function, inputs=inputs, call=call)
