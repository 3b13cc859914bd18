"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN
from kerasformer.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy, class_weights
from kerasformer.training.datasets import Dataset, dataset
from kerasformer.training.distribution import distribute
from kerasformer.training.losses import SpanCrossentropy
from kerasformer.training.optimizers import WarmupSchedule, freeze, optimizer
from kerasformer.training.resume import Resume
from kerasformer.training.streaming import StreamedDataset

__all__ = [
    "Curve",
    "Dataset",
    "Evaluate",
    "Resume",
    "SavePretrained",
    "SpanCrossentropy",
    "StopOnNaN",
    "StreamedDataset",
    "WarmupSchedule",
    "WeightedBinaryCrossentropy",
    "WeightedCrossentropy",
    "class_weights",
    "dataset",
    "distribute",
    "freeze",
    "optimizer",
]
