"""The layers that hold nearly all weights, `nn.Linear` and `nn.Embedding`, and what all layers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.tensor import Tensor

PACKAGE = "kerasformer"


def build_once(layer: keras.layers.Layer, input_shape: Any = None) -> None:
    """Creates the layer's weights, unless it has them: a layer that was given to another may be built already."""
    if not layer.built:
        layer.build(input_shape)


def serialize_part(layer: keras.layers.Layer | None) -> dict[str, Any] | None:
    """A layer's serialized form, for the config of the layer that holds it.

    Without the shapes it was built for: the holder builds it anew, so that its variables have the holder's path.
    """
    if layer is None:
        return None
    return {name: x for name, x in keras.saving.serialize_keras_object(layer).items() if name != "build_config"}


def packed(output: Tensor, wanted: bool, **more: Any) -> Any:
    """What every layer returns: one tensor, or a dictionary if more than that was asked for.

    Args:
        output: Under `"output"` in the dictionary.
        wanted: A dictionary was asked for.
        more: Its other entries; `None` makes none.
    """
    if not wanted:
        return output
    return {"output": output, **{name: value for name, value in more.items() if value is not None}}


def unpacked(result: Any) -> dict[str, Any]:
    """The dictionary form of what `packed` returned."""
    return dict(result) if isinstance(result, dict) else {"output": result}


def as_ids(ids: Tensor) -> Tensor:
    """Integers of an array that may hold them as floats: Keras builds a saved model with inputs of its float type."""
    dtype = keras.backend.standardize_dtype(getattr(ids, "dtype", "float32"))
    return ids if keras.backend.is_int_dtype(dtype) else ops.cast(ids, "int32")


LOW_RANK = "lora_"
"""How the names of low-rank variables begin."""


class Flagged(keras.layers.Layer):
    """A layer of which flags of the call ask for more than one tensor, see `packed`."""

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Traces the call: its arguments decide whether one tensor comes out or a dictionary."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        """The input's shape."""
        return input_shape


class Composite(Flagged):
    """A layer that is made of other layers."""

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The parts, which `model.summary(expand_nested=True)` lists."""
        return list(self._flatten_layers(include_self=False, recursive=False))

    def __dir__(self) -> list[str]:
        # Keras names the weights in a file by the attributes that it finds here: those of the parts themselves.
        return [name for name in super().__dir__() if name != "layers"]


class LowRank(keras.layers.Layer):
    """A layer with one matrix that can be fine-tuned by a product of two thin ones, as Keras' own layers can.

    A file holds the sum of the matrix and the product; a layer that is loaded from it has no product.

    Reference: Hu et al. 2021, arXiv:2106.09685.
    """

    def __init__(self, lora_rank: int | None = None, lora_alpha: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lora_rank, self.lora_alpha, self.lora_enabled = lora_rank, lora_alpha, False

    @property
    def matrix(self) -> Any:
        """The variable `(in, out)`."""
        raise NotImplementedError

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freezes the matrix and adds `lora_alpha / rank * A @ B`, of which `A` and `B` are trained.

        The other layers are trained as before; `layer.trainable = False` beforehand freezes them. A model is compiled,
        and a pipeline opened, after this: a function that was traced before has no low-rank matrices.

        Args:
            rank: Columns of `A` `(in, rank)` and rows of `B` `(rank, out)`.
            lora_alpha: `rank` by default.
            a_initializer: A Keras initializer.
            b_initializer: A Keras initializer; with zeros the layer's output does not change at first.

        Raises:
            InputError: the layer is not built, has low-rank matrices already, or `rank` is not positive.
        """
        if not self.built or self.lora_enabled:
            state = "has low-rank matrices already" if self.lora_enabled else "is not built"
            raise InputError(
                f"enable_lora is called once, on a layer that is built. Received: layer {self.name!r}, which {state}"
            )
        if not isinstance(rank, int) or rank < 1:
            raise InputError(f"rank must be a positive integer. Received: rank={rank!r}")
        rows, columns = self.matrix.shape
        self._tracker.unlock()
        name = self.matrix.name
        self.lora_a = self.add_weight(name=f"{LOW_RANK}{name}_a", shape=(rows, rank), initializer=a_initializer)
        self.lora_b = self.add_weight(name=f"{LOW_RANK}{name}_b", shape=(rank, columns), initializer=b_initializer)
        self._tracker.lock()
        self.matrix.trainable = False
        self.lora_rank, self.lora_alpha, self.lora_enabled = rank, lora_alpha or rank, True

    @property
    def _lora_scale(self) -> float:
        return (self.lora_alpha or 1) / (self.lora_rank or 1)

    def merged(self) -> Tensor:
        """The matrix with the product added to it."""
        matrix = ops.convert_to_tensor(self.matrix)
        return matrix + self._lora_scale * ops.matmul(self.lora_a, self.lora_b) if self.lora_enabled else matrix

    def save_own_variables(self, store: Any) -> None:
        """Writes the merged matrix and the other variables of the layer."""
        for index, variable in enumerate(self._saved_variables()):
            store[str(index)] = self.merged() if variable is self.matrix else variable

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote; the product begins at zero again."""
        if not self.lora_enabled:
            super().load_own_variables(store)
            return
        for index, variable in enumerate(self._saved_variables()):
            variable.assign(store[str(index)])
        self.lora_b.assign(ops.zeros(self.lora_b.shape))

    def _saved_variables(self) -> list[Any]:
        own = self._trainable_variables + self._non_trainable_variables
        return [variable for variable in own if not variable.name.startswith(LOW_RANK)]

    def _build_low_rank(self) -> None:
        """Enables the low-rank matrices that the constructor asked for."""
        if self.lora_rank is not None:
            self.enable_lora(self.lora_rank, self.lora_alpha)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        low_rank = {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        return {**super().get_config(), **({} if self.lora_rank is None else low_rank)}


def adapted(model: keras.layers.Layer) -> list[LowRank]:
    """The parts of a model that have low-rank matrices; a function that was traced before they had has none."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, LowRank) and layer.lora_enabled]


