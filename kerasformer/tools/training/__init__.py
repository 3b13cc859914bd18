"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.process import keep_memory
from kerasformer.tools.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN
from kerasformer.tools.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy, class_weights
from kerasformer.tools.training.datasets import Dataset, dataset
from kerasformer.tools.training.distillation import (
    AttentionRelations,
    Distiller,
    EmbeddingDistance,
    EmbeddingTargets,
    HiddenCosine,
    LogitDistance,
    SoftTargets,
)
from kerasformer.tools.training.distribution import distribute
from kerasformer.tools.training.losses import SpanCrossentropy
from kerasformer.tools.training.mixtures import Mixture, mixing_rates, mixture
from kerasformer.tools.training.multiple_choice import MultipleChoice
from kerasformer.tools.training.objectives.batches import teacher_forcing
from kerasformer.tools.training.objectives.boundary import SpanBoundary
from kerasformer.tools.training.objectives.dataset import ObjectiveDataset
from kerasformer.tools.training.objectives.denoising import (
    delete_tokens,
    denoising,
    deshuffling,
    document_rotation,
    gap_sentences,
    infill,
    permute_sentences,
    rotate,
    sentence_permutation,
    span_corruption,
    text_infilling,
    token_deletion,
)
from kerasformer.tools.training.objectives.documents import documents
from kerasformer.tools.training.objectives.language_models import causal, prefix_lm, translation
from kerasformer.tools.training.objectives.masked_tokens import (
    Masking,
    masked,
    replaced_tokens,
    span_boundary,
    translation_lm,
)
from kerasformer.tools.training.objectives.packing import PackedModel, pack
from kerasformer.tools.training.objectives.replaced import MaskedBinaryCrossentropy, ReplacedTokens
from kerasformer.tools.training.objectives.sampling import InverseSigmoidDecay, ScheduledSampling
from kerasformer.tools.training.objectives.sentence_pairs import next_sentence, sentence_order
from kerasformer.tools.training.objectives.vocabulary import Vocabulary
from kerasformer.tools.training.optimizers import WarmupSchedule, freeze, optimizer
from kerasformer.tools.training.pruning import chosen_layers, prune, unit_importance
from kerasformer.tools.training.quantization import quantization_aware
from kerasformer.tools.training.resume import Resume
from kerasformer.tools.training.shrinking import Step, shrink
from kerasformer.tools.training.streaming import StreamedDataset

__all__ = [
    "AttentionRelations",
    "Curve",
    "Dataset",
    "Distiller",
    "EmbeddingDistance",
    "EmbeddingTargets",
    "Evaluate",
    "HiddenCosine",
    "InverseSigmoidDecay",
    "LogitDistance",
    "MaskedBinaryCrossentropy",
    "Masking",
    "Mixture",
    "MultipleChoice",
    "ObjectiveDataset",
    "PackedModel",
    "ReplacedTokens",
    "Resume",
    "SavePretrained",
    "ScheduledSampling",
    "SoftTargets",
    "SpanBoundary",
    "SpanCrossentropy",
    "Step",
    "StopOnNaN",
    "StreamedDataset",
    "Vocabulary",
    "WarmupSchedule",
    "WeightedBinaryCrossentropy",
    "WeightedCrossentropy",
    "causal",
    "chosen_layers",
    "class_weights",
    "dataset",
    "delete_tokens",
    "denoising",
    "deshuffling",
    "distribute",
    "document_rotation",
    "documents",
    "freeze",
    "gap_sentences",
    "infill",
    "keep_memory",
    "masked",
    "mixing_rates",
    "mixture",
    "next_sentence",
    "optimizer",
    "pack",
    "permute_sentences",
    "prefix_lm",
    "prune",
    "quantization_aware",
    "replaced_tokens",
    "rotate",
    "sentence_order",
    "sentence_permutation",
    "shrink",
    "span_boundary",
    "span_corruption",
    "teacher_forcing",
    "text_infilling",
    "token_deletion",
    "translation",
    "translation_lm",
    "unit_importance",
]
