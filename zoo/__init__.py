"""Model architectures and their checkpoints."""
