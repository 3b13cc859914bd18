"""Files of checkpoints and bundles: sources, JSON, tensors, adapters, publishing."""
