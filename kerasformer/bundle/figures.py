"""How close a bundle is to its Keras model: the figures of a comparison, the limits of a recipe, and both in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kerasformer.basics.arguments import check, kind_of, optional
from kerasformer.errors import BundleError
from kerasformer.files.reading import JsonMapping, JsonObject

_SAMPLE_FACTOR = 2.0
"""A mean divergence of about a hundred answers is within this factor of that of all answers."""
_MAX_ERROR_RATIO = 1.4
"""Maximum ratio of the mean error of a file to that of rounding alone; the square is used for the divergence.
benchmarks/RESULTS.md has measurements of correct and of wrong files."""
_FLOAT32 = 1e-5
"""Mean error allowed for float32 arithmetic, relative to the largest logit; the square is used for the divergence."""
_OF_EARLIER_VERSIONS = ("step_mean_error", "step_divergence")


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
        limits = {name: float(recipe[name]) for name in cls._fields if type(recipe.get(name)) in (int, float)}
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

    def __str__(self) -> str:
        decisive = f"agreement of at least {100 * self.min_agreement:g}%"
        if self.min_cosine is not None:
            decisive = f"mean cosine similarity of at least {self.min_cosine:g}"
        if self.max_divergence is not None:
            decisive = f"mean KL divergence of at most {self.max_divergence:g} nats"
            if self.max_divergence_p99 is not None:
                decisive += f" and its 99th percentile of at most {self.max_divergence_p99:g}"
        return f"largest error of at most {self.tolerance:g} of the scale, {decisive}"


@dataclass(frozen=True)
class Rounding:
    """Effect of a recipe's rounding on a model's answers, measured in Keras rather than with an exported file.

    Attributes:
        noise: Root mean square change of the margin of an answer, in logits. The margin is the difference between the
            most probable answer and the next one.
        mean_error: Mean absolute difference of the logits, relative to the largest absolute logit.
        divergence: Mean Kullback-Leibler divergence in nats; `None` if answers are not probabilities.
    """

    noise: float
    mean_error: float
    divergence: float | None = None

    @classmethod
    def of(cls, figures: JsonMapping) -> Rounding | None:
        """Returns the rounding recorded in the fidelity of a manifest; `None` if it was not measured.

        Raises:
            BundleError: the record has wrong fields, or values that are not numbers.
        """
        recorded = figures.get("rounding")
        if isinstance(recorded, Mapping):
            recorded = {key: value for key, value in recorded.items() if key not in _OF_EARLIER_VERSIONS}
        fields: Any = cls
        kind, advice = optional(kind_of(fields)), "Export the model again"
        rounding: Rounding | None = check("fidelity.rounding", recorded, kind, error=BundleError, advice=advice)
        return rounding

    def explains(self, mean_error: float, divergence: float | None) -> bool:
        """Returns whether differences are no larger than those of rounding, within the spread of such measurements."""
        if not mean_error <= _MAX_ERROR_RATIO * self.mean_error + _FLOAT32:
            return False
        if self.divergence is None or divergence is None:
            return True
        return divergence <= _MAX_ERROR_RATIO**2 * self.divergence + _FLOAT32**2


@dataclass(frozen=True)
class Fidelity:
    """Figures of a comparison with the Keras model.

    Attributes:
        max_error: Maximum absolute difference of a recorded logit, relative to the largest absolute logit.
        mean_error: Mean absolute difference of the recorded logits, relative to the largest absolute logit.
        agreement: Share of answers with the same most probable class, token or span. For classes that do not exclude
            each other, each class is a yes-or-no answer. For hidden states, share of texts whose mean vectors have a
            cosine similarity of at least 0.98. A model that generates is compared on the next tokens of given texts:
            the tokens that Keras generated and, for a decoder, running texts.
        answers: Number of answers compared.
        generated: Share of equal tokens in free greedy generation; `None` for a model that does not generate.
        scale: Largest absolute logit of the Keras model; relative errors times this are differences of logits.
        divergence: Mean Kullback-Leibler divergence of the answers from those of Keras, in nats. Classes that were not
            recorded are treated as one class, so that the value is exact for up to 64 classes and otherwise a lower
            bound. `None` if answers are not probabilities.
        divergence_p99: 99th percentile of the divergences of single answers.
        perplexity: Perplexity of a running text, or of the Keras model's answers for an encoder-decoder.
        keras_perplexity: Perplexity of the same text under the Keras model.
        quality: Figures on labelled texts by name, such as `{"accuracy": {"keras": 0.91, "bundle": 0.9}}`.
        near_ties: Number of near ties: answers whose margin in Keras is at most three times the noise of the recipe's
            rounding, which alone may change them, and at most 0.1 logits. `None` if the noise was not measured.
        decided_agreement: Agreement among the other answers; 1 if there are none. `None` if the noise was not measured.
        rounding: Effect of rounding alone; `None` if it was not measured.
        cosine: Mean cosine similarity of the embeddings of texts with those of Keras; `None` unless the bundle returns
            embeddings.
    """

    max_error: float
    mean_error: float
    agreement: float
    answers: int
    generated: float | None = None
    scale: float | None = None
    divergence: float | None = None
    divergence_p99: float | None = None
    perplexity: float | None = None
    keras_perplexity: float | None = None
    quality: dict[str, dict[str, float]] | None = None
    near_ties: int | None = None
    decided_agreement: float | None = None
    rounding: Rounding | None = None
    cosine: float | None = None

    def to_dict(self) -> JsonObject:
        """Returns the fields as a dict, for the manifest."""
        return asdict(self)

    def within(self, limits: Limits) -> bool:
        """Returns whether the figures are within limits; false for NaN.

        The maximum error must be within the tolerance. The divergence decides for models that generate, the cosine
        similarity for embeddings, and the agreement otherwise: among all answers or, if the noise of rounding was
        measured, among answers that are not near ties, with errors that rounding explains.
        """
        if not self.max_error <= limits.tolerance:
            return False
        if self.divergence is not None and limits.max_divergence is not None:
            tail = limits.max_divergence_p99
            return self.divergence <= limits.max_divergence and (
                tail is None or self.divergence_p99 is None or self.divergence_p99 <= tail
            )
        if self.cosine is not None and limits.min_cosine is not None:
            return self.cosine >= limits.min_cosine
        if self.agreement >= limits.min_agreement:
            return True
        if self.rounding is None or self.decided_agreement is None:
            return False
        explained = self.rounding.explains(self.mean_error, self.divergence)
        return self.decided_agreement >= limits.min_agreement and explained


_ROWS = (
    ("agreement", "agreement", "{agreement:.2%} of {answers:,} {kind}"),
    ("near ties", "near_ties", "{near_ties:,} of {answers:,}, which rounding alone may change"),
    ("agreement without near ties", "decided_agreement", "{decided_agreement:.2%}"),
    ("agreement of freely generated tokens", "generated", "{generated:.2%}"),
    ("mean cosine similarity", "cosine", "{cosine:.6f}"),
    ("mean KL divergence", "divergence", "{divergence:.3g} nats"),
    ("99th percentile of the KL divergence", "divergence_p99", "{divergence_p99:.3g} nats"),
    ("mean KL divergence by rounding alone", "by_rounding", "{by_rounding:.3g} nats"),
    ("largest error", "max_error", "{max_error:.3g} of the scale"),
    ("mean error", "mean_error", "{mean_error:.3g} of the scale"),
    ("largest logit (the scale)", "scale", "{scale:.3g}"),
    ("perplexity", "perplexity", "{keras_perplexity:.5g} in Keras, {perplexity:.5g} in the bundle ({change:+.2%})"),
)
"""Names of figures in words, their fields, and their values in words."""


def figure_rows(figures: JsonMapping) -> list[tuple[str, str]]:
    """Returns the fields of a `Fidelity` in words, as names and values; those that were not measured are left out.

    The agreement of a model that generates is that along the tokens that Keras chose, so that an early difference does
    not affect all later answers; that of freely generated tokens is without this help.
    """
    values = {
        **figures,
        "kind": "answers" if figures.get("generated") is None else "next tokens of given texts",
        "by_rounding": (figures.get("rounding") or {}).get("divergence"),
    }
    if values.get("perplexity") is not None:
        values["change"] = figures["perplexity"] / figures["keras_perplexity"] - 1
    rows = [(name, text.format(**values)) for name, field, text in _ROWS if values.get(field) is not None]
    for name, pair in (figures.get("quality") or {}).items():
        keras, bundle = (quality_text(name, pair[key]) for key in ("keras", "bundle"))
        rows.append((name.replace("_", " "), f"{keras} in Keras, {bundle} in the bundle"))
    return rows


def agreement_text(figures: JsonMapping) -> str:
    """Returns in words how far a bundle's answers are those of Keras, from the fields of a `Fidelity`."""
    if figures.get("cosine") is not None:
        return f"embeddings with a mean cosine similarity of {figures['cosine']:.4f} with those of Keras"
    what = "answer" if figures.get("generated") is None else "next token"
    same = round(figures["agreement"] * figures["answers"])
    return f"the same {what} as Keras in {same:,} of {figures['answers']:,} cases"


def figure_line(figures: JsonMapping) -> str:
    """Returns the rows of `figure_rows` in one line."""
    return "; ".join(map(" ".join, figure_rows(figures)))


def quality_text(name: str, value: float) -> str:
    """Formats a figure on labelled texts."""
    return f"{value:.5g}" if name in ("perplexity", "bits_per_byte") else f"{value:.2%}"
