"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""

from kerasformer.process import keep_memory
from kerasformer.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN
from kerasformer.training.class_weights import WeightedBinaryCrossentropy, WeightedCrossentropy, class_weights
from kerasformer.training.datasets import Dataset, dataset
from kerasformer.training.distillation import (
    AttentionRelations,
    Distiller,
    EmbeddingDistance,
    EmbeddingTargets,
    HiddenCosine,
    LogitDistance,
    SoftTargets,
)
from kerasformer.training.distribution import distribute
from kerasformer.training.losses import SpanCrossentropy
from kerasformer.training.mixtures import Mixture, mixing_rates, mixture
from kerasformer.training.multiple_choice import MultipleChoice
from kerasformer.training.objectives.batches import teacher_forcing
from kerasformer.training.objectives.boundary import SpanBoundary
from kerasformer.training.objectives.dataset import ObjectiveDataset
from kerasformer.training.objectives.denoising import (
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
from kerasformer.training.objectives.documents import documents
from kerasformer.training.objectives.language_models import causal, prefix_lm, translation
from kerasformer.training.objectives.masked_tokens import (
    Masking,
    masked,
    replaced_tokens,
    span_boundary,
    translation_lm,
)
from kerasformer.training.objectives.packing import PackedModel, pack
from kerasformer.training.objectives.replaced import MaskedBinaryCrossentropy, ReplacedTokens
from kerasformer.training.objectives.sampling import InverseSigmoidDecay, ScheduledSampling
from kerasformer.training.objectives.sentence_pairs import next_sentence, sentence_order
from kerasformer.training.objectives.vocabulary import Vocabulary
from kerasformer.training.optimizers import WarmupSchedule, freeze, optimizer
from kerasformer.training.pruning import chosen_layers, prune, unit_importance
from kerasformer.training.quantization import quantization_aware
from kerasformer.training.resume import Resume
from kerasformer.training.shrinking import Step, shrink
from kerasformer.training.streaming import StreamedDataset

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
