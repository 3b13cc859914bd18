"""Figures of how tokens are selected, of architectures and of trainings, drawn with matplotlib (the extra `viz`)."""

from __future__ import annotations

from kerasformer.viz.attribution import attribution_html, draw_attribution
from kerasformer.viz.beam_tree import draw_beam_tree
from kerasformer.viz.canvas import check_picture
from kerasformer.viz.cells import draw_cells
from kerasformer.viz.confusion import draw_confusion
from kerasformer.viz.distribution import draw_distribution
from kerasformer.viz.explanation import draw_explanation
from kerasformer.viz.family_tree import draw_family_tree
from kerasformer.viz.patterns import draw_masks, draw_positions, draw_temperatures
from kerasformer.viz.points import draw_points
from kerasformer.viz.sweep import draw_sweep
from kerasformer.viz.training_curve import draw_training_curve

__all__ = [
    "attribution_html",
    "check_picture",
    "draw_attribution",
    "draw_beam_tree",
    "draw_cells",
    "draw_confusion",
    "draw_distribution",
    "draw_explanation",
    "draw_family_tree",
    "draw_points",
    "draw_masks",
    "draw_positions",
    "draw_sweep",
    "draw_temperatures",
    "draw_training_curve",
]
