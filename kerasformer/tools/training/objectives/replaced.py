"""Detection of replaced tokens: ELECTRA's generator and discriminator in one model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops
from keras.src.backend import set_keras_mask

from kerasformer.basics.arguments import check, number
from kerasformer.errors import InputError
from kerasformer.layers import PACKAGE, LayerConfig, Tensor
from kerasformer.models import PretrainedModel
from kerasformer.tools.training.objectives.batches import IGNORED
from kerasformer.tools.training.objectives.wrapped import WrappedModel

_SHARED = ("tokens", "positions", "segments", "norm")
"""Parts of the embeddings that generator and discriminator have in common; their projections differ."""


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedBinaryCrossentropy(keras.losses.Loss):
    """Binary cross-entropy from logits of the positions that count, as `torch.nn.BCEWithLogitsLoss` of these alone.

    Args:
        ignore_class: Label of positions that do not count, such as padding.
        kwargs: `keras.losses.Loss` arguments.

    Call arguments:
        y_true: Labels 0, 1 or `ignore_class`, `(...)`.
        y_pred: Logits `(...)`.

    Returns:
        The mean over all positions that count, 0 if there are none; with `reduction="none"`, the loss of each `(...)`.
    """

    def __init__(self, ignore_class: int = IGNORED, name: str = "masked_binary_crossentropy", **kwargs: object) -> None:
        super().__init__(name=name, **kwargs)
        self.ignore_class = ignore_class

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Computes the loss of each position."""
        labels = ops.cast(y_true, y_pred.dtype)
        counts = ops.not_equal(labels, self.ignore_class)
        # log(1 + e^-x) for the label 1 and log(1 + e^x) for 0, without overflow.
        losses = ops.where(counts, ops.softplus(y_pred) - ops.where(counts, labels, 0.0) * y_pred, 0.0)
        set_keras_mask(losses, mask=counts)
        return losses

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(PACKAGE)
class ReplacedTokens(WrappedModel):
    """ELECTRA's pretraining: a generator fills masked tokens, and a discriminator finds those that it got wrong.

    The generator learns masked language modelling. Its tokens are drawn from its distribution, and no gradient passes
    through them. The loss is that of the generator plus `discriminator_weight` times that of the discriminator over all
    real tokens; `compile` needs an optimizer alone. The token, position and segment embeddings of the generator become
    those of the discriminator.

        electra = kf.training.ReplacedTokens(generator, discriminator)
        electra.compile(keras.optimizers.AdamW(5e-4))
        electra.fit(dataset)
        discriminator.save_pretrained("electra")

    Args:
        generator: Masked language model, a quarter to a half of the size of the discriminator.
        discriminator: Model for replaced-token-detection.
        discriminator_weight: Weight of the loss of the discriminator.
        seed: Seed of the tokens that the generator draws.
        kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: The arrays of `kerasformer.tools.training.replaced_tokens`: those of both models and `original_ids`,
            `(B, T)`.

    Returns:
        Dictionary of the generator's `prediction_logits` `(B, T, V)`, the discriminator's `replaced_logits` `(B, T)`,
        and `replaced` `(B, T)`, 1 for a token that is not the original and -100 for padding.

    Raises:
        InputError: the models have other tasks, or their embeddings differ in size.

    Reference: Clark et al. 2020, arXiv:2003.10555, sections 2 and 3.2.
    """

    parts = ("generator", "discriminator")

    def __init__(
        self,
        generator: PretrainedModel,
        discriminator: PretrainedModel,
        discriminator_weight: float = 50.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        tasks = generator.task, discriminator.task
        if tasks != ("fill-mask", "replaced-token-detection"):
            raise InputError(
                "ELECTRA trains a generator and a discriminator. Expected: models for fill-mask and "
                f"replaced-token-detection. Received: {tasks[0]} and {tasks[1]}"
            )
        self.discriminator_weight = check("discriminator_weight", discriminator_weight, number(0))
        self.generator, self.discriminator = generator, discriminator
        _tie(generator.backbone.embeddings, discriminator.backbone.embeddings)
        self.seed = seed
        self.random = keras.random.SeedGenerator(seed)
        self.generator_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=IGNORED)
        self.discriminator_loss = MaskedBinaryCrossentropy()
        self.generator_mean = keras.metrics.Mean("generator_loss")
        self.discriminator_mean = keras.metrics.Mean("discriminator_loss")

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """Applies the generator, draws its tokens and applies the discriminator."""
        arrays = dict(inputs)
        original = ops.cast(arrays.pop("original_ids"), "int32")
        masked = ops.not_equal(ops.cast(arrays["input_ids"], "int32"), original)
        logits = self.generator(arrays, training=training)
        noise = keras.random.uniform(ops.shape(logits), 1e-9, 1.0, seed=self.random)
        # The largest logit plus Gumbel noise has the distribution of the softmax.
        drawn = ops.cast(ops.argmax(logits - ops.log(-ops.log(noise)), axis=-1), "int32")
        ids = ops.where(masked, drawn, original)
        scores = self.discriminator({**arrays, "input_ids": ids}, training=training)
        replaced = ops.cast(ops.not_equal(ids, original), "int32")
        if "attention_mask" in arrays:
            replaced = ops.where(ops.cast(arrays["attention_mask"], "int32") > 0, replaced, IGNORED)
        return {"prediction_logits": logits, "replaced_logits": scores, "replaced": replaced}

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: dict[str, Tensor] | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Adds the losses of both models, for labels `(B, T)` of the generator."""
        if y is None or y_pred is None:
            raise InputError("ReplacedTokens needs labels of the masked tokens. Received: no labels")
        words = self.generator_loss(y, y_pred["prediction_logits"], sample_weight)
        replaced = self.discriminator_loss(y_pred["replaced"], y_pred["replaced_logits"], sample_weight)
        self.generator_mean.update_state(words)
        self.discriminator_mean.update_state(replaced)
        return words + self.discriminator_weight * replaced

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "discriminator_weight": self.discriminator_weight, "seed": self.seed}


def _tie(embeddings: Any, shared: Any) -> None:
    """Replaces the tables of a model's embeddings by those of another model."""
    sizes = [(each.vocab_size, each.embedding_dim, each.num_segments, each.max_length) for each in (embeddings, shared)]
    if sizes[0] != sizes[1]:
        raise InputError(
            "The embeddings of generator and discriminator are the same. Expected: equal vocab_size, embedding_dim, "
            f"num_segments and max_length. Received: {sizes[0]} and {sizes[1]}"
        )
    # Keras locks the parts of a layer that is built.
    embeddings._tracker.unlock()
    for name in _SHARED:
        embeddings._tracker.untrack(getattr(embeddings, name))
        setattr(embeddings, name, getattr(shared, name))
    embeddings._tracker.lock()
