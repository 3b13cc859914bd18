"""What `model.generate` and `model.stream` do: texts or ids are prepared, and an engine generates after them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import kerasformer
from kerasformer import engines
from kerasformer.bundle.interface import MAX_CAPACITY
from kerasformer.errors import InputError, TokenizerError
from kerasformer.generation import GenerationOutput, Request, Stream, request
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.generation.streams import Callback
from kerasformer.models.keras_engine import KerasStep
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.tokenization import Encoding, Tokenizer
from kerasformer.tokenization.fitting import check_known

Prompts = str | Sequence[str] | Sequence[Sequence[int]] | np.ndarray | Mapping[str, np.ndarray]
"""A text, several, ids `(B, P)`, or the tokenizer's result."""

Generated = str | list[str] | list[np.ndarray] | GenerationOutput | Any
"""What `generate` returns; see there."""


def generate(
    model: PretrainedModel, inputs: Any, attention_mask: np.ndarray | None, settings: GenerationSettings
) -> Generated:
    """Implements `model.generate`."""
    if isinstance(inputs, Mapping):
        inputs, attention_mask = _of_mapping(inputs, attention_mask)
    texts, single = ([inputs], True) if isinstance(inputs, str) else (inputs, False)
    if not (isinstance(texts, Sequence) and texts and isinstance(texts[0], str)):
        ids = _ids(inputs)
        mask = np.ones_like(ids) if attention_mask is None else np.asarray(attention_mask)
        generation, step = _prepared(model, settings)
        output = generation.generate(step, ids, mask)
        return output.sequences if generation.result == "texts" else output
    encoded, settings = _encoded(model, texts, settings)
    generation, step = _prepared(model, settings)
    result = generation.write(step, encoded.input_ids, encoded.attention_mask)
    if generation.result != "texts":
        return result.result(generation.result)
    prefixes = ["" if model.is_encoder_decoder else text for text in texts]
    outputs = [prefix + new for prefix, row in zip(prefixes, result.texts, strict=True) for new in row]
    return outputs[0] if single and len(outputs) == 1 else outputs


def stream(model: PretrainedModel, text: str, callback: Callback | None, settings: GenerationSettings) -> Stream:
    """Implements `model.stream`."""
    if not isinstance(text, str):
        raise InputError(f"A stream requires a single text. Received: {str(text)[:80]}")
    encoded, settings = _encoded(model, [text], settings)
    generation, step = _prepared(model, settings)
    return generation.stream(step, encoded.input_ids, encoded.attention_mask, callback)


def _encoded(
    model: PretrainedModel, texts: Sequence[str], settings: GenerationSettings
) -> tuple[Encoding, GenerationSettings]:
    """Tokenizes texts, and replaces the languages among the settings by the settings that they stand for."""
    if model.tokenizer is None:
        raise TokenizerError("This model has no tokenizer. Pass ids, or load the model from a folder with a tokenizer.")
    others = {name: value for name, value in settings.items() if name not in ("src_lang", "tgt_lang")}
    tokenizer = model.tokenizer.for_languages(settings.get("src_lang"), settings.get("tgt_lang"))
    encoded: Encoding = tokenizer(list(texts), padding_side="right")
    check_known(encoded.input_ids, tokenizer, model.config.vocab_size)
    return encoded, {**tokenizer.target_settings({**model.generation_config.to_dict(), **others}), **others}


def _prepared(model: PretrainedModel, settings: GenerationSettings) -> tuple[Request, KerasStep]:
    """Returns the requested generation, and an engine for texts of any length."""
    settings = dict(settings)
    jit_compile = settings.pop("jit_compile", True)
    generation = request(settings, model.generation_config, model.tokenizer, partial(_open_assistant, jit_compile))
    return generation, KerasStep(model, model.max_answer_length or MAX_CAPACITY, jit_compile)


def _open_assistant(jit_compile: bool, source: Any) -> tuple[engines.Step, Tokenizer | None]:
    """Returns the engine and tokenizer of an assistant: an engine, a pipeline, a model, or a checkpoint to load."""
    if isinstance(source, engines.Step):
        return source, None
    if isinstance(source, str | os.PathLike):
        source = kerasformer.load(source)
    engine = getattr(source, "model", None)
    if isinstance(engine, engines.Step):
        return engine, source.tokenizer
    if not getattr(source, "generates", False):
        raise InputError(f"A model that generates was expected. Received: {source!r}")
    return KerasStep(source, jit_compile=jit_compile), source.tokenizer


def _of_mapping(
    inputs: Mapping[str, np.ndarray], attention_mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the ids and the attention mask of an encoding or another mapping."""
    arrays = dict(inputs)
    ids, mask = arrays.pop("input_ids", None), arrays.pop("attention_mask", None)
    if ids is None or arrays or (mask is not None and attention_mask is not None):
        raise InputError(
            "Prompts in a dictionary must be input_ids (batch, length) and optionally attention_mask. Received: "
            f"{', '.join([*inputs, *(['attention_mask='] if attention_mask is not None else [])]) or 'nothing'}"
        )
    return ids, attention_mask if mask is None else mask


def _ids(inputs: Prompts) -> np.ndarray:
    try:
        ids = np.asarray(inputs)
    except (TypeError, ValueError):
        ids = np.zeros(0)
    if ids.ndim != 2:
        raise InputError(
            "Prompts must be a text, a list of texts, or ids (batch, length); ids of unequal length must be padded, "
            f"with an attention_mask. Received: {str(inputs)[:80]}"
        )
    return ids
