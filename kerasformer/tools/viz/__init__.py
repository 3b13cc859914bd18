"""Figures of how tokens are selected, of architectures and of trainings, drawn with matplotlib (the extra `viz`)."""

from __future__ import annotations

from kerasformer.tools.viz.attribution import attribution_html, draw_attribution
from kerasformer.tools.viz.beam_tree import draw_beam_tree
from kerasformer.tools.viz.canvas import check_picture
from kerasformer.tools.viz.cells import draw_cells
from kerasformer.tools.viz.confusion import draw_confusion
from kerasformer.tools.viz.distribution import draw_distribution
from kerasformer.tools.viz.explanation import draw_explanation
from kerasformer.tools.viz.family_tree import draw_family_tree
from kerasformer.tools.viz.patterns import draw_masks, draw_positions, draw_temperatures
from kerasformer.tools.viz.points import draw_points
from kerasformer.tools.viz.sweep import draw_sweep
from kerasformer.tools.viz.training_curve import draw_training_curve

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
