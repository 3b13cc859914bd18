"""Description of a function to be exported, for the converters.

Called by the formats, which trace what it describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import keras
import numpy as np

from kerasformer.bundle.interface import Signature, TensorInfo, described
from kerasformer.layers.recurrent import LSTM
from kerasformer.layers.recurrent_layer import RecurrentLayer
from kerasformer.layers.tensor import Tensor
from kerasformer.models.keras_forward import KerasForward
from kerasformer.models.named_arrays import BATCH, TOKENS
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.text_inputs import TEXT

Infos = dict[str, TensorInfo]
FunctionCall = Callable[..., dict[str, Tensor]]
"""Takes named tensors as keyword arguments and returns named tensors."""


@dataclass(frozen=True)
class Function:
    """A function of named tensors, written with `keras.ops`, that a converter traces.

    Attributes:
        name: Name of the TFLite signature, or of the ONNX file without its suffix.
        inputs: Shape and dtype of each argument, in the order of the exported function. A string in a shape is a
            symbolic dimension, such as `"batch_size"`.
        outputs: Shape and dtype of each result, likewise.
        call: Takes the inputs as keyword arguments and returns a dictionary with the keys of `outputs`, for TFLite
            possibly with further ones. It reads the model's variables; the converter replaces them by placeholders, so
            that no weight enters the graph.
        incremental: Whether it reads only a few tokens at a time, with earlier ones in a cache, so that it spends its
            time on reading weights and not on arithmetic.
        defaults: Values of inputs that a caller may omit.
        matrices: Variables of an adapter by the name of the input that takes their place; those that the function does
            not use have no input, and are zero.
        standalone: Whether its ONNX file shares no weights with other files; a table that several files need is then
            stored in each of them.
        any_length: Whether its operations are the same for all sizes of its inputs, so that functions with the same
            `call` need one trace.
    """

    name: str
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    call: FunctionCall
    incremental: bool = False
    defaults: dict[str, np.ndarray] = field(default_factory=dict)
    standalone: bool = False
    matrices: dict[str, keras.Variable] = field(default_factory=dict)
    any_length: bool = False

    def signature(self, file: str = "") -> Signature:
        """Returns its description for the manifest; `file` is relative to the bundle."""
        return described(self.name, Signature(file, self.inputs, self.outputs))


def forward(
    model: PretrainedModel,
    name: str,
    batch: int | str,
    length: int | str,
    dtype: str,
    others: Mapping[str, int] | None = None,
) -> Function:
    """Returns the function of an encoder with its head, which reads texts `(batch, length)`.

    Args:
        model: The model.
        name: Name of the function.
        batch: Number of texts.
        length: Number of tokens.
        dtype: Data type of the inputs.
        others: Sizes of further axes, `TextInput.axis`, by name; symbolic by default.
    """
    inputs = forward_inputs(model, batch, length, dtype, others)
    sizes: dict[str, int | str] = {BATCH: batch, TOKENS: length, **(others or {})}

    def size(known: int | None, axis: str | None) -> int | str:
        """Returns a size of the output; an unknown one is a size of the inputs."""
        return sizes.get(axis or "", axis or "") if known is None else known

    outputs = {
        key: TensorInfo(tuple(size(*each) for each in zip_longest(shape, model.output_axes[: len(shape)])), "float32")
        for key, shape in KerasForward(model).output_shapes().items()
    }
    return Function(name, inputs, outputs, model.named_outputs, any_length=reads_any_length(model))


def reads_any_length(model: PretrainedModel) -> bool:
    """Returns whether a text of any length is read by the same operations; attention in windows and blocks is not.

    Nor are the steps of an LSTM and the chunks of a linear recurrence.
    """
    recurrent = any(isinstance(layer, LSTM | RecurrentLayer) for layer in model._flatten_layers())
    return not recurrent and not any(spec.window or spec.blocks for spec in model.attention_specs().values())


def spanning(functions: Sequence[Function]) -> Function:
    """Returns the first of several functions with the same call, with symbolic sizes where the others' sizes differ.

    The others may lack some of its outputs.
    """

    def span(infos: Sequence[Infos]) -> Infos:
        spanned = {}
        for name, info in infos[0].items():
            sizes = zip(*(other[name].shape for other in infos), strict=True)
            shape = tuple(each[0] if len(set(each)) == 1 else f"{name}_{axis}" for axis, each in enumerate(sizes))
            spanned[name] = replace(info, shape=shape)
        return spanned

    inputs, outputs = ([getattr(function, side) for function in functions] for side in ("inputs", "outputs"))
    outputs = [each for each in outputs if each.keys() == outputs[0].keys()]
    return replace(functions[0], inputs=span(inputs), outputs=span(outputs))


def forward_inputs(
    model: PretrainedModel,
    batch: int | str,
    length: int | str,
    dtype: str,
    others: Mapping[str, int] | None = None,
) -> Infos:
    """Describes the arrays `(batch, length)` that an encoder reads; arguments as in `forward`."""
    inputs = {key: TensorInfo((batch, length), dtype) for key in model.input_names}
    for text_input in model.text_inputs:
        if text_input.name in inputs and text_input not in TEXT:  # the manifest describes the values of those
            size = length if text_input.axis is None else (others or {}).get(text_input.axis, text_input.axis)
            count = text_input.count(model.config)
            inputs[text_input.name] = TensorInfo((batch, size), dtype, count=count, default=text_input.default)
    return inputs
