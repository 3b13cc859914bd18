"""Files of checkpoints and bundles: sources, JSON, tensors, adapters, publishing."""

from kerasformer.files.readers import checkpoint_files, checkpoint_tensors

__all__ = ["checkpoint_files", "checkpoint_tensors"]
