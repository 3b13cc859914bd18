"""The functions of a model that a SavedModel has: int32 and float32, every batch and length, one set of weights.

Caches grow: a step gives those that it was given with the new tokens behind them, `(B, H, P + T, D)`, and the first
step is given caches of length 0. `generate` and `sample` do all steps in the graph.

Shape letters: `B` batch, `T` tokens of one call, `P` tokens before them, `M` tokens of an encoded text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.export.formats.saved_model.guards import guarded, guarded_writer
from kerasformer.export.formats.saved_model.loops import Begun, Loop
from kerasformer.export.graph.functions import Function, Infos, forward
from kerasformer.export.graph.tracing import shared
from kerasformer.export.options import Job
from kerasformer.layers import FixedCache, GrowingCache, Visibility

SERVING_DEFAULT, TOKENS, GENERATE = "serving_default", "tokens", "generate"

_BATCH, _LENGTH, _PAST, _TOTAL, _ENCODED = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "total_sequence_length",
    "encoder_sequence_length",
)


def saved_model_functions(job: Job) -> list[Function]:
    """The signatures of a SavedModel.

    Args:
        job: With any model of the zoo.
    """
    if job.model.is_encoder_decoder:
        encode, decode = shared(_encode(job)), shared(_step_with_memory(job))
        loop = _loop(job, lambda inputs: _begun_with_memory(job, encode, inputs), decode)
        return [*(guarded(job, each) for each in (encode, decode)), *_writers(job, loop)]
    if job.model.generates:
        step = _step(job)
        prefill, decode = shared(_prefill(job, step)), shared(step)
        loop = _loop(job, lambda inputs: _begun(job, prefill, inputs), decode)
        return [*(guarded(job, each) for each in (prefill, decode)), *_writers(job, loop)]
    tokens = guarded(job, forward(job.model, TOKENS, _BATCH, _LENGTH, "int32"))
    if not job.in_graph:
        return [replace(tokens, name=SERVING_DEFAULT)]
    return [tokens, _text_reader(job, tokens)]


def _text_reader(job: Job, tokens: Function) -> Function:
    """The same for texts, which operators of TF Text make tokens of."""
    given = tf_text.parts(job.model.tokenizer, job.model.input_names)

    def call(text: Any) -> dict[str, Any]:
        return tokens.call(**tf_text.encode(given, text, job.model.max_length))

    return Function(SERVING_DEFAULT, {"text": TensorInfo((_BATCH,), "string")}, tokens.outputs, call)


def _caches(job: Job, prefix: str, length: str) -> Infos:
    """Keys and values of all layers, under their names."""
    shapes = job.model.memory_shapes if prefix == "cross" else job.model.cache_shapes
    infos = enumerate(TensorInfo(shape, "float32") for shape in shapes(_BATCH, length))
    return {f"{prefix}_{kind}_{layer}": info for layer, info in infos for kind in "kv"}


def _taken(job: Job, inputs: dict[str, Any], prefix: str) -> list[tuple[Any, Any]]:
    """Keys and values of each layer."""
    layers = range(len(job.model.cache_shapes(1, 1)))
    return [(inputs[f"{prefix}_k_{layer}"], inputs[f"{prefix}_v_{layer}"]) for layer in layers]


def _given(prefix: str, caches: Sequence[Any]) -> dict[str, Any]:
    """The tensors of all layers, under their names."""
    pairs = [(cache.key, cache.value) for cache in caches]
    return {f"{prefix}_{kind}_{i}": pair[k] for i, pair in enumerate(pairs) for k, kind in enumerate("kv")}


def _scores(job: Job) -> Infos:
    return {"logits": TensorInfo((_BATCH, _LENGTH, job.model.config.vocab_size), "float32")}


def _step(job: Job) -> Function:
    """Some tokens of a decoder after those in the caches; places that the mask leaves out have no position."""

    def call(tokens: Any, attention_mask: Any, **past: Any) -> dict[str, Any]:
        count, total = ops.shape(tokens)[1], ops.shape(attention_mask)[1]
        positions = ops.maximum(ops.cumsum(attention_mask, axis=1) - 1, 0)[:, total - count :]
        visibility = Visibility.of_text(count, attention_mask, causal=True, key_length=total, positions=positions)
        caches = [GrowingCache(*pair) for pair in _taken(job, past, "kv_cache")]
        scores, new = job.model.decode(tokens, visibility, caches)
        return {"logits": scores, **_given("kv_cache", new)}

    inputs = {
        "tokens": TensorInfo((_BATCH, _LENGTH), "int32"),
        "attention_mask": TensorInfo((_BATCH, _TOTAL), "int32"),
        **_caches(job, "kv_cache", _PAST),
    }
    return Function("decode", inputs, {**_scores(job), **_caches(job, "kv_cache", _TOTAL)}, call, incremental=True)


def _prefill(job: Job, step: Function) -> Function:
    """The same where nobody needs the logits, which for a long prompt are more than all else."""

    def call(**inputs: Any) -> dict[str, Any]:
        return {name: tensor for name, tensor in step.call(**inputs).items() if name != "logits"}

    return Function("prefill", step.inputs, _caches(job, "kv_cache", _TOTAL), call)


def _encode(job: Job) -> Function:
    """Texts, encoded and projected to what the decoder's layers attend to."""

    def call(input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        memory = job.model.project_memory(job.model.encode(input_ids, attention_mask))
        return _given("cross", [FixedCache(*pair) for pair in memory])

    inputs = {name: TensorInfo((_BATCH, _ENCODED), "int32") for name in ("input_ids", "attention_mask")}
    return Function("encode", inputs, _caches(job, "cross", _ENCODED), call)


def _step_with_memory(job: Job) -> Function:
    """Some tokens of a decoder that attends to encoded texts."""

    def call(tokens: Any, encoder_mask: Any, **past: Any) -> dict[str, Any]:
        caches = [GrowingCache(*pair) for pair in _taken(job, past, "kv_cache")]
        cross = [FixedCache(*pair) for pair in _taken(job, past, "cross")]
        count, before = ops.shape(tokens)[1], ops.shape(caches[0].key)[2]
        visibility = Visibility.of_text(count, causal=True, key_length=before + count)
        scores, new, _ = job.model.decode(tokens, visibility, caches, encoder_mask, cross)
        return {"logits": scores, **_given("kv_cache", new)}

    inputs = {
        "tokens": TensorInfo((_BATCH, _LENGTH), "int32"),
        "encoder_mask": TensorInfo((_BATCH, _ENCODED), "int32"),
        **_caches(job, "kv_cache", _PAST),
        **_caches(job, "cross", _ENCODED),
    }
    return Function("decode", inputs, {**_scores(job), **_caches(job, "kv_cache", _TOTAL)}, call, incremental=True)


def _begun(job: Job, prefill: Function, inputs: dict[str, Any]) -> Begun:
    """A decoder has read all but the last token of the prompts."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    caches = prefill.call(tokens=ids[:, :-1], attention_mask=mask[:, :-1], **_empty(job, ids))

    def others(count: Any) -> dict[str, Any]:
        return {"attention_mask": ops.pad(mask, ((0, 0), (0, count)), constant_values=1)}

    return Begun(ids[:, -1:], caches, others)


def _begun_with_memory(job: Job, encode: Function, inputs: dict[str, Any]) -> Begun:
    """The texts are encoded; the decoder has read nothing."""
    memory = {"encoder_mask": inputs["attention_mask"], **encode.call(**inputs)}
    first = ops.full_like(inputs["input_ids"][:, :1], job.info.start_token_id)
    return Begun(first, _empty(job, first), lambda count: memory)


def _empty(job: Job, ids: Any) -> dict[str, Any]:
    """Caches of no token."""
    shapes = job.model.cache_shapes(ops.shape(ids)[0], 0)
    return {f"kv_cache_{kind}_{layer}": ops.zeros(shape) for layer, shape in enumerate(shapes) for kind in "kv"}


def _loop(job: Job, begin: Callable[[dict[str, Any]], Begun], step: Function) -> Loop:
    """Steps until an end token."""
    ends, pad = job.info.eos_token_id, job.info.pad_token_id
    return Loop(begin, step, ends, pad if pad is not None else next(iter(ends), 0))


def _writers(job: Job, loop: Loop) -> list[Function]:
    """Whole answers: by the best token each time, or drawn."""
    texts = {name: TensorInfo((_BATCH, _LENGTH), "int32") for name in ("input_ids", "attention_mask")}
    greedy = {**texts, "max_new_tokens": TensorInfo((), "int32")}
    drawn = {
        **greedy,
        "temperature": TensorInfo((), "float32"),
        "top_k": TensorInfo((), "int32"),
        "seed": TensorInfo((), "int32"),
    }
    outputs = {"output_ids": TensorInfo((_BATCH, "new_tokens"), "int32"), "lengths": TensorInfo((_BATCH,), "int32")}
    written = [Function(GENERATE, greedy, outputs, loop.greedy), Function("sample", drawn, outputs, loop.drawn)]
    return [guarded_writer(job, each) for each in written]
