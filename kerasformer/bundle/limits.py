"""The limits that a recipe sets for the differences between a bundle and its Keras model."""

from __future__ import annotations

from typing import NamedTuple

from kerasformer.errors import BundleError
from kerasformer.files.reading import JsonMapping

_SAMPLE_FACTOR = 2.0
"""A mean divergence of about a hundred answers is within this factor of that of all answers."""


class Limits(NamedTuple):
    """Limits of a recipe for one kind of model.

    Attributes:
        tolerance: Maximum difference of a logit relative to the largest one.
        min_agreement: Minimum share of equal answers. It decides if the two others below are `None`.
        min_cosine: Minimum mean cosine similarity of embeddings; `None` for bundles that return none.
        max_divergence: Maximum mean Kullback-Leibler divergence of the distributions of next tokens, in nats; `None`
            for bundles that do not generate, and for recipes without this limit.
        max_divergence_p99: Maximum of the 99th percentile of that divergence; `None` if there is no such limit.
    """

    tolerance: float
    min_agreement: float
    min_cosine: float | None = None
    max_divergence: float | None = None
    max_divergence_p99: float | None = None

    @classmethod
    def of(cls, recipe: JsonMapping, embeds: bool, generates: bool) -> Limits:
        """Returns the limits that a recipe sets for a model.

        Args:
            recipe: Fields of the recipe, by name. Those of earlier versions have no limit of the divergence.
            embeds: Whether the bundle returns embeddings.
            generates: Whether the model generates.

        Raises:
            BundleError: `tolerance` or `min_agreement` is missing or not a number.
        """
        limits = {
            name: float(recipe[name])
            for name in cls._fields
            if isinstance(recipe.get(name), int | float) and not isinstance(recipe[name], bool)
        }
        if not {"tolerance", "min_agreement"} <= set(limits):
            raise BundleError(f"recipe must have the numbers tolerance and min_agreement. Received: {dict(recipe)}")
        if not embeds:
            limits.pop("min_cosine", None)
        if not generates or "max_divergence" not in limits:
            limits.pop("max_divergence", None)
            limits.pop("max_divergence_p99", None)
        return cls(**limits)

    def of_sample(self) -> Limits:
        """Returns the limits for a small part of the answers, whose mean varies and which has no 99th percentile."""
        if self.max_divergence is None:
            return self
        return self._replace(max_divergence=_SAMPLE_FACTOR * self.max_divergence, max_divergence_p99=None)

    def text(self, answers: str) -> str:
        """Describes the limits.

        Args:
            answers: What the agreement is a share of, see `compared_answers`.
        """
        decisive = f"agreement of at least {self.min_agreement:g} of the {answers}"
        if self.min_cosine is not None:
            decisive = f"mean cosine similarity of at least {self.min_cosine:g}"
        if self.max_divergence is not None:
            decisive = f"mean KL divergence of at most {self.max_divergence:g} nats"
            if self.max_divergence_p99 is not None:
                decisive += f" and its 99th percentile of at most {self.max_divergence_p99:g}"
        return f"largest error of at most {self.tolerance:g} of the scale, {decisive}"
