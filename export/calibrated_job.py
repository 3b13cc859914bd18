"""What the files of an export have from calibration texts: ranges, rounded kernels, and the bits of matrices.

Called by `api`, before files are written.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from kerasformer.export.builder import BundleBuilder
from kerasformer.export.job import ExportJob
from kerasformer.export.quantization import sample_inputs
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.layouts import calibrated_kernels
from kerasformer.export.quantization.learned_rounding import learn_rounding, learning_windows
from kerasformer.export.quantization.mixed_bits import four_bits, mixed, mixes, rounding_losses
from kerasformer.export.quantization.model_matrices import matrices
from kerasformer.export.quantization.sample_inputs import Passages
from kerasformer.models.contracts import CausalLM


def measures_ranges(job: ExportJob) -> bool:
    """Returns whether the files of a model depend on the inputs of its products.

    A model that generates has no scales of inputs: its hidden states are rotated instead, if it has RMS norms.
    """
    recipe = job.recipe
    return recipe.activations == "static" or recipe.compensates or (recipe.scales_inputs and not job.model.generates)


def calibration_passages(builder: BundleBuilder) -> Passages:
    """Returns what the model reads for calibration."""
    job = builder.job
    builder.report("calibrate", 0, 0)
    sampled = job.recipe.compensates and "int4" in job.recipe.integers
    return sample_inputs.calibration_passages(job.model, job.calibration, sampled)


def calibrated(builder: BundleBuilder, read: Passages) -> ExportJob:
    """Returns the job with ranges of activations, rounded kernels and, for a decoder, the bits of its matrices.

    Args:
        builder: The builder of the job.
        read: Result of `calibration_passages`.
    """
    job, progress, layout = builder.job, partial(builder.report, "calibrate"), builder.layout
    recipe = job.recipe
    measured = mixes(job.model, recipe)
    if measured:
        recipe = four_bits(recipe, matrices(job.model), layout)
    ranges = calibrate(job.model, read, progress, calibrated_kernels(job.model, recipe, layout))
    if measured:
        losses = rounding_losses(cast(CausalLM, job.model), ranges, read, partial(builder.report, "choose bits"))
        recipe = mixed(job.recipe, matrices(job.model, ranges), layout, losses)
    if recipe.rounding == "distilled":
        windows = learning_windows(job.model, job.calibration)
        ranges = learn_rounding(cast(CausalLM, job.model), recipe, ranges, windows, builder.report)
    return replace(job, recipe=recipe, ranges=ranges)
