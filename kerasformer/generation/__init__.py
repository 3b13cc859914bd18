"""Text generation in NumPy for any engine that implements `Step`: settings, the loop over tokens, texts and streams."""

from kerasformer.generation.checks import TEMPERATURE
from kerasformer.generation.controls import Controls
from kerasformer.generation.generated_text import GeneratedText
from kerasformer.generation.generation_config import ID_SETTINGS, GenerationConfig
from kerasformer.generation.loop import ENDED, Steps, generate
from kerasformer.generation.output import GenerationOutput, NewTokens
from kerasformer.generation.prefix_cache import PrefixCache, TextCache
from kerasformer.generation.preparation import decoder_start, prepare
from kerasformer.generation.readable_tokens import readable_token
from kerasformer.generation.record import TOP, Node, Record, TokenChoice
from kerasformer.generation.request import Request, request
from kerasformer.generation.samplers import sampling_of
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.generation.speculation_counts import SpeculationCounts
from kerasformer.generation.stopping import Stop
from kerasformer.generation.streams import NewText, Stream
from kerasformer.generation.token_bytes import TokenBytes, token_bytes_of
from kerasformer.generation.wrapped_step import WrappedStep

__all__ = [
    "Controls",
    "ENDED",
    "GeneratedText",
    "GenerationConfig",
    "GenerationOutput",
    "GenerationSettings",
    "ID_SETTINGS",
    "NewText",
    "NewTokens",
    "Node",
    "PrefixCache",
    "Record",
    "Request",
    "SpeculationCounts",
    "Steps",
    "Stop",
    "Stream",
    "TEMPERATURE",
    "TOP",
    "TextCache",
    "TokenBytes",
    "TokenChoice",
    "WrappedStep",
    "decoder_start",
    "generate",
    "prepare",
    "readable_token",
    "request",
    "sampling_of",
    "token_bytes_of",
]
