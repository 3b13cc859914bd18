"""Figures of a comparison, and their formatting for display."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kerasformer.bundle import Limits, compared_answers
from kerasformer.fidelity.rounding import Rounding
from kerasformer.files.reading import JsonMapping, JsonObject


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
        return self.decided_agreement >= limits.min_agreement and self.rounding.explains(self)


def figure_rows(figures: JsonMapping) -> list[list[str]]:
    """Returns the fields of a `Fidelity` for display, as rows of a name and a value."""
    scale = figures.get("scale") or 1.0
    unit = "" if figures.get("scale") else " of the scale"
    answers, generated = compared_answers(figures), figures.get("generated")
    rows = [
        [f"{answers} equal to those of Keras", f"{figures['agreement']:.2%} of {figures['answers']:,}"],
        *_near_tie_rows(figures, answers),
        *([] if generated is None else [["freely generated tokens equal to those of Keras", f"{generated:.2%}"]]),
        ["largest difference of a logit", f"{figures['max_error'] * scale:.3g}{unit} ({figures['max_error']:.2%})"],
        ["mean difference of a logit", f"{figures['mean_error'] * scale:.3g}{unit} ({figures['mean_error']:.2%})"],
    ]
    if figures.get("cosine") is not None:
        rows.append(["mean cosine similarity to the embeddings of Keras", f"{figures['cosine']:.6f}"])
    if figures.get("divergence") is not None:
        rows.append(["mean KL divergence from Keras", f"{figures['divergence']:.3g} nats"])
    if figures.get("divergence_p99") is not None and generated is not None:
        rows.append(["99th percentile of the KL divergence", f"{figures['divergence_p99']:.3g} nats"])
    if figures.get("perplexity") is not None:
        before, after = figures["keras_perplexity"], figures["perplexity"]
        rows.append(["perplexity, Keras → bundle", f"{before:.5g} → {after:.5g} ({after / before - 1:+.2%})"])
    for name, pair in (figures.get("quality") or {}).items():
        values = " → ".join(quality_text(name, pair[key]) for key in ("keras", "bundle"))
        rows.append([f"{name.replace('_', ' ')}, Keras → bundle", values])
    return rows


def _near_tie_rows(figures: JsonMapping, compared: str) -> list[list[str]]:
    """Returns rows about near ties, if the noise of rounding was measured."""
    if figures.get("near_ties") is None:
        return []
    ties, answers, rounding = figures["near_ties"], figures["answers"], figures["rounding"]
    decided = f"{figures['decided_agreement']:.2%} of {answers - ties:,}" if ties < answers else "none"
    rows = [
        ["near ties: the two best answers differ less than rounding errors", f"{ties:,} of {answers:,} {compared}"],
        [f"{compared} equal to those of Keras, without near ties", decided],
    ]
    if rounding["divergence"] is not None:
        rows.append(["mean KL divergence caused by rounding alone", f"{rounding['divergence']:.3g} nats"])
    return rows


def near_ties_text(figures: Fidelity) -> str:
    """Returns a parenthesis about near ties, to follow the agreement; empty if the noise was not measured."""
    if figures.near_ties is None or figures.decided_agreement is None:
        return ""
    rest = figures.answers - figures.near_ties
    decided = f", {figures.decided_agreement:.4f} of the other {rest}" if rest else ""
    return f" ({figures.near_ties} near ties{decided})"


def divergence_text(figures: Fidelity) -> str:
    """Returns the divergence, to follow another figure; empty if there is none."""
    if figures.divergence is None:
        return ""
    by_rounding = None if figures.rounding is None else figures.rounding.divergence
    alone = "" if by_rounding is None else f" ({by_rounding:.3g} by rounding alone)"
    tail = "" if figures.divergence_p99 is None else f" (99th percentile {figures.divergence_p99:.3g})"
    return f", mean KL divergence {figures.divergence:.3g} nats{tail}{alone}"


def cosine_text(figures: Fidelity) -> str:
    """Returns the mean cosine similarity, to follow another figure; empty if there is none."""
    return "" if figures.cosine is None else f", mean cosine similarity {figures.cosine:.5f}"


def quality_text(name: str, value: float) -> str:
    """Formats a figure on labelled texts."""
    return f"{value:.5g}" if name == "perplexity" else f"{value:.2%}"
