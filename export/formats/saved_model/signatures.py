"""Functions that are exported in a SavedModel: int32 and float32 tensors, any batch size and length, shared weights.

Caches grow: a step appends the new tokens to its input caches and returns caches `(B, H, P + T, D)`. The first step
takes caches of length 0. `generate` and `sample` run all steps in the graph. Layers with a sliding window have caches
of full length, too: callers derive the length of the text from any cache, and shorten all alike to discard tokens.

Shape letters: `B` batch size, `T` tokens of one call, `P` tokens before them, `M` tokens of an encoded text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    DECODE,
    ENCODE,
    ENCODER_MASK,
    GENERATE,
    INPUT_IDS,
    LOGITS,
    ON_TOKENS,
    PREFILL,
    SAMPLE,
    SERVING_DEFAULT,
    TEXT,
    TOKENS,
    static_caches,
)
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.export.formats.saved_model.guards import guarded, guarded_generation
from kerasformer.export.formats.saved_model.loops import InitialState, Loop
from kerasformer.export.graph.functions import Function, Infos, forward
from kerasformer.export.graph.tracing import shared
from kerasformer.export.job import ExportJob
from kerasformer.layers import CacheSpec, FixedCache, GrowingCache, LayerCache, Visibility
from kerasformer.layers.tensor import Tensor

_BATCH, _LENGTH, _PAST, _TOTAL, _ENCODED = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "total_sequence_length",
    "encoder_sequence_length",
)


def saved_model_functions(job: ExportJob) -> list[Function]:
    """Returns the functions of a SavedModel, one for each signature.

    Args:
        job: Export options with any model of the zoo.
    """
    if job.model.is_encoder_decoder:
        encode, decode = shared(_encode(job)), shared(_step_with_memory(job))
        loop = _loop(job, lambda inputs: _initial_state_with_memory(job, encode, inputs), decode)
        return [*(guarded(job, function) for function in (encode, decode)), *_generation_functions(job, loop)]
    if job.model.generates:
        step = _step(job)
        prefill, decode = shared(_prefill(job, step)), shared(step)
        loop = _loop(job, lambda inputs: _initial_state(job, prefill, inputs), decode)
        return [*(guarded(job, function) for function in (prefill, decode)), *_generation_functions(job, loop)]
    tokens = guarded(job, forward(job.model, ON_TOKENS, _BATCH, _LENGTH, "int32"))
    if not job.in_graph:
        return [replace(tokens, name=SERVING_DEFAULT)]
    return [tokens, _on_texts(job, tokens)]


def _on_texts(job: ExportJob, tokens: Function) -> Function:
    """Returns the function with texts as input, which TF Text operators tokenize."""
    tokenizer = tf_text.graph_tokenizer(job.model.tokenizer, job.model.input_names)

    def call(text: Tensor) -> dict[str, Tensor]:
        return tokens.call(**tf_text.encode(tokenizer, text, job.model.max_length))

    return Function(SERVING_DEFAULT, {TEXT: TensorInfo((_BATCH,), "string")}, tokens.outputs, call)


def _specs(job: ExportJob, cross: bool) -> list[CacheSpec]:
    specs: list[CacheSpec] = job.model.memory_specs() if cross else job.model.cache_specs()
    return specs


def _names(job: ExportJob, cross: bool = False) -> list[tuple[str, ...]]:
    """Returns the names of the tensors of each layer's cache."""
    specs = enumerate(_specs(job, cross))
    return [static_caches(layer, cross=cross, tensors=spec.names) for layer, spec in specs]


def _caches(job: ExportJob, length: str, cross: bool = False) -> Infos:
    """Describes the tensors of all layers' caches by name."""
    infos: Infos = {}
    for names, spec in zip(_names(job, cross), _specs(job, cross), strict=True):
        margins = [None] * len(spec.tensors) + [0] * len(spec.states)
        for name, shape, margin in zip(names, spec.shapes(_BATCH, length), margins, strict=True):
            infos[name] = TensorInfo(shape, "float32", margin=margin)
    return infos


def _layer_caches(
    job: ExportJob, inputs: dict[str, Tensor], make: Callable[[tuple[Tensor, ...]], LayerCache], cross: bool = False
) -> list[LayerCache]:
    """Creates the cache of each layer from named tensors."""
    layers = zip(_specs(job, cross), _names(job, cross), strict=True)
    return [spec.opened([inputs[name] for name in names], make) for spec, names in layers]


def _named_caches(job: ExportJob, caches: Sequence[Any], cross: bool = False) -> dict[str, Tensor]:
    """Returns the tensors of all layers' caches by name."""
    named: dict[str, Tensor] = {}
    for names, cache in zip(_names(job, cross), caches, strict=True):
        named |= zip(names, cache.tensors, strict=True)
    return named


def _scores(job: ExportJob) -> Infos:
    return {LOGITS: TensorInfo((_BATCH, _LENGTH, job.model.output_vocab_size), "float32")}


