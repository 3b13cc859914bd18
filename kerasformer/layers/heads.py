"""Output layers of Transformers for classification and language modelling."""

from __future__ import annotations

from typing import Any, Unpack

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import primitives
from kerasformer.layers.activations import activation as get_activation
from kerasformer.layers.core import (
    PACKAGE,
    Composite,
    Configured,
    Dense,
    Dropout,
    Embedding,
    LowRank,
    build_once,
)
from kerasformer.layers.feed_forward import FeedForward
from kerasformer.layers.layer_types import Initializer, LayerOptions, LowRankOptions
from kerasformer.layers.norms import LayerNormalization
from kerasformer.layers.tensor import Tensor, scaled


@keras.saving.register_keras_serializable(PACKAGE)
class ClassificationHead(Configured, Composite):
    """Classification head: an optional dense layer and an output layer, for whole texts or for each token.

    Args:
        num_labels: Number of classes.
        hidden_dim: Size of a dense layer before the output (DistilBERT); `None` for no such layer.
        activation: Name of the activation of the dense layer.
        use_bias: Whether the output layer has a bias.
        dropout: Dropout rate before the output layer.
        input_dropout: Dropout rate of the input.
        kernel_initializer: A Keras initializer.
        dense_bias: Whether the dense layer has a bias.
        epsilon: Epsilon of a norm after the dense layer (ModernBERT); `None` for no norm.
        norm_bias: Whether the norm has a bias.
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
        input_dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        dense_bias: bool = True,
        epsilon: float | None = None,
        norm_bias: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_labels, self.hidden_dim, self.input_dropout = num_labels, hidden_dim, input_dropout
        self.activation, self.use_bias, self.dropout = activation, use_bias, dropout
        self.dense_bias, self.epsilon, self.norm_bias = dense_bias, epsilon, norm_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        policy, initializer = self.dtype_policy, keras.initializers.serialize(self.kernel_initializer)
        self.dense = self.norm = None
        self.first_dropout = Dropout(input_dropout, name="input_dropout", dtype=policy) if input_dropout else None
        if hidden_dim:
            self.dense = Dense(hidden_dim, dense_bias, activation, initializer, name="dense", dtype=policy)
        if epsilon is not None:
            self.norm = LayerNormalization(epsilon, norm_bias, name="norm", dtype=policy)
        self.output_dropout = Dropout(dropout, name="dropout", dtype=policy)
        self.output_dense = Dense(num_labels, use_bias, kernel_initializer=initializer, name="output", dtype=policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis is `E`."""
        if self.dense is not None:
            build_once(self.dense, input_shape)
        shape = (*input_shape[:-1], self.hidden_dim or input_shape[-1])
        if self.norm is not None:
            build_once(self.norm, shape)
        build_once(self.output_dense, shape)

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the head."""
        if self.first_dropout is not None:
            x = self.first_dropout(x, training=training)
        if self.dense is not None:
            x = self.dense(x)
        if self.norm is not None:
            x = self.norm(x)
        return self.output_dense(self.output_dropout(x, training=training))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., E)` to `(..., num_labels)`."""
        return (*input_shape[:-1], self.num_labels)


