"""Gradients of a score with respect to the vectors of the tokens, with TensorFlow and JAX.

Shape letters: `B` batch, `T` tokens, `E` size of a token's vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import keras
import numpy as np
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import Embedding, Primitives, Tensor, primitives
from kerasformer.models import EncoderDecoderModel, PretrainedModel

Score = Callable[[Mapping[str, Tensor]], Tensor]
"""Function from the outputs by name to one score for each text, `(B,)`."""


class TokenVectors(Primitives):
    """Primitives in which the first lookup in a table returns vectors of the caller instead.

    Only the first: an encoder-decoder looks up the tokens of its decoder in the same table afterwards.

    Args:
        table: The variable of the table.
        vectors: `(B, T, E)`.
    """

    def __init__(self, table: keras.Variable, vectors: Tensor) -> None:
        self.table = table
        self.vectors: Tensor | None = vectors

    def embedding(self, table: keras.Variable | Tensor, ids: Tensor) -> Tensor:
        """See `Primitives.embedding`."""
        if table is not self.table or self.vectors is None:
            return super().embedding(table, ids)
        vectors, self.vectors = self.vectors, None
        return vectors


class ScoreGradient:
    """The score of a model and its gradient, as a function of the vectors of the tokens.

    Args:
        model: The model. The low-rank matrices of its table of tokens must be merged (`layers.core.merged_lora`).
        inputs: The arrays of one text, `(1, T)` int32, by name.
        score: Function from outputs to scores.

    Raises:
        InputError: the backend of Keras has no gradients here, or the model reads the text twice.
    """

    def __init__(self, model: PretrainedModel, inputs: Mapping[str, np.ndarray], score: Score) -> None:
        if isinstance(model, EncoderDecoderModel):
            raise InputError(
                "The encoder and the decoder of this model both read the text, so that its tokens have no single "
                f"gradient. Expected: method='occlusion'. Received: {type(model).__name__}"
            )
        if keras.backend.backend() not in _GRADIENTS:
            raise InputError(
                f"Gradients need {' or '.join(_GRADIENTS)} as the backend of Keras. Expected also: method='occlusion'. "
                f"Received: {keras.backend.backend()}"
            )
        self.model, self.inputs, self._score = model, dict(inputs), score
        self._table = token_table(model)
        self._values_and_gradients = _GRADIENTS[keras.backend.backend()](model, self._scores)

    def vectors(self, ids: np.ndarray) -> np.ndarray:
        """Returns the vectors of tokens `(T,)`: float32 `(T, E)`."""
        rows = ops.take(self._table.embeddings, ids, axis=0)
        return np.asarray(ops.convert_to_numpy(rows)).astype(np.float32)

    def __call__(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores `(B,)` and gradients `(B, T, E)`, both float32, for vectors `(B, T, E)`."""
        count = len(vectors)
        inputs = {name: np.repeat(array, count, axis=0) for name, array in self.inputs.items()}
        values, gradients = self._values_and_gradients(vectors, inputs)
        return np.asarray(values, np.float32), np.asarray(gradients, np.float32)

    def _scores(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        with primitives.lowering(TokenVectors(self._table.embeddings, vectors)):
            outputs = self.model.named(self.model(inputs, training=False))
        return ops.cast(self._score(outputs), "float32")


def token_table(model: PretrainedModel) -> Embedding:
    """Returns the table in which a model looks up the tokens of its input text."""
    table: Embedding = getattr(model.backbone, "embeddings", model.backbone).tokens
    return table


_Inputs = Mapping[str, np.ndarray]
_Scores = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
_Gradient = Callable[[np.ndarray, _Inputs], tuple[np.ndarray, np.ndarray]]


def _with_tensorflow(model: PretrainedModel, function: _Scores) -> _Gradient:
    import tensorflow as tf

    def gradient(vectors: np.ndarray, inputs: _Inputs) -> tuple[np.ndarray, np.ndarray]:
        variable = tf.convert_to_tensor(vectors)
        with tf.GradientTape() as tape:
            tape.watch(variable)
            values = function(variable, inputs)
        return values.numpy(), tape.gradient(values, variable).numpy()  # texts of a batch do not depend on each other

    return gradient


def _with_jax(model: PretrainedModel, function: _Scores) -> _Gradient:
    import jax

    def total(vectors: Tensor, inputs: Mapping[str, Tensor], weights: list[Tensor]) -> tuple[Tensor, Tensor]:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, weights, strict=True))):
            values = function(vectors, inputs)
        return values.sum(), values

    # Compiled for each number of texts, since JAX would otherwise compile every single operation. Weights are
    # arguments, so that they are no constants of the program.
    compiled = jax.jit(jax.value_and_grad(total, has_aux=True))

    def gradient(vectors: np.ndarray, inputs: _Inputs) -> tuple[np.ndarray, np.ndarray]:
        (_, values), gradients = compiled(vectors, dict(inputs), [variable.value for variable in model.variables])
        return np.asarray(values), np.asarray(gradients)

    return gradient


_GRADIENTS: dict[str, Callable[[PretrainedModel, _Scores], _Gradient]] = {
    "tensorflow": _with_tensorflow,
    "jax": _with_jax,
}
"""Functions that make one which computes scores and gradients of vectors and inputs, by the name of the backend."""
