"""Text generation in NumPy over any engine that offers `Step`: one implementation of every method."""

from kerasformer.decoding.config import GenerationConfig
from kerasformer.decoding.loop import generate, stream
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.protocols import Forward, State, Step
from kerasformer.decoding.stopping import Stop, stop_at

__all__ = [
    "Forward",
    "GenerationConfig",
    "GenerationOutput",
    "State",
    "Step",
    "Stop",
    "generate",
    "stop_at",
    "stream",
]
