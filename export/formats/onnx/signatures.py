"""Functions of a model that are exported as ONNX files: Hugging Face's names, int64 ids, dynamic batch and lengths.

Layers with a sliding window have caches of full length, too: `GroupQueryAttention` reads a contiguous cache, and
third-party runtimes derive the length of the text from any cache, and shorten all of them alike to discard tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.interface import (
    ATTENTION_MASK,
    CACHE_LENGTH,
    DECODER_MODEL,
    ENCODER_ATTENTION_MASK,
    ENCODER_MODEL,
    ENCODER_STATES,
    INPUT_IDS,
    LAST_HIDDEN_STATE,
    LOGITS,
    LOGITS_START,
    MAX_CAPACITY,
    MODEL,
    POSITION_IDS,
    growing_caches,
)
from kerasformer.engines.protocols import MIN_REWIND
from kerasformer.export.graph.functions import Function, Infos, forward
from kerasformer.layers import CacheScales, CacheSpec, GrowingCache, LayerCache, ShiftingCache, Visibility
from kerasformer.layers.tensor import Tensor
from kerasformer.models.contracts import CausalLM, Seq2SeqLM
from kerasformer.models.pretrained import PretrainedModel


def onnx_functions(model: PretrainedModel, scales: Sequence[CacheScales | None] | None = None) -> list[Function]:
    """Returns the functions of an ONNX folder, one for each file.

    Args:
        model: A model of the zoo.
        scales: Scales of each layer of a decoder whose caches are int8; float32 caches by default.
    """
    if not model.generates:
        return [forward(model, MODEL, "batch_size", "sequence_length", "int64")]
    if not model.is_encoder_decoder:
        return [_growing_step(model, scales)]
    return [_encoder(model), _growing_step_with_memory(model)]


def _shifts(spec: CacheSpec) -> bool:
    """Returns whether a cache has only the last entries; keys and values have a slot for each token."""
    return spec.window is not None and not spec.attends


def _own_caches(
    model: CausalLM | Seq2SeqLM,
    length: str,
    present: bool,
    cross: bool | None = None,
    scales: Sequence[CacheScales | None] | None = None,
) -> list[Infos]:
    """Describes the cache of each layer's self-attention, or what else the layer keeps of earlier tokens."""
    layers, specs = [], model.cache_specs()
    for i, (spec, of_layer) in enumerate(zip(specs, scales or [None] * len(specs), strict=True)):
        info = TensorInfo(spec.shape("batch_size", length), "float32" if of_layer is None else "int8")
        if _shifts(spec):
            info = TensorInfo(spec.shape("batch_size", MAX_CAPACITY, MIN_REWIND), info.dtype, margin=MIN_REWIND)
        states = (TensorInfo(("batch_size", *shape), "float32", margin=0) for shape in spec.states.values())
        infos = [*[info] * len(spec.tensors), *states]
        layers.append(dict(zip(growing_caches(i, cross, present, spec.names), infos, strict=True)))
    return layers


def _all_caches(model: CausalLM | Seq2SeqLM, length: str, encoder_length: str, present: bool) -> Infos:
    """Describes the caches of self- and cross-attention; runtimes expect them layer by layer."""
    cross = [
        dict.fromkeys(
            growing_caches(i, True, present, spec.tensors),
            TensorInfo(spec.shape("batch_size", encoder_length), "float32"),
        )
        for i, spec in enumerate(model.memory_specs())
    ]
    return _joined(own | other for own, other in zip(_own_caches(model, length, present, False), cross, strict=True))


def _joined(layers: Iterable[Infos]) -> Infos:
    return {name: info for layer in layers for name, info in layer.items()}


def _grown(specs: Sequence[CacheSpec], caches: Sequence[Any], cross: bool | None = None) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for i, (spec, cache) in enumerate(zip(specs, caches, strict=True)):
        named |= zip(growing_caches(i, cross, True, spec.names), cache.tensors, strict=True)
    return named


def _past(
    specs: Sequence[CacheSpec],
    inputs: dict[str, Tensor],
    causal: bool,
    cross: bool | None = None,
    scales: Sequence[CacheScales | None] | None = None,
) -> list[Any]:
    """Returns the cache of each layer."""

    def opened(spec: CacheSpec, scales: CacheScales | None, tensors: list[Tensor]) -> LayerCache:
        grows = partial(GrowingCache, causal=causal, scales=scales)
        return spec.opened(tensors, ShiftingCache if _shifts(spec) else grows)

    layers = enumerate(zip(specs, scales or [None] * len(specs), strict=True))
    return [
        opened(spec, of_layer, [inputs[name] for name in growing_caches(i, cross, tensors=spec.names)])
        for i, (spec, of_layer) in layers
    ]


