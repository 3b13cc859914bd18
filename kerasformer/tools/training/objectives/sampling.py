"""Scheduled sampling: a decoder learns to continue its own predictions, instead of right tokens alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from kerasformer.basics.arguments import check, number
from kerasformer.errors import InputError
from kerasformer.layers import PACKAGE, LayerConfig, Tensor
from kerasformer.models import PretrainedModel
from kerasformer.tools.training.objectives.wrapped import WrappedModel


@keras.saving.register_keras_serializable(PACKAGE)
class InverseSigmoidDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Probability of right tokens `k / (k + exp(step / k))`, which falls slowly, then fast, then slowly.

    The other schedules of the paper are `keras.optimizers.schedules.PolynomialDecay` (linear) and `ExponentialDecay`.

    Args:
        k: At least 1; the probability is about one half after `k * log(k)` steps.

    Raises:
        InputError: `k` is less than 1.

    Reference: Bengio et al. 2015, arXiv:1506.03099, section 2.4.
    """

    def __init__(self, k: float) -> None:
        self.k = check("k", k, number(1))

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the probability after a number of steps."""
        return ops.sigmoid(ops.log(ops.cast(self.k, "float32")) - ops.cast(step, "float32") / self.k)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {"k": self.k}


@keras.saving.register_keras_serializable(PACKAGE)
class ScheduledSampling(WrappedModel):
    """A generative model whose decoder reads some of its own predictions in training.

    A Transformer computes all positions of a text at once. A first pass therefore reads the right tokens (teacher
    forcing), and the second pass, whose output is trained, reads the most probable tokens of the first one at random
    positions. No gradient passes through the first pass. Outside of training, all tokens are the right ones.

    Args:
        model: Encoder-decoder or decoder-only language model.
        probability: Probability that a token is the right one: a number, or a schedule of the step such as
            `InverseSigmoidDecay`.
        seed: Seed of the positions.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: The inputs of the model.

    Returns:
        Logits `(B, T, V)`.

    Raises:
        InputError: the model does not generate, or a probability that is not from 0 to 1.

    Reference: Bengio et al. 2015, arXiv:1506.03099, section 2.3; for Transformers: Mihaylova and Martins 2019,
    arXiv:1906.07651, section 3.
    """

    def __init__(
        self,
        model: PretrainedModel,
        probability: float | keras.optimizers.schedules.LearningRateSchedule,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not model.generates:
            raise InputError(
                "Scheduled sampling needs a model that generates. Expected: task='text-generation' or "
                f"'text2text-generation'. Received: {type(model).__name__} for {model.task}"
            )
        if not callable(probability):
            check("probability", probability, number(0, 1))
        self.model, self.probability, self.seed = model, probability, seed
        self.random = keras.random.SeedGenerator(seed)
        self.step = self.add_weight(shape=(), initializer="zeros", trainable=False, name="step")

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Applies the model, twice in training."""
        if not training:
            return self.model(inputs)
        name = "decoder_input_ids" if self.model.is_encoder_decoder else "input_ids"
        ids = ops.cast(inputs[name], "int32")
        predicted = ops.cast(ops.argmax(self.model(inputs, training=True), axis=-1), "int32")
        # The prediction at a position is the token at the next one; the first token is always right.
        predicted = ops.concatenate([ids[:, :1], predicted[:, :-1]], axis=1)
        share = self.probability(self.step) if callable(self.probability) else self.probability
        right = keras.random.uniform(ops.shape(ids), seed=self.random) < ops.cast(share, "float32")
        self.step.assign_add(1.0)
        return self.model({**inputs, name: ops.where(right, ids, predicted)}, training=True)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        probability = self.probability
        if callable(probability):
            probability = keras.optimizers.schedules.serialize(probability)
        return {**super().get_config(), "probability": probability, "seed": self.seed}

    @classmethod
    def from_config(cls, config: LayerConfig, custom_objects: Any = None) -> ScheduledSampling:
        """Creates a model from the result of `get_config`."""
        probability = config["probability"]
        if isinstance(probability, dict):
            probability = keras.optimizers.schedules.deserialize(probability, custom_objects)
        return super().from_config({**config, "probability": probability}, custom_objects)
