"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.distillation import (
    AttentionRelations,
    Distiller,
    EmbeddingDistance,
    EmbeddingTargets,
    HiddenCosine,
    LogitDistance,
    SoftTargets,
)
from kerasformer.training.pruning import chosen_layers, prune, unit_importance
from kerasformer.training.quantization import quantization_aware
from kerasformer.training.shrinking import Step, shrink

__all__ = [
    "AttentionRelations",
    "Distiller",
    "EmbeddingDistance",
    "EmbeddingTargets",
    "HiddenCosine",
    "LogitDistance",
    "SoftTargets",
    "Step",
    "chosen_layers",
    "prune",
    "quantization_aware",
    "shrink",
    "unit_importance",
]
