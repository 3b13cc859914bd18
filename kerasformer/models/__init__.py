"""Shared by all architectures: configurations, weight tables, model classes by task, loading, the Keras engine."""

from kerasformer.models import costs, registry
from kerasformer.models.backbone import Backbone
from kerasformer.models.config import Config, numbered_labels
from kerasformer.models.contracts import CausalModel
from kerasformer.models.costs import Costs, Counting, abstract_model, count, counted_length, kind_of
from kerasformer.models.creation import create
from kerasformer.models.head_request import HeadRequest
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.keras_forward import KerasForward
from kerasformer.models.layouts import Offset
from kerasformer.models.loading import build, load
from kerasformer.models.new_tokens import add_tokens
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.models.pruning import prune_vocabulary
from kerasformer.models.registry import architecture, describe
from kerasformer.models.stacks import attention_outputs, family
from kerasformer.models.task_models import EncoderDecoderModel, EncoderOnly, FillMask, Pretraining
from kerasformer.models.variables import deferred_variables, initialize_with, variables_by_path
from kerasformer.models.weight_table import Names, Row, nested, repeat
from kerasformer.models.weights import load_weights
from kerasformer.models.weights_digest import host_array

__all__ = [
    "Backbone",
    "CausalModel",
    "Config",
    "Costs",
    "Counting",
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
    "abstract_model",
    "add_tokens",
    "architecture",
    "attention_outputs",
    "build",
    "costs",
    "count",
    "counted_length",
    "create",
    "deferred_variables",
    "describe",
    "family",
    "host_array",
    "initialize_with",
    "kind_of",
    "load",
    "load_weights",
    "nested",
    "numbered_labels",
    "prune_vocabulary",
    "registry",
    "repeat",
    "variables_by_path",
]