@keras.saving.register_keras_serializable(PACKAGE)
class FeedForwardHead(Configured, Composite):
    """Classification head of a feed-forward network with residual connection and norm, and an output layer (BigBird).

    Args:
        num_labels: Number of classes.
        hidden_dim: Size `E` of the input.
        intermediate_dim: Size of the intermediate layer of the feed-forward network.
        activation: Name of the activation of the feed-forward network.
        epsilon: Epsilon of the norm.
        dropout: Dropout rate of the input and of the output of the feed-forward network.
        kernel_initializer: A Keras initializer.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(..., E)`; the result is `(..., num_labels)`.
    """

    def __init__(
        self,
        num_labels: int,
        hidden_dim: int,
        intermediate_dim: int,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_labels, self.hidden_dim, self.intermediate_dim = num_labels, hidden_dim, intermediate_dim
        self.activation, self.epsilon, self.dropout = activation, epsilon, dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        options = {"kernel_initializer": keras.initializers.serialize(self.kernel_initializer)}
        options["dtype"] = self.dtype_policy
        self.feed_forward = FeedForward(hidden_dim, intermediate_dim, activation, name="feed_forward", **options)
        self.norm = LayerNormalization(epsilon, name="norm", dtype=self.dtype_policy)
        self.residual_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.output_dense = Dense(num_labels, name="output", **options)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs whose last axis is `E`."""
        for layer in (self.feed_forward, self.norm, self.output_dense):
            build_once(layer, input_shape)

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Applies the head."""
        y = self.feed_forward(self.residual_dropout(x, training=training), training=training)
        return self.output_dense(self.norm(primitives.residual(x, self.residual_dropout(y, training=training))))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., E)` to `(..., num_labels)`."""
        return (*input_shape[:-1], self.num_labels)


def required(embedding: Embedding | None) -> Embedding:
    """Returns the token embeddings, which a tied head requires.

    Raises:
        InputError: they are `None`.
    """
    if embedding is None:
        raise InputError("A tied head requires the token embeddings. Expected: embedding=Embedding. Received: None")
    return embedding


def _with_rows_of(kernel: keras.Variable, embedding: Embedding) -> keras.Variable:
    kernel.assign(ops.transpose(ops.convert_to_tensor(embedding.embeddings)))
    return kernel


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedLMHead(Configured, Composite):
    """Masked language modelling head: dense, activation and norm, then the token embeddings and a bias.

    Args:
        vocab_size: Size `V` of the vocabulary.
        hidden_dim: Size of the dense layer.
        activation: Name of the activation of the dense layer.
        epsilon: Epsilon of the norm.
        kernel_initializer: A Keras initializer.
        dense_bias: Whether the dense layer has a bias.
        norm_bias: Whether the norm has a bias.
        use_bias: Whether a bias is added to the scores.
        embedding_dim: Size of the token embeddings, `hidden_dim` by default. If they are smaller, a matrix of this
            layer, `extension`, projects the other entries of the dense layer's output (MobileBERT).
        tied: Whether the table of the token embeddings is the output projection; otherwise the layer has its own,
            `projection`.
        kwargs: `keras.layers.Layer` arguments.

    Call arguments:
        x: `(B, T, E)`.
        embedding: The token `Embedding`, required by a tied head; a keyword argument, since Keras accepts no layers as
            positional arguments.

    Returns:
        `(B, T, V)`.

    Raises:
        InputError: `embedding_dim` exceeds `hidden_dim`, or a call of a tied head without `embedding`.

    Reference: Devlin et al. 2019, arXiv:1810.04805, section 3.1; extension: `transformers.models.mobilebert`.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        kernel_initializer: Initializer = "glorot_uniform",
        dense_bias: bool = True,
        norm_bias: bool = True,
        use_bias: bool = True,
        embedding_dim: int | None = None,
        tied: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.tied = tied
        self.embedding_dim = hidden_dim if embedding_dim is None else embedding_dim
        if self.embedding_dim > hidden_dim:
            raise InputError(
                "embedding_dim must be at most hidden_dim, the size of the dense layer. "
                f"Received: embedding_dim={embedding_dim}, hidden_dim={hidden_dim}"
            )
        self.vocab_size, self.hidden_dim = vocab_size, hidden_dim
        self.activation, self.epsilon = activation, epsilon
        self.dense_bias, self.norm_bias, self.use_bias = dense_bias, norm_bias, use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._activate = get_activation(activation)
        initializer = keras.initializers.serialize(self.kernel_initializer)
        policy = self.dtype_policy
        self.dense = Dense(hidden_dim, dense_bias, kernel_initializer=initializer, name="dense", dtype=policy)
        self.norm = LayerNormalization(epsilon, norm_bias, name="norm", dtype=policy)
        self.extension = None
        if self.embedding_dim < hidden_dim:
            self.extension = Dense(vocab_size, False, kernel_initializer=initializer, name="extension", dtype=policy)
        self.projection = None
        if not tied:
            self.projection = Dense(vocab_size, False, kernel_initializer=initializer, name="projection", dtype=policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs `(B, T, E)`."""
        build_once(self.dense, input_shape)
        build_once(self.norm, (*input_shape[:-1], self.hidden_dim))
        if self.extension is not None:
            build_once(self.extension, (*input_shape[:-1], self.hidden_dim - self.embedding_dim))
        if self.projection is not None:
            build_once(self.projection, (*input_shape[:-1], self.embedding_dim))
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.vocab_size,), initializer="zeros", name="bias")

    def call(self, x: Tensor, embedding: Embedding | None = None) -> Tensor:
        """Applies the head."""
        y = self.norm(self._activate(self.dense(x)))
        if self.extension is None:
            return self._scores(y, embedding)
        scores = self._scores(y[..., : self.embedding_dim], embedding)
        return scores + self.extension(y[..., self.embedding_dim :])

    def _scores(self, x: Tensor, embedding: Embedding | None) -> Tensor:
        if self.projection is not None:
            return self.projection.project(x, self.bias)
        return required(embedding).project(x, self.bias)

    def untie(self, embedding: Embedding) -> keras.Variable:
        """Gives the built layer a projection of its own, with the values of the token embeddings; returns it."""
        self._tracker.unlock()
        self.projection = Dense(self.vocab_size, False, name="projection", dtype=self.dtype_policy)
        self._tracker.lock()
        with keras.name_scope(self.name, caller=self):
            self.projection.build((None, self.embedding_dim))
        self.tied = False
        return _with_rows_of(self.projection.kernel, embedding)

    def tie(self) -> None:
        """Removes the projection, so that the token embeddings are the output projection."""
        self._layers.remove(self.projection)
        self.projection, self.tied = None, True
        self.dense.forget_traces()

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., E)` to `(..., V)`."""
        return (*input_shape[:-1], self.vocab_size)


@keras.saving.register_keras_serializable(PACKAGE)
class LMHead(LowRank):
    """Language modelling head: an output projection, which may be tied to the token embeddings.

    Args:
        vocab_size: Size `V` of the vocabulary.
        tied: Whether the projection is the table of the token embeddings; otherwise the layer has a kernel.
        use_bias: Whether to add a bias `(V,)` (GPT-J; `final_logits_bias` of BART).
        train_bias: Whether the bias is trainable (not in BART).
        scale: Factor of the hidden states before the projection (T5).
        softcap: Limits the scores to this range by `softcap * tanh(scores / softcap)`; optional (Gemma 2).
        kernel_initializer: A Keras initializer for the kernel.
        kwargs: `lora_rank` and `lora_alpha` for `enable_lora`, and `keras.layers.Layer` arguments.

    Call arguments:
        x: Hidden states `(B, T, E)`.
        embedding: The token `Embedding`, required by a tied head; a keyword argument, since Keras accepts no layers as
            positional arguments.

    Returns:
        `(B, T, V)`.

    Raises:
        InputError: a call of a tied head without `embedding`.

    Reference: Press and Wolf 2017, arXiv:1608.05859.
    """

    def __init__(
        self,
        vocab_size: int,
        tied: bool = True,
        use_bias: bool = False,
        train_bias: bool = True,
        scale: float = 1.0,
        softcap: float | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LowRankOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size, self.tied, self.use_bias = vocab_size, tied, use_bias
        self.train_bias = train_bias
        self.scale, self.softcap = scale, softcap
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the kernel and the bias, if the head has them, for inputs `(B, T, E)`."""
        shape = (input_shape[-1], self.vocab_size)
        self.kernel = self.bias = None
        if not self.tied:
            self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        if self.use_bias:
            options = {"initializer": "zeros", "name": "bias", "trainable": self.train_bias}
            self.bias = self.add_weight(shape=(self.vocab_size,), **options)
        self.built = True
        self._build_low_rank()

    @property
    def matrix(self) -> keras.Variable:
        """The kernel, `None` for a tied head."""
        return self.kernel

    def enable_lora(self, rank: int, *args: Any, **kwargs: Any) -> None:
        """Adds low-rank matrices to the kernel, see `LowRank.enable_lora`; a tied head has none."""
        if self.tied:
            raise InputError(
                "A tied head has no kernel. Call enable_lora on the token embeddings instead. "
                f"Received: layer {self.name!r}, which is tied"
            )
        super().enable_lora(rank, *args, **kwargs)

    def untie(self, embedding: Embedding) -> keras.Variable:
        """Gives the built layer a kernel of its own, with the values of the token embeddings; returns it."""
        self._tracker.unlock()
        shape = (embedding.output_dim, self.vocab_size)
        self.kernel = self.add_weight(shape=shape, initializer="zeros", name="kernel")
        self._tracker.lock()
        self.tied = False
        self.forget_traces()
        return _with_rows_of(self.kernel, embedding)

    def tie(self) -> None:
        """Removes the kernel, so that the token embeddings are the output projection."""
        self._untrack_variable(self.kernel)
        self.kernel, self.tied = None, True
        self.forget_traces()

    def call(self, x: Tensor, embedding: Embedding | None = None) -> Tensor:
        """Applies the head."""
        x = scaled(x, self.scale)
        if self.tied:
            scores = required(embedding).project(x, self.bias)
        else:
            scores = primitives.linear(x, self.used_matrix, self.bias, low_rank=self.low_rank)
        return scores if self.softcap is None else self.softcap * ops.tanh(scores / self.softcap)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Maps `(..., E)` to `(..., V)`."""
        return (*input_shape[:-1], self.vocab_size)
