"""What stands on top of a Transformer: one small layer for each kind of answer."""

from __future__ import annotations

from typing import Any

import keras

from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.core import PACKAGE, Composite, Dense, Dropout, Embedding, build_once
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.tensor import Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class ClassificationHead(Composite):
    """Scores of the classes, from one vector (a text, by its first token) or from every token's vector.

    Args:
        num_labels: Classes.
        hidden_dim: Size of a layer before the output (DistilBERT); none by default.
        activation: Of that layer.
        use_bias: The output has a bias.
        dropout: Rate before the output, in training.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, E)` or `(B, T, E)`; the result is `(B, num_labels)` or `(B, T, num_labels)`.
    """

    def __init__(
        self,
        num_labels: int,
        hidden_dim: int | None = None,
        activation: str = "tanh",
        use_bias: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_labels, self.hidden_dim = num_labels, hidden_dim
        self.activation, self.use_bias, self.dropout = activation, use_bias, dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        policy, initializer = self.dtype_policy, keras.initializers.serialize(self.kernel_initializer)
        self.dense = None
        if hidden_dim:
            self.dense = Dense(
                hidden_dim, activation=activation, kernel_initializer=initializer, name="dense", dtype=policy
            )
        self.output_dropout = Dropout(dropout, name="dropout", dtype=policy)
        self.output_dense = Dense(num_labels, use_bias, kernel_initializer=initializer, name="output", dtype=policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis is `E`."""
        if self.dense is not None:
            build_once(self.dense, input_shape)
        build_once(self.output_dense, (*input_shape[:-1], self.hidden_dim or input_shape[-1]))

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the head."""
        if self.dense is not None:
            x = self.dense(x)
        return self.output_dense(self.output_dropout(x, training=training))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(..., E)` to `(..., num_labels)`."""
        return (*input_shape[:-1], self.num_labels)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        names = ("num_labels", "hidden_dim", "activation", "use_bias", "dropout")
        own = {name: getattr(self, name) for name in names}
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {**super().get_config(), **own, "kernel_initializer": initializer}


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedLMHead(Composite):
    """Scores of the vocabulary for every token: dense, activation, norm, then the (tied) word embeddings and a bias.

    Args:
        vocab_size: Scores `V`.
        hidden_dim: Size of the dense layer, and of a row of the embedding table.
        activation: Of the dense layer.
        epsilon: Of the norm.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        embedding: The `Embedding` whose table is the output projection; passed by name, as Keras wants of a layer.

    Returns:
        `(B, T, V)`.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3.1.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_dim = vocab_size, hidden_dim
        self.activation, self.epsilon = activation, epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)
        initializer = keras.initializers.serialize(self.kernel_initializer)
        self.dense = Dense(hidden_dim, kernel_initializer=initializer, name="dense", dtype=self.dtype_policy)
        self.norm = LayerNormalization(epsilon, name="norm", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        build_once(self.dense, input_shape)
        build_once(self.norm, (*input_shape[:-1], self.hidden_dim))
        self.bias = self.add_weight(shape=(self.vocab_size,), initializer="zeros", name="bias")

    def call(self, x: Tensor, embedding: Embedding) -> Tensor:
        """Applies the head."""
        return embedding.project(self.norm(self._activate(self.dense(x))), self.bias)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """`(..., E)` to `(..., V)`."""
        return (*input_shape[:-1], self.vocab_size)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {name: getattr(self, name) for name in ("vocab_size", "hidden_dim", "activation", "epsilon")}
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {**super().get_config(), **own, "kernel_initializer": initializer}
