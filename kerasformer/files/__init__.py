"""Files of checkpoints and bundles: sources, JSON, tensors, adapters, publishing."""

from kerasformer.files.readers import CONVERTERS, checkpoint_files, checkpoint_tensors

__all__ = ["CONVERTERS", "checkpoint_files", "checkpoint_tensors"]
