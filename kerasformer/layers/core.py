"""Dense and embedding layers, dropout, low-rank adaptation, and base classes of all layers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, Self, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.layer_types import (
    Initializer,
    LayerArguments,
    LayerConfig,
    LayerOptions,
    LowRankOptions,
    Outputs,
)
from kerasformer.layers.tensor import Shape, Tensor, check_mask

PACKAGE = "kerasformer"


def build_once(layer: keras.layers.Layer, input_shape: Shape | None = None) -> None:
    """Builds a layer unless it is built: a layer that is passed to another layer may have been built before."""
    if not layer.built:
        layer.build(input_shape)


def serialize_part(layer: keras.layers.Layer | None) -> LayerConfig | None:
    """Serializes a layer for the config of its parent, without the shapes for which it was built.

    The parent builds it anew, so that the paths of its variables start with the parent's path.
    """
    if layer is None:
        return None
    return {name: x for name, x in keras.saving.serialize_keras_object(layer).items() if name != "build_config"}


def arguments_of(layer: keras.layers.Layer, *names: str) -> LayerArguments:
    """Returns attributes of a layer that are arguments of its constructor, for its config: parts are serialized."""
    return {name: _serialized(getattr(layer, name)) for name in names}


def _serialized(value: object) -> object:
    if isinstance(value, keras.initializers.Initializer):
        return keras.initializers.serialize(value)
    if isinstance(value, keras.layers.Layer):
        return serialize_part(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_serialized(each) for each in value] if isinstance(value, list | tuple) else value


class Configured(keras.layers.Layer):
    """Base of layers that have each argument of their constructor as an attribute, which are their config."""

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), **arguments_of(self, *_arguments(type(self)))}

    @classmethod
    def from_config(cls, config: LayerConfig) -> Self:
        """Creates a layer from the result of `get_config`."""
        return cls(**{name: keras.saving.deserialize_keras_object(value) for name, value in config.items()})


def _arguments(layer: type[Configured]) -> tuple[str, ...]:
    """Returns the arguments of the constructor of a class, and of those that it passes further arguments to."""
    classes = layer.__mro__[: layer.__mro__.index(Configured)]
    constructors = [vars(base)["__init__"] for base in classes if "__init__" in vars(base)]
    parameters = [each for function in constructors for each in inspect.signature(function).parameters.values()]
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return tuple(each.name for each in parameters if each.name != "self" and each.kind not in variadic)


def packed(output: Tensor, as_dictionary: bool, **entries: object) -> Tensor | Outputs:
    """Returns the result of a layer: a tensor, or a dictionary if further results were requested.

    Args:
        output: The tensor; entry `"output"` of the dictionary.
        as_dictionary: Whether to return a dictionary.
        entries: Further entries of the dictionary; those that are `None` are left out.
    """
    if not as_dictionary:
        return output
    return {"output": output, **{name: value for name, value in entries.items() if value is not None}}


def unpacked(result: Tensor | Outputs) -> Outputs:
    """Returns the result of `packed` as a dictionary."""
    return dict(result) if isinstance(result, dict) else {"output": result}


def as_ids(ids: Tensor) -> Tensor:
    """Casts ids to integers unless they are: Keras builds a saved model with floating-point inputs."""
    dtype = keras.backend.standardize_dtype(getattr(ids, "dtype", "float32"))
    return ids if keras.backend.is_int_dtype(dtype) else ops.cast(ids, "int32")


LOW_RANK = "lora_"
"""Prefix of the names of low-rank variables."""
_changes = itertools.count(1)
"""Numbers of the additions and removals of low-rank matrices in this process."""


class OptionalOutputs(keras.layers.Layer):
    """Base of layers whose call arguments request further outputs, see `packed`."""

    def compute_output_spec(self, *args: object, **kwargs: object) -> keras.KerasTensor | Outputs:
        """Traces the call, whose arguments decide between a tensor and a dictionary."""
        check_mask(inspect.signature(self.call).bind(*args, **kwargs).arguments.get("attention_mask"))
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, input_shape: Shape) -> Shape | tuple[Shape, ...]:
        """Returns the shape of the input."""
        return input_shape


class Composite(OptionalOutputs):
    """Base of layers that consist of other layers."""

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """Direct sublayers, listed by `model.summary(expand_nested=True)`."""
        return list(self._flatten_layers(include_self=False, recursive=False))

    def __dir__(self) -> list[str]:
        # Keras derives the names of weights in a file from these attributes: those of the sublayers, without `layers`.
        return [name for name in super().__dir__() if name != "layers"]


class LowRank(Configured):
    """Base of layers with one matrix that supports low-rank adaptation (LoRA), as the layers of Keras do.

    With DoRA, the columns of the sum of the matrix and the product have trained lengths, the magnitudes. Saved files
    contain this sum; a layer loaded from one has no product.

    References: Hu et al. 2021, arXiv:2106.09685; Liu et al. 2024, arXiv:2402.09353 (DoRA).
    """

    def __init__(
        self, lora_rank: int | None = None, lora_alpha: float | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.lora_rank, self.lora_alpha, self.lora_enabled = lora_rank, lora_alpha, False
        self.lora_a: Any = None
        self.lora_b: Any = None
        self.lora_magnitude: Any = None
        self._lora_change = 0

    @property
    def matrix(self) -> keras.Variable:
        """The adapted variable `(in, out)`."""
        raise NotImplementedError

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Initializer = "he_uniform",
        b_initializer: Initializer = "zeros",
        shared: LowRank | None = None,
        dora: bool = False,
    ) -> None:
        """Freezes the matrix and adds the trainable product `lora_alpha / rank * A @ B`.

        Other layers stay trainable; set `layer.trainable = False` beforehand to freeze them. Compile the model and open
        pipelines afterwards, since functions traced before do not contain the product.

        Args:
            rank: Number of columns of `A` `(in, rank)` and of rows of `B` `(rank, out)`.
            lora_alpha: Numerator of the scale of the product; `rank` by default.
            a_initializer: A Keras initializer for `A`.
            b_initializer: A Keras initializer for `B`; with zeros, the output of the layer is unchanged at first.
            shared: Layer with the same input whose `A` is that of this layer, too; optional.
            dora: Whether the columns of the sum have trainable lengths, `lora_magnitude` `(out,)`; those of the matrix
                at first.

        Raises:
            InputError: the layer is not built or already has low-rank matrices, or `rank` is not positive.
        """
        if not self.built or self.lora_enabled:
            state = "already has low-rank matrices" if self.lora_enabled else "is not built"
            raise InputError(
                "enable_lora must be called once, after the layer is built. "
                f"Received: layer {self.name!r}, which {state}"
            )
        if not isinstance(rank, int) or rank < 1:
            raise InputError(f"rank must be a positive integer. Received: rank={rank!r}")
        rows, columns = self.matrix.shape
        self._tracker.unlock()
        name = self.matrix.name
        if shared is None:
            self.lora_a = self.add_weight(name=f"{LOW_RANK}{name}_a", shape=(rows, rank), initializer=a_initializer)
        else:
            self.lora_a = shared.lora_a
        self.lora_b = self.add_weight(name=f"{LOW_RANK}{name}_b", shape=(rank, columns), initializer=b_initializer)
        self.matrix.trainable = False
        self.lora_rank, self.lora_alpha, self.lora_enabled = rank, rank if lora_alpha is None else lora_alpha, True
        if dora:
            lengths = ops.norm(ops.cast(self.merged(), "float32"), axis=0)
            name = f"{LOW_RANK}{name}_magnitude"
            self.lora_magnitude = self.add_weight(name=name, shape=(columns,), initializer=lambda *_, **__: lengths)
        self._tracker.lock()
        self.forget_traces()

    def disable_lora(self, merge: bool = False) -> None:
        """Removes the low-rank matrices, if the layer has them; the matrix stays frozen.

        Args:
            merge: Whether to add their product to the matrix before, so that the outputs stay the same.
        """
        if not self.lora_enabled:
            return
        if merge:
            self.matrix.assign(self.merged())
        for variable in (self.lora_a, self.lora_b, self.lora_magnitude):
            if variable is not None:
                self._untrack_variable(variable)
        self.lora_a = self.lora_b = self.lora_magnitude = self.lora_rank = self.lora_alpha = None
        self.lora_enabled = False
        self.forget_traces()

    def forget_traces(self) -> None:
        """Makes functions that were traced before differ from the layer, see `lora_change`."""
        self._lora_change = next(_changes)

    @property
    def low_rank(self) -> primitives.LowRankProduct | None:
        """The low-rank product that is added to what `used_matrix` computes, if there is one."""
        if not self.lora_enabled or self.lora_magnitude is not None:
            return None
        return primitives.LowRankProduct(self.lora_a, self.lora_b, self._lora_scale)

    @property
    def used_matrix(self) -> keras.Variable | Tensor:
        """The matrix, or with DoRA, which does not add to it, the merged matrix."""
        return self.merged() if self.lora_enabled and self.lora_magnitude is not None else self.matrix

    @property
    def _lora_scale(self) -> float:
        alpha, rank = self.lora_alpha, self.lora_rank
        return 0.0 if alpha is None or rank is None else alpha / rank

    def merged(self) -> Tensor:
        """Returns the sum of the matrix and the low-rank product, with DoRA in columns of the trained lengths."""
        matrix = ops.convert_to_tensor(self.matrix)
        if not self.lora_enabled:
            return matrix
        total = matrix + self._lora_scale * ops.matmul(self.lora_a, self.lora_b)
        if self.lora_magnitude is None:
            return total
        # No gradient passes through the lengths, as section 4.3 of the paper suggests.
        lengths = ops.stop_gradient(ops.norm(ops.cast(total, "float32"), axis=0))
        return total * ops.cast(ops.cast(self.lora_magnitude, "float32") / lengths, total.dtype)

    def save_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        """Saves the merged matrix and the other variables of the layer."""
        for index, variable in enumerate(self._saved_variables()):
            store[str(index)] = self.merged() if variable is self.matrix else variable

    def load_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        """Loads the result of `save_own_variables` and resets the low-rank product to zero."""
        if not self.lora_enabled:
            super().load_own_variables(store)
            return
        for index, variable in enumerate(self._saved_variables()):
            variable.assign(store[str(index)])
        self.lora_b.assign(ops.zeros(self.lora_b.shape))
        if self.lora_magnitude is not None:
            self.lora_magnitude.assign(ops.norm(ops.cast(self.matrix, "float32"), axis=0))

    def _saved_variables(self) -> list[keras.Variable]:
        variables = self._trainable_variables + self._non_trainable_variables
        return [variable for variable in variables if not variable.name.startswith(LOW_RANK)]

    def _build_low_rank(self) -> None:
        """Adds the low-rank matrices if the constructor has a `lora_rank`."""
        if self.lora_rank is not None:
            self.enable_lora(self.lora_rank, self.lora_alpha)


def layers_with_lora(model: keras.layers.Layer) -> list[LowRank]:
    """Returns the layers of a model that have low-rank matrices."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, LowRank) and layer.lora_enabled]


