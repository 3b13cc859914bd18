"""Text generation in NumPy over any engine that offers `Step`: one implementation of every method."""

from kerasformer.decoding.controls import Controls
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.loop import generate, stream
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.protocols import Forward, State, Step
from kerasformer.decoding.record import Choice, Node, Record
from kerasformer.decoding.speculation_counts import Tally
from kerasformer.decoding.stopping import Stop

__all__ = [
    "Choice",
    "Controls",
    "Forward",
    "GenerationConfig",
    "GenerationOutput",
    "Node",
    "Record",
    "State",
    "Step",
    "Stop",
    "Tally",
    "generate",
    "stream",
]
