"""The architectures that llama.cpp writes and this package implements, with the names that it gives their parts."""

from kerasformer.tools.gguf.architecture import Architecture
from kerasformer.tools.gguf.tables import bert, bloom, gemma3, gpt2, gpt_neox, llama, modernbert, phi, t5

ARCHITECTURES: tuple[Architecture, ...] = (
    *llama.ARCHITECTURES,
    gemma3.ARCHITECTURE,
    *gpt2.ARCHITECTURES,
    gpt_neox.ARCHITECTURE,
    bloom.ARCHITECTURE,
    phi.ARCHITECTURE,
    t5.ARCHITECTURE,
    bert.ARCHITECTURE,
    modernbert.ARCHITECTURE,
)

__all__ = ["ARCHITECTURES"]