def lora_change(model: keras.layers.Layer) -> int:
    """Returns a number that grows whenever low-rank matrices are added to a model, or removed.

    Functions that were traced before do not have, or still have, their products.
    """
    return max((layer._lora_change for layer in model._flatten_layers() if isinstance(layer, LowRank)), default=0)


@contextmanager
def merged_lora(model: keras.layers.Layer) -> Iterator[None]:
    """Context in which the low-rank products are merged into the matrices, to write files without separate products."""
    layers = layers_with_lora(model)
    originals = [ops.convert_to_numpy(layer.matrix) for layer in layers]
    for layer in layers:
        layer.matrix.assign(layer.merged())
        layer.lora_enabled = False
    try:
        yield
    finally:
        for layer, matrix in zip(layers, originals, strict=True):
            layer.matrix.assign(matrix)
            layer.lora_enabled = True


@keras.saving.register_keras_serializable(PACKAGE)
class Dense(LowRank):
    """Linear layer, as `nn.Linear`: `activation(x @ kernel + bias)`.

    The kernel is `(in, out)`, the transpose of PyTorch's weight.

    Args:
        units: Size of the last axis of the output.
        use_bias: Whether to add a bias.
        activation: Name of an activation, see `kerasformer.layers.activation`; `None` for the identity.
        kernel_initializer: A Keras initializer.
        kwargs: `lora_rank` and `lora_alpha` for `enable_lora`, and `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., in)`; the result is `(..., units)`.
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        activation: str | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LowRankOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.use_bias = use_bias
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(..., in)`."""
        shape = (input_shape[-1], self.units)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias") if self.use_bias else None
        self.built = True
        self._build_low_rank()

    @property
    def matrix(self) -> keras.Variable:
        """The kernel."""
        return self.kernel

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return self._activate(self.project(x, self.bias))

    def project(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Computes `x @ kernel + bias`, with a bias of the caller and without the activation."""
        return primitives.linear(x, self.used_matrix, bias, low_rank=self.low_rank)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., in)` to `(..., units)`."""
        return (*input_shape[:-1], self.units)


@keras.saving.register_keras_serializable(PACKAGE)
class Embedding(LowRank):
    """Embedding table `(input_dim, output_dim)`, as `nn.Embedding`, which may also be a tied output projection.

    Args:
        input_dim: Number of rows, such as the size of the vocabulary.
        output_dim: Size of a row.
        embeddings_initializer: A Keras initializer.
        kwargs: `lora_rank` and `lora_alpha` for `enable_lora`, and `keras.layers.Layer` arguments.

    Call arguments:
        ids: Integers `(...)`; the result is `(..., output_dim)`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Initializer = "random_normal",
        **kwargs: Unpack[LowRankOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.autocast = False  # floating-point ids would be rounded to half precision

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the table."""
        shape = (self.input_dim, self.output_dim)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")
        self.built = True
        self._build_low_rank()

    @property
    def matrix(self) -> keras.Variable:
        """The table."""
        return self.embeddings

    def call(self, ids: Tensor) -> Tensor:
        """Looks up rows of the table."""
        ids = as_ids(ids)
        rows = primitives.embedding(self.used_matrix, ids)
        if self.low_rank is not None:
            rows = rows + self._lora_scale * ops.matmul(ops.take(self.lora_a, ids, axis=0), self.lora_b)
        return ops.cast(rows, self.compute_dtype)

    def project(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Computes scores of all rows, `x @ table^T + bias`: `(..., output_dim)` to `(..., input_dim)`."""
        scores = primitives.linear(x, self.used_matrix, bias, transposed=True)
        if self.low_rank is not None:
            low_rank = ops.matmul(x, ops.transpose(ops.convert_to_tensor(self.lora_b)))
            scores = scores + self._lora_scale * ops.matmul(low_rank, ops.transpose(ops.convert_to_tensor(self.lora_a)))
        return scores

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(...)` to `(..., output_dim)`."""
        return (*(input_shape or (None, None)), self.output_dim)


@keras.saving.register_keras_serializable(PACKAGE)
class Dropout(keras.layers.Dropout):
    """Keras dropout with an explicit random number generator on TensorFlow.

    By default TensorFlow derives the key of the generator by an operation (`StatelessRandomGetKeyCounter`) that takes
    most of a training step once XLA compiles it for a CPU.

    Args:
        rate: Fraction of the inputs set to 0 in training.
        kwargs: `keras.layers.Dropout` arguments.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Applies the layer."""
        if keras.backend.backend() != "tensorflow" or not (training and 0 < self.rate < 1):
            return super().call(inputs, training=training)
        import tensorflow as tf

        seed = ops.cast(self.seed_generator.next(), "int32")
        return tf.nn.experimental.stateless_dropout(
            inputs, self.rate, seed, rng_alg="philox", noise_shape=self.noise_shape
        )
