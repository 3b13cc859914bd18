"""Losses of heads that Keras has none for."""

from __future__ import annotations

import keras
from keras import ops

from kerasformer.layers import PACKAGE, Tensor


@keras.saving.register_keras_serializable(PACKAGE)
class SpanCrossentropy(keras.losses.Loss):
    """Cross-entropy of the first and the last token of an answer, over the tokens of a text.

    Call arguments:
        y_true: Numbers of the first and the last token, int32 `(B, 2)`.
        y_pred: Logits of each token for being the first and the last one, `(B, T, 2)`.

    Returns:
        The mean of both losses and all texts.

    Reference: Devlin et al. 2018, arXiv:1810.04805, section 4.2; `BertForQuestionAnswering` of transformers.
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the loss of each text."""
        scores = ops.transpose(y_pred, (0, 2, 1))
        return ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, scores, from_logits=True), axis=-1)
