"""The call of a model: arrays by Hugging Face's names, which are checked and converted, and outputs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops
from keras.src.tree.tree_api import register_tree_node_class

from kerasformer.bundle.interface import OWN_LENGTHS
from kerasformer.engines.arrays import as_array, token_array
from kerasformer.errors import CapacityError, InputError
from kerasformer.layers.layer_types import Outputs
from kerasformer.layers.tensor import Tensor, is_concrete
from kerasformer.models.text_inputs import TextInput
from kerasformer.tokenization import Encoding

Inputs = Mapping[str, Tensor]

# So that every Keras model takes an encoding as it takes a dictionary of arrays.
register_tree_node_class(Encoding)
if keras.backend.backend() == "jax":
    import jax

    jax.tree_util.register_pytree_node(
        Encoding, lambda encoding: (encoding.tree_flatten()[0], tuple(sorted(encoding))), Encoding.tree_unflatten
    )


_FLAGS = {"output_attentions": "return_attention", "output_hidden_states": "return_hidden_states"}
"""Arguments of a model's call by their names in `transformers`."""
_OTHERS = {
    "labels": "the loss is that of model.compile and model.fit or model.evaluate, see kf.training.dataset",
    "return_dict": "the result is a tensor; with return_hidden_states or return_attention, it is a dictionary",
    "inputs_embeds": "a model reads input_ids",
    "past_key_values": "model.generate keeps the caches",
    "use_cache": "model.generate keeps the caches",
}
"""Arguments of models of `transformers` without a counterpart, and what to do instead."""


BATCH, TOKENS = "batch", "tokens"
"""Names of the axes of texts and of their tokens."""


