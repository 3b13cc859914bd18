"""Exports of a tiny model: fidelity in both formats, operators for a GPU, and the answers of targets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from kerasformer import bundle, zoo
from kerasformer.bundle import GPU, ExportOptions
from kerasformer.bundle.recipes import MIN_QUANTIZED, recipe
from kerasformer.errors import ExportError, InputError, MissingExtraError
from kerasformer.export import TARGETS, check_attention, export, find_format, resolve_options
from kerasformer.models import Config, PretrainedModel
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.testing.case import Case, expect

FORMATS = ("tflite", "onnx")
RECIPES = ("none", "int8")
LONGEST = 64
"""Maximum length of texts in tokens, and slots of the caches."""
_SPREAD = 0.7
"""Standard deviation of a weight, times the root of its last size: it gives a clear best answer."""
_SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}


def byte_tokenizer(vocab_size: int, has_ends: bool) -> Tokenizer:
    """Returns a byte-level tokenizer.

    Args:
        vocab_size: Number of tokens, at least 261.
        has_ends: Whether texts have a start and an end token, as those of encoders.
    """
    tokens = [*_SPECIAL.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"<unused{index}>" for index in range(vocab_size - len(tokens))]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(_SPECIAL.values()))
    if has_ends:
        ends = [(_SPECIAL[name], vocabulary[_SPECIAL[name]]) for name in ("bos", "eos")]
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=ends
        )
    names = {**_SPECIAL, "cls": _SPECIAL["bos"], "sep": _SPECIAL["eos"]}
    return Tokenizer(backend, special_tokens={f"{name}_token": token for name, token in names.items()})


def text_model(case: Case, task: str, config: Config) -> PretrainedModel:
    """Returns a model with a tokenizer, and weights that give a clear best answer.

    The vocabulary and the feed-forward network are as large as quantization requires; all other settings are those of
    `config`, a configuration of the case.
    """
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for name, size in settings.items():
        if (name == "vocab_size" or name.endswith("intermediate_dim")) and size is not None:
            settings[name] = max(size, -(-MIN_QUANTIZED // config.output_dim))
    settings["vocab_size"] = max(settings["vocab_size"], len(_SPECIAL) + 256)
    model = zoo.build(case.model_type, task, **settings)
    has_ends = model.is_encoder_decoder or not model.generates
    model.set_tokenizer(byte_tokenizer(settings["vocab_size"], has_ends))
    random = np.random.default_rng(3)
    for variable in model.trainable_variables:
        value, wide = keras.ops.convert_to_numpy(variable.value), len(variable.shape) == 2
        noise = random.normal(0, _SPREAD / np.sqrt(value.shape[-1]) if wide else 0.05, value.shape)
        start = 1.0 if variable.path.endswith("scale") else 0.0
        variable.assign(noise if wide else start + noise)
    return model


def check_export(
    model: PretrainedModel,
    folder: Path,
    format: str,
    quantize: str,
    *,
    min_agreement: float = 0.9,
    **options: Any,
) -> float:
    """Exports a model and checks that the bundle has its answers; returns the largest error.

    Args:
        model: The model, see `text_model`.
        folder: Folder of the bundle.
        format: `"tflite"` or `"onnx"`.
        quantize: Name of the recipe.
        min_agreement: Smallest share of equal answers of a quantized bundle; less than that of trained models, since
            the scores of random weights are close together.
        options: Further options of the export.
    """
    chosen = recipe(quantize)
    if quantize != "none":
        chosen = dataclasses.replace(chosen, min_agreement=min(chosen.min_agreement, min_agreement))
    export(model, folder, format, chosen, **_sizes(model, format), **options)
    figures = bundle.read(folder).fidelity
    error, agreement = float(figures["max_error"]), figures["agreement"]
    if quantize == "none":
        expect(error <= 1e-4, f"largest error {error:.1e} of scale, allowed 1e-4")
        expect(agreement in (None, 1.0), f"{agreement:.1%} of the answers are those of Keras, expected all")
    else:
        expect(error > 1e-4, f"nothing was quantized: the largest error is {error:.1e} of scale")
    return error


def check_gpu(model: PretrainedModel, folder: Path) -> str:
    """Exports a model for the GPU of a phone; returns `"exported"`, or the reason of the refusal."""
    try:
        check_export(model, folder, "tflite", "none", accelerator=GPU)
    except (ExportError, InputError) as error:
        return f"refused: {error}"
    return "exported"


def check_targets(model: PretrainedModel) -> dict[str, str]:
    """Returns for each target `"accepted"`, or the reason of the refusal, from its checks before an export."""
    return {name: _accepted(model, name) for name in TARGETS}


def _accepted(model: PretrainedModel, name: str) -> str:
    target = TARGETS[name]
    try:
        file_format = find_format(target.check_options({}, None))
        options = _sizes(model, file_format.name)
        job = resolve_options(model, options, file_format, target)
        check_attention(job, f"target={name!r}", target.attention)
        target.check_interface(job)
        target.check(job)
    except (ExportError, InputError, MissingExtraError) as error:
        expect(str(error), f"target={name!r} refuses the model without a reason")
        return f"refused: {error}"
    return "accepted"


def _sizes(model: PretrainedModel, format: str) -> ExportOptions:
    """Returns the lengths and the capacity that an export of a model in a format accepts."""
    longest = min(LONGEST, model.max_length or LONGEST)
    options: ExportOptions = {}
    if model.is_encoder_decoder or (format == "tflite" and not model.generates):
        options["lengths"] = (longest,)
    return {**options, "capacity": longest} if model.generates else options
