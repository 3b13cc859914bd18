"""Effect of a recipe's rounding on a model's answers, which determines the differences an exported file may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from kerasformer.errors import BundleError
from kerasformer.files.reading import JsonMapping

if TYPE_CHECKING:
    from kerasformer.fidelity.figures import Fidelity

_MAX_ERROR_RATIO = 1.4
"""Maximum ratio of the mean error of a file to that of rounding alone; the square is used for the divergence.
docs/quantization.md has measurements of correct and of wrong files."""
_FLOAT32 = 1e-5
"""Mean error allowed for float32 arithmetic, relative to the largest logit; the square is used for the divergence."""
_OF_EARLIER_VERSIONS = ("step_mean_error", "step_divergence")


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
        if recorded is None:
            return None
        names = [field.name for field in fields(cls)]
        if isinstance(recorded, Mapping):
            recorded = {key: value for key, value in recorded.items() if key not in _OF_EARLIER_VERSIONS}
        if (
            not isinstance(recorded, Mapping)
            or set(recorded) != set(names)
            or any(type(v) not in (int, float) and (v, k) != (None, "divergence") for k, v in recorded.items())
        ):
            raise BundleError(
                f"fidelity.rounding must have the numbers {', '.join(names)}. "
                f"Received: {recorded}. Export the model again"
            )
        return cls(**recorded)

    def explains(self, figures: Fidelity) -> bool:
        """Returns whether differences are no larger than those of rounding, within the spread of such measurements."""
        if not figures.mean_error <= _MAX_ERROR_RATIO * self.mean_error + _FLOAT32:
            return False
        if self.divergence is None or figures.divergence is None:
            return True
        return figures.divergence <= _MAX_ERROR_RATIO**2 * self.divergence + _FLOAT32**2
