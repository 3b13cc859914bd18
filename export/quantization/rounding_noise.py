"""What the rounding of a recipe does to a model's answers by itself, so that near ties are told from faults.

It is measured in Keras, with the values that a correct file holds and with inputs rounded as the runtimes round them.
The written file takes no part in it: a fault in the file, such as a wrong scale, cannot raise what it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kerasformer.export.quantization.layouts import Layout
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.recipes import Recipe
from kerasformer.export.quantization.sample_inputs import as_read
from kerasformer.export.quantization.sensitivity import Simulation
from kerasformer.fidelity.comparison import record_rounding
from kerasformer.fidelity.rounding import Rounding
from kerasformer.fidelity.verification import references_of_steps


def measure_rounding(
    model: Any,
    references: Mapping[str, np.ndarray],
    layout: Layout,
    recipe: Recipe,
    function: Callable[..., dict[str, Any]] | None = None,
) -> Rounding:
    """Measures the rounding of a recipe on the texts that a bundle is verified on.

    Args:
        model: The exported model.
        references: Of `verify.record`.
        layout: Of the files.
        recipe: Of the files. Activations that a product of integers reads count as rounded while running: static
            ranges are coarser, so that less is allowed there than rounding may take.
        function: What is exported of a model that answers at once, as for `verify.record`.
    """
    simulation = Simulation(model, matrices(model), layout, None if model.generates else function)
    simulation.store(replace(recipe, activations="float" if recipe.activations == "float" else "dynamic"))
    steps = as_read(model, references_of_steps(references)) if model.generates else None
    return record_rounding(simulation, as_read(model, references), steps)
