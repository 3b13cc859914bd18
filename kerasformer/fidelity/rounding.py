"""What the rounding of a recipe does to a model's answers by itself: the measure of what a written file may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kerasformer.errors import BundleError

if TYPE_CHECKING:
    from kerasformer.fidelity.figures import Fidelity

_MOST_ERROR = 1.4
"""Most that the mean error of a file may be of that of its rounding; for the divergence, the square of this.
docs/quantization.md has what correct and wrong files measure."""
_FLOAT32 = 1e-5
"""Mean error of float32 answers in any case, as a share of the largest logit; its square is that of the divergence."""


@dataclass(frozen=True)
class Rounding:
    """What the rounding of a recipe does to a model's answers by itself, measured in Keras and not on a written file.

    Attributes:
        noise: Root mean square change of an answer's margin, in logits. The margin is the distance of the most
            probable answer from the next one.
        mean_error: Mean difference of a logit, as a share of the largest absolute one.
        divergence: Mean Kullback-Leibler divergence in nats, or `None` where answers are no probabilities.
        step_mean_error: Mean difference for the fewer answers on which each kind of step is compared, if there are.
        step_divergence: Mean divergence for these.
    """

    noise: float
    mean_error: float
    divergence: float | None = None
    step_mean_error: float | None = None
    step_divergence: float | None = None

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Rounding | None:
        """The one recorded in the fidelity of a manifest; `None` where it was not measured.

        Raises:
            BundleError: the record has other fields, or values that are no numbers.
        """
        recorded = figures.get("rounding")
        if recorded is None:
            return None
        optional = {"divergence", "step_mean_error", "step_divergence"}
        if (
            not isinstance(recorded, Mapping)
            or set(recorded) != {field.name for field in fields(cls)}
            or any(type(v) not in (int, float) and not (v is None and k in optional) for k, v in recorded.items())
        ):
            raise BundleError(
                f"fidelity.rounding must have the numbers {', '.join(field.name for field in fields(cls))}. "
                f"Received: {recorded}. Export the model again"
            )
        return cls(**recorded)

    def of_steps(self) -> Rounding:
        """The figures for the answers on which each kind of step is compared."""
        if self.step_mean_error is None:
            return self
        return replace(self, mean_error=self.step_mean_error, divergence=self.step_divergence)

    def explains(self, figures: Fidelity) -> bool:
        """Whether answers differ no more than rounding makes them differ, within the spread of such measurements."""
        if not figures.mean_error <= _MOST_ERROR * self.mean_error + _FLOAT32:
            return False
        if self.divergence is None or figures.divergence is None:
            return True
        return figures.divergence <= _MOST_ERROR**2 * self.divergence + _FLOAT32**2
