"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.datasets import Dataset, dataset
from kerasformer.training.losses import SpanCrossentropy

__all__ = ["Dataset", "SpanCrossentropy", "dataset"]
