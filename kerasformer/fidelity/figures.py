"""The figures of a comparison, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kerasformer.fidelity.rounding import Rounding


@dataclass(frozen=True)
class Fidelity:
    """Figures of a comparison.

    Attributes:
        max_error: Largest difference of a recorded logit, as a share of the largest absolute one.
        mean_error: The mean difference, likewise.
        agreement: Share of answers whose most probable class, token or span is the same; where classes do not exclude
            each other, each is an answer of yes or no; for hidden states, of texts whose mean vector has a cosine of at
            least 0.98.
        answers: Number of answers compared.
        generated: Share of the tokens of free greedy generation that are the same, or `None`.
        scale: The largest absolute logit of the Keras model: errors times this are differences of logits.
        divergence: Mean Kullback-Leibler divergence in nats of the answers from those of Keras. The recorded classes
            count each by itself and all others as one, which is exact for up to 64 classes and otherwise the least
            that it can be. `None` where answers are no probabilities.
        perplexity: Of a running text, or of the Keras model's own answers for an encoder-decoder.
        keras_perplexity: The same under the Keras model.
        quality: Figures on labelled texts by name, such as `{"accuracy": {"keras": 0.91, "bundle": 0.9}}`.
        near_ties: Number of answers whose margin in Keras is at most three times the noise of the recipe's rounding,
            which by itself may choose another one, and at most 0.1 logits. `None` where the noise was not measured.
        decided_agreement: Agreement among the other answers; 1 where there are none. `None` likewise.
        rounding: The noise and what else rounding does by itself; `None` where it was not measured.
    """

    max_error: float
    mean_error: float
    agreement: float
    answers: int
    generated: float | None = None
    scale: float | None = None
    divergence: float | None = None
    perplexity: float | None = None
    keras_perplexity: float | None = None
    quality: dict[str, dict[str, float]] | None = None
    near_ties: int | None = None
    decided_agreement: float | None = None
    rounding: Rounding | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)

    def within(self, tolerance: float, min_agreement: float) -> bool:
        """Whether this is faithful enough; NaN never is.

        The errors must be within the tolerance. The agreement of all answers must be kept, or, where the noise of
        rounding was measured, that of the decided answers, with errors that rounding explains.
        """
        if not self.max_error <= tolerance:
            return False
        if self.agreement >= min_agreement:
            return True
        if self.rounding is None or self.decided_agreement is None:
            return False
        return self.decided_agreement >= min_agreement and self.rounding.explains(self)


def figure_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """The fields of a `Fidelity`, as people read them: what is measured, and its value."""
    scale = figures.get("scale") or 1.0
    unit = "" if figures.get("scale") else " of the scale"
    rows = [
        ["answers compared", f"{figures['answers']:,}"],
        ["most probable answer is that of Keras", f"{figures['agreement']:.2%}"],
        *_near_tie_rows(figures),
        ["largest difference of a logit", f"{figures['max_error'] * scale:.3g}{unit} ({figures['max_error']:.2%})"],
        ["mean difference of a logit", f"{figures['mean_error'] * scale:.3g}{unit} ({figures['mean_error']:.2%})"],
    ]
    if figures.get("divergence") is not None:
        rows.append(["mean KL divergence from Keras", f"{figures['divergence']:.3g} nats"])
    if figures.get("generated") is not None:
        rows.append(["freely generated tokens that are those of Keras", f"{figures['generated']:.2%}"])
    if figures.get("perplexity") is not None:
        before, after = figures["keras_perplexity"], figures["perplexity"]
        rows.append(["perplexity, Keras → bundle", f"{before:.5g} → {after:.5g} ({after / before - 1:+.2%})"])
    for name, pair in (figures.get("quality") or {}).items():
        values = " → ".join(quality_text(name, pair[key]) for key in ("keras", "bundle"))
        rows.append([f"{name.replace('_', ' ')}, Keras → bundle", values])
    return rows


def _near_tie_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """What was measured to tell near ties apart."""
    if figures.get("near_ties") is None:
        return []
    ties, answers, rounding = figures["near_ties"], figures["answers"], figures["rounding"]
    decided = f"{figures['decided_agreement']:.2%} of {answers - ties:,}" if ties < answers else "none"
    rows = [
        ["near ties: Keras's best and next answer differ by less than rounding", f"{ties:,} of {answers:,} answers"],
        ["most probable answer is that of Keras, without near ties", decided],
    ]
    if rounding["divergence"] is not None:
        rows.append(["mean KL divergence by rounding alone", f"{rounding['divergence']:.3g} nats"])
    return rows


def near_ties_text(figures: Fidelity) -> str:
    """What near ties do to the agreement, behind a figure of all answers; empty where they were not measured."""
    if figures.near_ties is None or figures.decided_agreement is None:
        return ""
    rest = figures.answers - figures.near_ties
    decided = f", {figures.decided_agreement:.4f} of the other {rest}" if rest else ""
    return f" ({figures.near_ties} near ties{decided})"


def divergence_text(figures: Fidelity) -> str:
    """The divergence, behind another figure; empty where there is none."""
    if figures.divergence is None:
        return ""
    by_rounding = None if figures.rounding is None else figures.rounding.divergence
    alone = "" if by_rounding is None else f" ({by_rounding:.3g} by rounding alone)"
    return f", mean KL divergence {figures.divergence:.3g}{alone}"


def quality_text(name: str, value: float) -> str:
    """A figure on labelled texts."""
    return f"{value:.5g}" if name == "perplexity" else f"{value:.2%}"
