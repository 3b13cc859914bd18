"""Reading of GGUF files, the format of llama.cpp: each is what the folder of a checkpoint is."""

from kerasformer.tools.gguf.checkpoint import GgufCheckpoint

__all__ = ["GgufCheckpoint"]
