"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN
from kerasformer.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy, class_weights
from kerasformer.training.distribution import distribute
from kerasformer.training.optimizers import WarmupSchedule, freeze, optimizer
from kerasformer.training.resume import Resume
from kerasformer.training.streaming import StreamedDataset

__all__ = [
    "Curve",
    "Evaluate",
    "Resume",
    "SavePretrained",
    "StopOnNaN",
    "StreamedDataset",
    "WarmupSchedule",
    "WeightedBinaryCrossentropy",
    "WeightedCrossentropy",
    "class_weights",
    "distribute",
    "freeze",
    "optimizer",
]
