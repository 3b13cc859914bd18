"""The functions of a model that an ONNX folder has: Hugging Face's names, int64 ids, free batch and lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.export.graph.functions import Function, Infos, forward
from kerasformer.layers import GrowingCache, Visibility


def onnx_functions(model: Any) -> list[Function]:
    """The graphs of an ONNX folder, each a file of that name."""
    if not model.generates:
        return [forward(model, "model", "batch_size", "sequence_length", "int64")]
    if not model.is_encoder_decoder:
        return [_growing_step(model)]
    return [_encoder(model), _growing_step_with_memory(model)]


def _caches(prefix: str, part: str, shapes: Sequence[tuple[Any, ...]]) -> list[Infos]:
    """Keys and values of each layer; `part` names the kind of cache."""
    return [
        {f"{prefix}.{i}{part}.{kind}": TensorInfo(shape, "float32") for kind in ("key", "value")}
        for i, shape in enumerate(shapes)
    ]


def _own_caches(model: Any, prefix: str, length: str, part: str = "") -> list[Infos]:
    """Caches of the decoder's self attention."""
    return _caches(prefix, part, model.cache_shapes("batch_size", length))


def _all_caches(model: Any, prefix: str, length: str, encoder_length: str) -> Infos:
    """Caches of both attentions; runtimes expect all of one layer before those of the next."""
    cross = _caches(prefix, ".encoder", model.memory_shapes("batch_size", encoder_length))
    return _joined(
        own | other for own, other in zip(_own_caches(model, prefix, length, ".decoder"), cross, strict=True)
    )


def _joined(layers: Iterable[Infos]) -> Infos:
    return {name: info for layer in layers for name, info in layer.items()}


def _grown(part: str, caches: Sequence[Any]) -> dict[str, Any]:
    return {
        f"present.{i}{part}.{kind}": tensor
        for i, cache in enumerate(caches)
        for kind, tensor in (("key", cache.key), ("value", cache.value))
    }


def _past(inputs: dict[str, Any], part: str, causal: bool) -> list[GrowingCache]:
    names = [name.removesuffix(".key") for name in inputs if name.endswith(f"{part}.key")]
    return [GrowingCache(inputs[f"{name}.key"], inputs[f"{name}.value"], causal=causal) for name in names]


def _growing_step(model: Any) -> Function:
    """Some tokens of a decoder, with all before them in the past."""

    def call(input_ids: Any, attention_mask: Any, position_ids: Any, **past: Any) -> dict[str, Any]:
        tokens, positions, real = (ops.cast(x, "int32") for x in (input_ids, position_ids, attention_mask))
        visibility = Visibility.of_text(
            ops.shape(tokens)[1], real, causal=True, key_length=ops.shape(real)[1], positions=positions
        )
        scores, new = model.decode(tokens, visibility, _past(past, "", causal=True))
        return {"logits": scores, **_grown("", new)}

    inputs = {
        "input_ids": TensorInfo(("batch_size", "sequence_length"), "int64"),
        "attention_mask": TensorInfo(("batch_size", "total_sequence_length"), "int64"),
        "position_ids": TensorInfo(("batch_size", "sequence_length"), "int64"),
        **_joined(_own_caches(model, "past_key_values", "past_sequence_length")),
    }
    outputs = {
        "logits": TensorInfo(("batch_size", "sequence_length", model.config.vocab_size), "float32"),
        **_joined(_own_caches(model, "present", "total_sequence_length")),
    }
    return Function("model", inputs, outputs, call, incremental=True)


def _encoder(model: Any) -> Function:
    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        ids, mask = ops.cast(input_ids, "int32"), ops.cast(attention_mask, "int32")
        return {"last_hidden_state": model.encode(ids, mask)}

    shape = ("batch_size", "encoder_sequence_length")
    inputs = {name: TensorInfo(shape, "int64") for name in ("input_ids", "attention_mask")}
    outputs = {"last_hidden_state": TensorInfo((*shape, model.config.hidden_dim), "float32")}
    return Function("encoder_model", inputs, outputs, call)


def _growing_step_with_memory(model: Any) -> Function:
    """Some tokens of a decoder that attends to an encoded text.

    One graph without a branch serves all steps: keys and values are computed for those rows of the encoded text that
    the cross caches lack, which is all of them in the first step and none later. `cache_length` may be left out where
    the decoder's caches hold earlier tokens alone; a buffer with room to spare needs it.
    """

    def call(
        encoder_attention_mask: Any, input_ids: Any, encoder_hidden_states: Any, cache_length: Any, **past: Any
    ) -> dict[str, Any]:
        tokens, real = ops.cast(input_ids, "int32"), ops.cast(encoder_attention_mask, "int32")
        caches = _past(past, ".decoder", causal=True)
        cross = _past(past, ".encoder", causal=False)
        count, given = ops.shape(tokens)[1], ops.cast(cache_length, "int32")[0]
        before = ops.where(given < 0, ops.shape(caches[0].key)[2], given)
        scores, new, new_cross = model.decode(
            tokens,
            Visibility.of_text(count, causal=True, key_length=before + count),
            caches,
            real,
            cross,
            memory=encoder_hidden_states[:, ops.shape(cross[0].key)[2] :],
        )
        return {"logits": scores, **_grown(".decoder", new), **_grown(".encoder", new_cross)}

    past_lengths = "past_decoder_sequence_length", "past_encoder_sequence_length"
    present_lengths = "present_decoder_sequence_length", "encoder_sequence_length"
    text = ("batch_size", "encoder_sequence_length")
    inputs = {
        "encoder_attention_mask": TensorInfo(text, "int64"),
        "input_ids": TensorInfo(("batch_size", "decoder_sequence_length"), "int64"),
        "encoder_hidden_states": TensorInfo((*text, model.config.hidden_dim), "float32"),
        **_all_caches(model, "past_key_values", *past_lengths),
        "cache_length": TensorInfo((1,), "int64"),
    }
    outputs = {
        "logits": TensorInfo(("batch_size", "decoder_sequence_length", model.config.vocab_size), "float32"),
        **_all_caches(model, "present", *present_lengths),
    }
    unknown = {"cache_length": np.array([-1])}
    return Function("decoder_model_merged", inputs, outputs, call, incremental=True, defaults=unknown)
