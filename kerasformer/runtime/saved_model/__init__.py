"""Bundles on TensorFlow: `SavedModelForward` for encoders, `SavedModelStep` for models that generate. No Keras."""

from kerasformer.runtime.saved_model.step import SavedModelForward, SavedModelStep

__all__ = ["SavedModelForward", "SavedModelStep"]
