"""Multiple choice: which of several texts follows another (SWAG)."""

from __future__ import annotations

from collections.abc import Mapping

import keras
from keras import ops

from kerasformer.errors import InputError
from kerasformer.layers import PACKAGE, Shape, Tensor
from kerasformer.models import PretrainedModel
from kerasformer.tools.training.objectives.wrapped import WrappedModel


@keras.saving.register_keras_serializable(PACKAGE)
class MultipleChoice(WrappedModel):
    """Trains a classifier of pairs with one class to score each of several texts that may follow another.

        model = kf.load("bert-base-uncased", "text-classification", labels=["follows"])
        chooser = kf.training.MultipleChoice(model)
        texts = [{"text": "She opens the door.", "choices": ["It rains.", "It eats."]}]
        data = kf.training.dataset(chooser, texts, [0])
        chooser.compile("adamw", data.loss, metrics=data.metrics)

    The classifier is saved, exported and run by itself; the pipeline for text-ranking ranks the choices. Its tensors
    are those of `BertForMultipleChoice` and of the other classes of `transformers` for multiple choice.

    Args:
        model: Text classifier with one class.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: Inputs of the classifier by name, `(B, C, T)` for `C` choices.

    Returns:
        Logits of the choices, `(B, C)`.

    Raises:
        InputError: another model.

    Reference: Zellers et al. 2018, arXiv:1808.05326; Devlin et al. 2018, arXiv:1810.04805, section 4.4.
    """

    def __init__(self, model: PretrainedModel, **kwargs: str) -> None:
        if model.task != "text-classification" or model.config.num_labels != 1:
            raise InputError(
                "A model for text-classification with one class was expected, such as kf.load(…, "
                f"'text-classification', labels=['follows']). Received: a model for {model.task}"
            )
        super().__init__(**kwargs)
        self.model = model

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Returns the logits of the choices."""
        shape = ops.shape(inputs["input_ids"])
        flat = {name: ops.reshape(value, (-1, shape[2])) for name, value in inputs.items()}
        return ops.reshape(self.model(flat, training=training), (-1, shape[1]))

    def compute_output_shape(self, input_shape: Mapping[str, Shape]) -> Shape:
        """Maps `(B, C, T)` to `(B, C)`."""
        return tuple(input_shape["input_ids"][:2])
