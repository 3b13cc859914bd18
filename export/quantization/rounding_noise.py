"""Effect of a recipe's rounding alone on a model's answers, by which near ties are distinguished from defects.

It is measured in Keras, with the values that a correct file contains and with inputs rounded as the runtimes round
them. The exported file is not used, so that a defect in it, such as a wrong scale, cannot raise its own tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from kerasformer.export.quantization.calibration import Calibration
from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.sensitivity import Simulation
from kerasformer.fidelity.comparison import record_rounding
from kerasformer.fidelity.rounding import Rounding
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel


def measure_rounding(
    model: PretrainedModel,
    references: Mapping[str, np.ndarray],
    layout: Layout,
    recipe: Recipe,
    function: Callable[..., dict[str, Tensor]] | None = None,
    calibration: Calibration | None = None,
) -> Rounding:
    """Measures the effect of a recipe's rounding on the texts that a bundle is verified on.

    Args:
        model: The exported model, which does not generate.
        references: Result of `references.record`.
        layout: Layout of the files.
        recipe: Recipe of the files. Static activations are simulated as dynamic ones, whose rounding is finer, so that
            the result is a lower bound for them.
        function: The exported function, as for `references.record`.
        calibration: Calibrated ranges of the products, if the files were written with them.
    """
    simulation = Simulation(model, matrices(model, calibration), layout, function)
    simulation.store(replace(recipe, activations="float" if recipe.activations == "float" else "dynamic"))
    return record_rounding(simulation, references)
