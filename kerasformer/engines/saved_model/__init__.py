"""Engines on TensorFlow: `SavedModelForward` for encoders, `SavedModelStep` for models that generate; without Keras."""

from kerasformer.engines.saved_model.forward import SavedModelForward
from kerasformer.engines.saved_model.step import SavedModelStep

__all__ = ["SavedModelForward", "SavedModelStep"]
