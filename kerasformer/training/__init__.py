"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.pruning import chosen_layers, prune, unit_importance

__all__ = ["chosen_layers", "prune", "unit_importance"]
