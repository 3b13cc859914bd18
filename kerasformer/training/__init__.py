"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.distillation import (
    AttentionRelations,
    Distiller,
    EmbeddingDistance,
    EmbeddingTargets,
    HiddenCosine,
    SoftTargets,
)
from kerasformer.training.pruning import chosen_layers, prune, unit_importance
from kerasformer.training.quantization import quantization_aware

__all__ = [
    "AttentionRelations",
    "Distiller",
    "EmbeddingDistance",
    "EmbeddingTargets",
    "HiddenCosine",
    "SoftTargets",
    "chosen_layers",
    "prune",
    "quantization_aware",
    "unit_importance",
]
