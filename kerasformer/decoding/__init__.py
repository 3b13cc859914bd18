"""Text generation in NumPy for any engine that implements `Step`."""

from kerasformer.decoding.controls import Controls
from kerasformer.decoding.generation_config import GenerationConfig
from kerasformer.decoding.loop import ENDED, Steps, generate
from kerasformer.decoding.output import GenerationOutput
from kerasformer.decoding.prefix_cache import PrefixCache, TextCache
from kerasformer.decoding.preparation import prepare
from kerasformer.decoding.protocols import Forward, ResumableStep, State, Step
from kerasformer.decoding.record import Node, Record, TokenChoice
from kerasformer.decoding.saved_state import SavedState
from kerasformer.decoding.speculation_counts import SpeculationCounts
from kerasformer.decoding.stopping import Stop

__all__ = [
    "ENDED",
    "TokenChoice",
    "Controls",
    "Forward",
    "GenerationConfig",
    "GenerationOutput",
    "Node",
    "PrefixCache",
    "Record",
    "ResumableStep",
    "SavedState",
    "State",
    "Step",
    "Steps",
    "Stop",
    "TextCache",
    "SpeculationCounts",
    "generate",
    "prepare",
]
