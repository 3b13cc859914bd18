"""Reading of GGUF files, the format of llama.cpp: each is what the folder of a checkpoint is."""

from kerasformer.gguf.checkpoint import GgufCheckpoint, checkpoint_files, checkpoint_tensors, tokenizer_files

__all__ = ["GgufCheckpoint", "checkpoint_files", "checkpoint_tensors", "tokenizer_files"]
