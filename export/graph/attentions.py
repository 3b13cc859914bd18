"""The function of a model that returns the attention weights of a whole text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from kerasformer.bundle import Kind, TensorInfo
from kerasformer.bundle.interface import ATTENTION_MASK, DECODER_INPUT_IDS, INPUT_IDS, attention_output
from kerasformer.errors import ExportError
from kerasformer.export.graph.functions import Function, forward_inputs
from kerasformer.layers.primitives import weights_needed
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.stacks import attention_outputs


def attention_function(
    model: PretrainedModel,
    name: str,
    batch: int | str,
    length: int | str,
    decoder_length: int | str,
    dtype: str,
) -> Function:
    """Returns the function that reads whole texts and returns the attention weights of all layers.

    Args:
        model: A model of the zoo.
        name: Name of the function.
        batch: Number of texts.
        length: Length of a text in tokens, that of the encoder in an encoder-decoder.
        decoder_length: Length of the text of an encoder-decoder's decoder.
        dtype: Data type of the ids.

    Raises:
        ExportError: The model has no attention weights.
    """
    both = model.is_encoder_decoder and model.generates
    if model.generates:
        inputs = {key: TensorInfo((batch, length), dtype) for key in (INPUT_IDS, ATTENTION_MASK)}
        if both:
            inputs[DECODER_INPUT_IDS] = TensorInfo((batch, decoder_length), dtype)
    else:
        inputs = forward_inputs(model, batch, length, dtype)
    own = decoder_length if both else length
    sizes = {
        Kind.ENCODER_ATTENTION: (length, length),
        Kind.DECODER_ATTENTION: (own, own),
        Kind.CROSS_ATTENTION: (own, length),
    }

    def call(**arrays: Tensor) -> dict[str, Tensor]:
        with weights_needed():
            outputs = model({key: ops.cast(array, "int32") for key, array in arrays.items()}, return_attention=True)
        return {
            attention_output(kind, layer): ops.cast(weights, "float32")
            for kind, layer, weights in _named(model, outputs)
        }

    symbolic = {key: keras.KerasTensor((None, None), "int32") for key in inputs}
    with weights_needed():
        shapes = list(_named(model, model(symbolic, return_attention=True)))
    if not shapes:
        raise ExportError(
            "outputs=('attentions',) is for models with attention. "
            f"Received: {type(model).__name__}, which has no attention weights"
        )
    outputs = {
        attention_output(kind, layer): TensorInfo((batch, int(weights.shape[1]), *sizes[kind]), "float32")
        for kind, layer, weights in shapes
    }
    return Function(name, inputs, outputs, call, incremental=model.generates and not both)


def _named(model: PretrainedModel, outputs: Any) -> Iterator[tuple[Kind, int, Tensor]]:
    """Yields the weights of each layer that has some, with their kind and the index of the layer."""
    kinds = {"encoder": Kind.ENCODER_ATTENTION, "decoder": Kind.DECODER_ATTENTION, "cross": Kind.CROSS_ATTENTION}
    for stack, name in attention_outputs(model).items():
        for layer, weights in enumerate(outputs.get(name, ()) if isinstance(outputs, dict) else ()):
            if weights is not None:
                yield kinds[stack], layer, weights
