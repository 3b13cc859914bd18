"""Text generation in NumPy for any engine that implements `Step`: settings, the loop over tokens, texts and streams."""

from kerasformer.generation.controls import Controls
from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.generation_config import GenerationConfig
from kerasformer.generation.loop import ENDED, Steps, generate
from kerasformer.generation.output import GenerationOutput
from kerasformer.generation.prefix_cache import PrefixCache, TextCache
from kerasformer.generation.preparation import prepare
from kerasformer.generation.readable_tokens import readable_token
from kerasformer.generation.record import Node, Record, TokenChoice
from kerasformer.generation.request import Request, request
from kerasformer.generation.speculation_counts import SpeculationCounts
from kerasformer.generation.stopping import Stop
from kerasformer.generation.streams import NewText, Stream

__all__ = [
    "ENDED",
    "Controls",
    "GeneratedText",
    "GenerationConfig",
    "GenerationOutput",
    "NewText",
    "Node",
    "PrefixCache",
    "Record",
    "Request",
    "SpeculationCounts",
    "Steps",
    "Stop",
    "Stream",
    "TextCache",
    "TokenChoice",
    "generate",
    "prepare",
    "readable_token",
    "request",
]
