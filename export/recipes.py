"""Quantization recipes as values, each with the fidelity that it must keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kerasformer.errors import ExportError


@dataclass(frozen=True)
class Recipe:
    """How weights are stored, and how far answers may then be from the Keras model's.

    Attributes:
        name: What `quantize=` takes, and what the bundle's manifest says.
        weight_bits: 8 for symmetric int8, with one scale per output channel (TFLite) or per block of it (ONNX); 32 for
            float32.
        dynamic: Activations are quantized while running, so that products are computed in integers.
        tolerance: Largest difference of a logit, as a share of the largest absolute logit of the Keras model.
        min_agreement: Least share of positions whose most probable answer is the Keras model's.
    """

    name: str
    weight_bits: int
    dynamic: bool
    tolerance: float
    min_agreement: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)


# float32 differs by the order of sums alone. int8 is judged by its answers; its tolerance only catches a broken scale.
RECIPES = {
    "none": Recipe("none", weight_bits=32, dynamic=False, tolerance=1e-4, min_agreement=1.0),
    "int8": Recipe("int8", weight_bits=8, dynamic=True, tolerance=0.15, min_agreement=0.98),
}


def recipe(wanted: str | Recipe | None) -> Recipe:
    """The recipe of that name; `None` means `"none"`.

    Raises:
        ExportError: no recipe has that name.
    """
    if isinstance(wanted, Recipe):
        return wanted
    try:
        return RECIPES[wanted or "none"]
    except KeyError:
        known = ", ".join(RECIPES)
        raise ExportError(f"Unknown quantization recipe. Expected one of {known}. Received: {wanted!r}") from None