@contextmanager
def merged_lora(model: keras.layers.Layer) -> Iterator[None]:
    """Within this context the matrices of all layers hold their low-rank products, for a file that knows none."""
    layers = adapted(model)
    before = [ops.convert_to_numpy(layer.matrix) for layer in layers]
    for layer in layers:
        layer.matrix.assign(layer.merged())
        layer.lora_enabled = False
    try:
        yield
    finally:
        for layer, matrix in zip(layers, before, strict=True):
            layer.matrix.assign(matrix)
            layer.lora_enabled = True


@keras.saving.register_keras_serializable(PACKAGE)
class Dense(LowRank):
    """`nn.Linear`: `y = activation(x @ kernel + bias)`. The kernel is `(in, out)`, the transpose of PyTorch's.

    Args:
        units: Size of the output's last axis.
        use_bias: Adds a learned vector.
        activation: A name that `kerasformer.layers.activation` knows, or `None`.
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
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.use_bias = use_bias
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis has `input_shape[-1]` entries."""
        shape = (input_shape[-1], self.units)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias") if self.use_bias else None
        self.built = True
        self._build_low_rank()

    @property
    def matrix(self) -> Any:
        """The kernel."""
        return self.kernel

    def call(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        y = primitives.linear(x, self.kernel, self.bias)
        if self.lora_enabled:
            y = y + self._lora_scale * ops.matmul(ops.matmul(x, self.lora_a), self.lora_b)
        return self._activate(y)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(..., in)` to `(..., units)`."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        own = {"units": self.units, "use_bias": self.use_bias, "activation": self.activation}
        return {**super().get_config(), **own, "kernel_initializer": initializer}


@keras.saving.register_keras_serializable(PACKAGE)
class Embedding(LowRank):
    """`nn.Embedding`: a table `(input_dim, output_dim)` whose rows are looked up, and which may also be the output.

    Args:
        input_dim: Rows, such as the size of the vocabulary.
        output_dim: Size of a row.
        embeddings_initializer: A Keras initializer.
        kwargs: `lora_rank` and `lora_alpha` for `enable_lora`, and `keras.layers.Layer` arguments.

    Call arguments:
        ids: Integers `(...)`; the result is `(..., output_dim)`.
    """

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: Any = "random_normal", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.autocast = False  # ids that come as floats would be rounded to half precision

    def build(self, input_shape: Any = None) -> None:
        """Creates the table."""
        shape = (self.input_dim, self.output_dim)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")
        self.built = True
        self._build_low_rank()

    @property
    def matrix(self) -> Any:
        """The table."""
        return self.embeddings

    def call(self, ids: Tensor) -> Tensor:
        """Looks rows up."""
        ids = as_ids(ids)
        rows = primitives.embedding(self.embeddings, ids)
        if self.lora_enabled:
            rows = rows + self._lora_scale * ops.matmul(ops.take(self.lora_a, ids, axis=0), self.lora_b)
        return ops.cast(rows, self.compute_dtype)

    def project(self, x: Tensor, bias: Any = None) -> Tensor:
        """Scores of every row: `x @ table^T + bias`, `(..., output_dim)` to `(..., input_dim)` (a tied output)."""
        scores = primitives.linear(x, self.embeddings, bias, transposed=True)
        if self.lora_enabled:
            thin = ops.matmul(x, ops.transpose(ops.convert_to_tensor(self.lora_b)))
            scores = scores + self._lora_scale * ops.matmul(thin, ops.transpose(ops.convert_to_tensor(self.lora_a)))
        return scores

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(...)` to `(..., output_dim)`."""
        return (*(input_shape or (None, None)), self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        own = {"input_dim": self.input_dim, "output_dim": self.output_dim, "embeddings_initializer": initializer}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(PACKAGE)
class Dropout(keras.layers.Dropout):
    """Keras' own dropout, with a named random generator on TensorFlow.

    Without a name TensorFlow derives the generator's key by an operation (`StatelessRandomGetKeyCounter`) that is a
    hundred times as slow as the rest once XLA compiles it for a CPU: most of a training step with `jit_compile=True`.

    Args:
        rate: Share of the numbers that become 0, in training.
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
