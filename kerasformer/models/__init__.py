"""Shared by all architectures: configurations, weight tables, model classes by task, loading, the Keras engine."""

from kerasformer.models import registry
from kerasformer.models.backbone import Backbone
from kerasformer.models.checkpoint import read_config
from kerasformer.models.config import Config, numbered_labels
from kerasformer.models.contracts import CausalModel
from kerasformer.models.creation import create
from kerasformer.models.encoder_decoder import EncoderDecoder
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.keras_forward import KerasForward
from kerasformer.models.layouts import Offset
from kerasformer.models.loading import build, load
from kerasformer.models.new_tokens import add_tokens
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.registry import architecture, describe, model_class
from kerasformer.models.resized import with_vocabulary
from kerasformer.models.saved_task import configured_task, model_type_of
from kerasformer.models.stacks import attention_outputs, family
from kerasformer.models.task_models import EncoderDecoderModel, EncoderOnly, FillMask, Pretraining
from kerasformer.models.variables import abstract_variables, deferred_variables, initialize_with, variables_by_path
from kerasformer.models.weight_table import Names, Row, nested, repeat
from kerasformer.models.weights import load_weights
from kerasformer.models.weights_digest import host_array

__all__ = [
    "Backbone",
    "CausalModel",
    "Config",
    "EncoderDecoder",
    "EncoderDecoderModel",
    "EncoderOnly",
    "FillMask",
    "HeadRequest",
    "KerasForward",
    "KerasStep",
    "Names",
    "Offset",
    "PretrainedModel",
    "Pretraining",
    "Row",
    "abstract_variables",
    "add_tokens",
    "architecture",
    "attention_outputs",
    "build",
    "configured_task",
    "create",
    "deferred_variables",
    "describe",
    "family",
    "host_array",
    "initialize_with",
    "load",
    "load_weights",
    "model_class",
    "model_type_of",
    "nested",
    "numbered_labels",
    "read_config",
    "registry",
    "repeat",
    "variables_by_path",
    "with_vocabulary",
]
