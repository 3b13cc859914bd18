"""A model and its export options, resolved.

Called by whatever writes or verifies: every stage of an export reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerasformer.bundle import ModelInfo
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.export.formats.tflite.signatures import MOST_LABELS, DecoderSignatures
from kerasformer.export.quantization.calibration import Calibration
from kerasformer.layers import CacheScales
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.pipelines.labelled_texts import Example


@dataclass(frozen=True)
class ExportJob:
    """A model with its resolved export options.

    Attributes:
        model: The model, with its tokenizer if it has one.
        info: Description of the model for pipelines.
        format: Name of the format.
        capacity: Number of slots of the cache; `None` for a model that does not generate.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens; `None` for other models.
        lengths: Lengths, in tokens, at which an encoder reads texts, ascending.
        profile: Set of operators, for a format that has profiles.
        opset: Version of the ONNX operators.
        in_graph: Whether the tokenizer is exported in the graph.
        signatures: Signatures of a decoder.
        rolling_caches: Layers with a sliding window may have caches shorter than the capacity.
        owned: Whether the model was loaded for this export and not passed by the caller, so that its weights may be
            released.
        lora_rank: Largest rank of the adapters that are inputs; `None` for none.
        lora_targets: The modules that they may adapt.
        cache_dtype: Data type of the caches of a decoder.
        cache_scales: Scales of each layer of int8 caches; `None` until they are measured, and for others.
        accelerator: Processor that a TFLite file is written for.
        outputs: Further outputs, such as `attentions`.
        recipe: How weights are stored.
        texts: The caller's texts, on which the bundle is compared with Keras; `None` for the default ones.
        calibration: The caller's texts, on which ranges of activations are measured; `None` for the default ones.
        ranges: Ranges of activations that were measured on them: required for a recipe with static activations; with
            dynamic ones, inputs of products are scaled by them.
        fallback: Whether to fall back to a more faithful recipe.
        num_labels: Largest number of labels of a model that finds spans of named types, in a format of fixed sizes.
    """

    model: PretrainedModel
    info: ModelInfo
    format: str
    capacity: int | None
    encoder_capacity: int | None
    lengths: tuple[int, ...]
    profile: str | None
    opset: int | None = None
    in_graph: bool = False
    signatures: DecoderSignatures = DecoderSignatures()
    rolling_caches: bool = True
    owned: bool = False
    lora_rank: int | None = None
    lora_targets: str | tuple[str, ...] = "all-linear"
    cache_dtype: str = "float32"
    cache_scales: tuple[CacheScales | None, ...] | None = None
    accelerator: str = "cpu"
    outputs: tuple[str, ...] = ()
    recipe: Recipe = RECIPES["none"]
    texts: Sequence[Example] | None = None
    calibration: Sequence[str] | None = None
    ranges: Calibration | None = None
    fallback: bool = False
    num_labels: int = MOST_LABELS