def _step(job: ExportJob) -> Function:
    """Returns the function by which a decoder reads tokens after those in the caches; padding has no position."""

    def call(tokens: Tensor, attention_mask: Tensor, **past: Tensor) -> dict[str, Tensor]:
        count, total = ops.shape(tokens)[1], ops.shape(attention_mask)[1]
        positions = ops.maximum(ops.cumsum(attention_mask, axis=1) - 1, 0)[:, total - count :]
        visibility = Visibility.of_text(count, attention_mask, causal=True, key_length=total, positions=positions)
        caches = _layer_caches(job, past, GrowingCache)
        scores, new = job.model.decode(tokens, visibility, caches)
        return {LOGITS: scores, **_named_caches(job, new)}

    inputs = {
        TOKENS: TensorInfo((_BATCH, _LENGTH), "int32"),
        ATTENTION_MASK: TensorInfo((_BATCH, _TOTAL), "int32"),
        **_caches(job, _PAST),
    }
    return Function(DECODE, inputs, {**_scores(job), **_caches(job, _TOTAL)}, call, incremental=True)


def _prefill(job: ExportJob, step: Function) -> Function:
    """Returns the step without logits, which for a long prompt are larger than everything else."""

    def call(**inputs: Tensor) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in step.call(**inputs).items() if name != LOGITS}

    return Function(PREFILL, step.inputs, _caches(job, _TOTAL), call)


def _encode(job: ExportJob) -> Function:
    """Returns the function that encodes texts and projects them to keys and values for the decoder's layers."""

    def call(input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        memory = job.model.project_memory(job.model.encode(input_ids, attention_mask))
        return _named_caches(job, [FixedCache(pair) for pair in memory], cross=True)

    inputs = {name: TensorInfo((_BATCH, _ENCODED), "int32") for name in (INPUT_IDS, ATTENTION_MASK)}
    return Function(ENCODE, inputs, _caches(job, _ENCODED, cross=True), call)


def _step_with_memory(job: ExportJob) -> Function:
    """Returns the function by which a decoder that attends to encoded texts reads tokens."""

    def call(tokens: Tensor, encoder_mask: Tensor, **past: Tensor) -> dict[str, Tensor]:
        caches: Sequence[Any] = _layer_caches(job, past, GrowingCache)
        cross = _layer_caches(job, past, FixedCache, cross=True)
        count, before = ops.shape(tokens)[1], ops.shape(caches[0].key)[2]
        visibility = Visibility.of_text(count, causal=True, key_length=before + count)
        scores, new, _ = job.model.decode(tokens, visibility, caches, encoder_mask, cross)
        return {LOGITS: scores, **_named_caches(job, new)}

    inputs = {
        TOKENS: TensorInfo((_BATCH, _LENGTH), "int32"),
        ENCODER_MASK: TensorInfo((_BATCH, _ENCODED), "int32"),
        **_caches(job, _PAST),
        **_caches(job, _ENCODED, cross=True),
    }
    return Function(DECODE, inputs, {**_scores(job), **_caches(job, _TOTAL)}, call, incremental=True)


def _initial_state(job: ExportJob, prefill: Function, inputs: dict[str, Tensor]) -> InitialState:
    """Prefills all but the last token of the prompts."""
    ids, mask = inputs[INPUT_IDS], inputs[ATTENTION_MASK]
    caches = prefill.call(tokens=ids[:, :-1], attention_mask=mask[:, :-1], **_empty(job, ids))

    def other_inputs(count: Tensor) -> dict[str, Tensor]:
        return {ATTENTION_MASK: ops.pad(mask, ((0, 0), (0, count)), constant_values=1)}

    return InitialState(ids[:, -1:], caches, other_inputs)


def _initial_state_with_memory(job: ExportJob, encode: Function, inputs: dict[str, Tensor]) -> InitialState:
    """Encodes the texts; the decoder's caches are empty."""
    memory = {ENCODER_MASK: inputs[ATTENTION_MASK], **encode.call(**inputs)}
    first = ops.full_like(inputs[INPUT_IDS][:, :1], job.info.start_token_id)
    return InitialState(first, _empty(job, first), lambda count: memory)


def _empty(job: ExportJob, ids: Tensor) -> dict[str, Tensor]:
    """Returns caches of length 0."""
    layers = zip(_names(job), _specs(job, cross=False), strict=True)
    shapes = ((names, spec.shapes(ops.shape(ids)[0], 0)) for names, spec in layers)
    return {name: ops.zeros(shape) for names, of in shapes for name, shape in zip(names, of, strict=True)}


def _loop(job: ExportJob, start: Callable[[dict[str, Tensor]], InitialState], step: Function) -> Loop:
    """Returns the generation loop, which stops at the model's end tokens."""
    ends, pad = job.info.eos_token_id, job.info.pad_token_id
    return Loop(start, step, ends, pad if pad is not None else next(iter(ends), 0))


def _generation_functions(job: ExportJob, loop: Loop) -> list[Function]:
    """Returns the functions that generate whole answers: greedily, or by sampling."""
    texts = {name: TensorInfo((_BATCH, _LENGTH), "int32") for name in (INPUT_IDS, ATTENTION_MASK)}
    greedy = {**texts, "max_new_tokens": TensorInfo((), "int32")}
    sampled = {
        **greedy,
        "temperature": TensorInfo((), "float32"),
        "top_k": TensorInfo((), "int32"),
        "seed": TensorInfo((), "int32"),
    }
    outputs = {"output_ids": TensorInfo((_BATCH, "new_tokens"), "int32"), "lengths": TensorInfo((_BATCH,), "int32")}
    functions = [Function(GENERATE, greedy, outputs, loop.greedy), Function(SAMPLE, sampled, outputs, loop.sampled)]
    return [guarded_generation(job, function) for function in functions]