def _growing_step(model: CausalLM, scales: Sequence[CacheScales | None] | None) -> Function:
    """Returns the function by which a decoder reads tokens after those in the caches.

    ONNX Runtime computes the logits of all tokens of a prompt, also if they are not requested. `logits_start` omits
    those at the start; other runtimes need not know this input.
    """
    specs = model.cache_specs()

    def call(
        input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, logits_start: Tensor, **past: Tensor
    ) -> dict[str, Tensor]:
        tokens, positions, real = (ops.cast(x, "int32") for x in (input_ids, position_ids, attention_mask))
        visibility = Visibility.of_text(
            ops.shape(tokens)[1], real, causal=True, key_length=ops.shape(real)[1], positions=positions
        )
        hidden, new = model.decode_states(tokens, visibility, _past(specs, past, causal=True, scales=scales))
        return {LOGITS: model.project(hidden[:, ops.cast(logits_start, "int32")[0] :]), **_grown(specs, new)}

    inputs = {
        INPUT_IDS: TensorInfo(("batch_size", "sequence_length"), "int64"),
        ATTENTION_MASK: TensorInfo(("batch_size", "total_sequence_length"), "int64"),
        POSITION_IDS: TensorInfo(("batch_size", "sequence_length"), "int64"),
        **_joined(_own_caches(model, "past_sequence_length", present=False, scales=scales)),
        LOGITS_START: TensorInfo((1,), "int64"),
    }
    outputs = {
        LOGITS: TensorInfo(("batch_size", "logits_length", model.output_vocab_size), "float32"),
        **_joined(_own_caches(model, "total_sequence_length", present=True, scales=scales)),
    }
    return Function(MODEL, inputs, outputs, call, incremental=True, defaults={LOGITS_START: np.array([0])})


def _encoder(model: Seq2SeqLM) -> Function:
    def call(input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        ids, mask = ops.cast(input_ids, "int32"), ops.cast(attention_mask, "int32")
        return {LAST_HIDDEN_STATE: model.encode(ids, mask)}

    shape = ("batch_size", "encoder_sequence_length")
    inputs = {name: TensorInfo(shape, "int64") for name in (INPUT_IDS, ATTENTION_MASK)}
    outputs = {LAST_HIDDEN_STATE: TensorInfo((*shape, model.config.hidden_dim), "float32")}
    return Function(ENCODER_MODEL, inputs, outputs, call)


def _growing_step_with_memory(model: Seq2SeqLM) -> Function:
    """Returns the function by which a decoder that attends to an encoded text reads tokens.

    A graph without a branch serves all steps: it computes keys and values for those tokens of the encoded text that are
    not in the cross caches, which are all tokens in the first step and none later. `cache_length` may be omitted if the
    decoder's caches contain only earlier tokens; a buffer with unused slots needs it.
    """
    specs, memory_specs = model.cache_specs(), model.memory_specs()

    def call(
        encoder_attention_mask: Tensor,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        cache_length: Tensor,
        **past: Tensor,
    ) -> dict[str, Tensor]:
        tokens, real = ops.cast(input_ids, "int32"), ops.cast(encoder_attention_mask, "int32")
        caches = _past(specs, past, causal=True, cross=False)
        cross = _past(memory_specs, past, causal=False, cross=True)
        count, length = ops.shape(tokens)[1], ops.cast(cache_length, "int32")[0]
        before = ops.where(length < 0, ops.shape(caches[0].key)[2], length)
        scores, new, new_cross = model.decode(
            tokens,
            Visibility.of_text(count, causal=True, key_length=before + count),
            caches,
            real,
            cross,
            memory=encoder_hidden_states[:, ops.shape(cross[0].key)[2] :],
        )
        return {LOGITS: scores, **_grown(specs, new, False), **_grown(memory_specs, new_cross, True)}

    past_lengths = "past_decoder_sequence_length", "past_encoder_sequence_length"
    present_lengths = "present_decoder_sequence_length", "encoder_sequence_length"
    text, written = ("batch_size", "encoder_sequence_length"), ("batch_size", "decoder_sequence_length")
    inputs = {
        ENCODER_ATTENTION_MASK: TensorInfo(text, "int64"),
        INPUT_IDS: TensorInfo(written, "int64"),
        ENCODER_STATES: TensorInfo((*text, model.config.hidden_dim), "float32"),
        **_all_caches(model, *past_lengths, present=False),
        CACHE_LENGTH: TensorInfo((1,), "int64"),
    }
    outputs = {
        LOGITS: TensorInfo((*written, model.output_vocab_size), "float32"),
        **_all_caches(model, *present_lengths, present=True),
    }
    defaults = {CACHE_LENGTH: np.array([-1])}
    return Function(DECODER_MODEL, inputs, outputs, call, incremental=True, defaults=defaults)