class NamedArrays(keras.Model):
    """Base of models with a backbone whose call has a dictionary of int32 arrays.

    Attributes:
        output_name: Hugging Face's name of the output of `call`.
        output_axes: Names of the axes of the output, as far as their sizes are those of the input.
    """

    output_name: str = "logits"
    output_axes: ClassVar[tuple[str | None, ...]] = (BATCH, TOKENS)

    @property
    def text_inputs(self) -> tuple[TextInput, ...]:
        """Descriptions of the input arrays; by default those of the backbone."""
        described: tuple[TextInput, ...] = self.backbone.text_inputs
        return described

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the input arrays of `call` and of bundles."""
        return tuple(text_input.name for text_input in self.text_inputs if text_input.in_bundles(self.config))

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Names of the optional input arrays of `call`, which bundles do not have."""
        return tuple(text_input.name for text_input in self.text_inputs if not text_input.in_bundles(self.config))

    @property
    def max_length(self) -> int | None:
        """Maximum length of a text in tokens; `None` if it is unlimited."""
        limit: int | None = self.config.longest_text
        return limit

    @property
    def max_answer_length(self) -> int | None:
        """Maximum length of the text that a decoder reads or generates, in tokens; `None` if it is unlimited."""
        limit: int | None = self.config.longest_answer
        return limit

    def checked(self, inputs: Inputs) -> dict[str, Tensor]:
        """Validates the inputs and converts them to int32 tensors.

        Raises:
            InputError: not a dictionary, an unknown name, no `input_ids`, or shapes that do not match.
            CapacityError: a text exceeds the maximum length of the model.
        """
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"{type(self).__name__} expects a dictionary of int32 arrays: {', '.join(self.input_names)}. "
                f"Received: {type(inputs).__name__}"
            )
        allowed = {*self.input_names, *self.optional_names}
        unknown = sorted(set(inputs) - allowed)
        needed = {text_input.name for text_input in self.text_inputs if text_input.axis is not None}
        missing = sorted({"input_ids", *needed} - set(inputs))
        if unknown or missing:
            raise InputError(
                f"{type(self).__name__} expects {', '.join(self.input_names)}. "
                f"Received: {', '.join(inputs) or 'nothing'}"
            )
        arrays = {name: ops.cast(value, "int32") for name, value in inputs.items() if value is not None}
        decoder = {name: array for name, array in arrays.items() if name.startswith("decoder_")}
        check_shapes({name: array for name, array in arrays.items() if name not in decoder}, self.max_length)
        check_shapes(decoder, self.max_answer_length)
        return arrays

    def __call__(self, inputs: object = None, *args: object, **kwargs: Any) -> Tensor | Outputs:
        """As in Keras; also accepts an `Encoding` of the tokenizer, and its arrays by name as in `transformers`.

        Raises:
            InputError: ids outside the valid range, which is not checked for symbolic tensors; or an argument of
                `transformers` that has no counterpart here.
        """
        named = {name: kwargs.pop(name) for name in (*self.input_names, *self.optional_names) if name in kwargs}
        for theirs, ours in _FLAGS.items():
            if theirs in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        if others := _OTHERS.keys() & kwargs.keys():
            raise InputError(" ".join(f"{name} is not an argument here: {_OTHERS[name]}." for name in sorted(others)))
        if named:
            first = {} if inputs is None else inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
            inputs = {**first, **named}
        arrays = _as_dict(inputs)
        if isinstance(arrays, dict):
            arrays = {name: self.ids(name, value) if is_concrete(value) else value for name, value in arrays.items()}
        return super().__call__(arrays, *args, **kwargs)

    def ids(self, name: str, value: object) -> np.ndarray:
        """Converts an input array of `call` to int32 and checks the range of its values.

        Raises:
            InputError: a value is outside the range, such as a token id beyond the vocabulary.
        """
        array = as_array(ops.convert_to_numpy(value) if ops.is_tensor(value) else value)
        if array.ndim != 2 or not array.size:
            return array  # `checked` raises the error
        least = min((text_input.default for text_input in self.text_inputs if text_input.name == name), default=0)
        return token_array(name, array, self.value_counts().get(name), least=least, floats=True)

    def value_counts(self) -> dict[str, int | None]:
        """Returns the number of allowed values of each input array; `None` if it is unlimited."""
        return {text_input.name: text_input.count(self.config) for text_input in self.text_inputs}

    def predict(self, x: object, *args: object, **kwargs: object) -> np.ndarray | dict[str, np.ndarray]:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().predict(_as_dict(x), *args, **kwargs)

    def fit(self, x: object = None, *args: object, **kwargs: object) -> keras.callbacks.History:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().fit(_as_dict(x), *args, **kwargs)

    def evaluate(self, x: object = None, *args: object, **kwargs: object) -> float | list[float] | dict[str, float]:
        """As in Keras; also accepts an `Encoding` of the tokenizer."""
        return super().evaluate(_as_dict(x), *args, **kwargs)

    def named(self, output: Tensor) -> dict[str, Tensor]:
        """Returns the output of `call` by Hugging Face's names, as bundles return it to pipelines."""
        return {self.output_name: output}

    def named_outputs(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Computes the outputs by Hugging Face's names, without dropout."""
        return self.named(self(inputs, training=False))


def _as_dict(inputs: object) -> object:
    """Converts mappings to dictionaries, the only mappings that Keras does not treat as tensors."""
    return dict(inputs) if isinstance(inputs, Mapping) and not isinstance(inputs, dict) else inputs


def check_shapes(arrays: Mapping[str, Tensor], max_length: int | None) -> None:
    """Validates shapes, for which errors of the backends would be unclear; unknown dimensions are accepted."""
    shapes = {name: _known_shape(array) for name, array in arrays.items()}
    for name, shape in shapes.items():
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"{name} must be (batch, length) with at least one token. Received: shape {shape}")
        if name in OWN_LENGTHS:
            continue
        expected = shapes.get("decoder_input_ids" if name.startswith("decoder_") else "input_ids", shape)
        if any(a not in (None, 1, b) and b is not None for a, b in zip(shape, expected, strict=False)):
            raise InputError(f"{name} must have the shape of its ids, {expected}. Received: shape {shape}")
        if max_length is not None and (shape[1] or 0) > max_length:
            raise CapacityError(
                f"A text is longer than the model. Expected at most {max_length} tokens. Received: {shape[1]}. "
                "Truncate it, or read it in windows."
            )


def _known_shape(array: Tensor) -> tuple[int | None, ...]:
    """Returns the shape of an array; dimensions that are symbolic, as those of JAX, are `None`."""
    return tuple(size if isinstance(size, int) else None for size in array.shape)
