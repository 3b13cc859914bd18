"""What the graphs refuse: inputs that some devices would answer with wrong numbers rather than with an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kerasformer.bundle.interface import ATTENTION_MASK, ENCODER_MASK, INPUT_IDS, TOKENS, static_caches
from kerasformer.errors import require
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import ExportJob

Tensors = dict[str, Any]


def guarded(job: ExportJob, function: Function) -> Function:
    """The function, which looks at its inputs first.

    Args:
        job: With the model and the size of its cache.
        function: That reads tokens, with or without caches.
    """
    return _guarded(function, lambda inputs: _of_tokens(job, inputs))


def guarded_writer(job: ExportJob, function: Function) -> Function:
    """The function, which looks at prompts and settings first.

    Args:
        job: With the model and the size of its cache.
        function: That generates.
    """
    return _guarded(function, lambda inputs: _of_prompts(job, inputs))


def _guarded(function: Function, checks: Callable[[Tensors], Sequence[Any]]) -> Function:
    """Nothing is computed before all checks have passed."""

    def call(**inputs: Any) -> Tensors:
        tf = require("tensorflow", "export")
        with tf.control_dependencies(checks(inputs)):
            checked = {name: tf.identity(tensor) for name, tensor in inputs.items()}
        return function.call(**checked)

    return replace(function, call=call)


def _of_tokens(job: ExportJob, inputs: Tensors) -> list[Any]:
    ids = inputs[TOKENS] if TOKENS in inputs else inputs[INPUT_IDS]
    length, limit = _length(ids), job.model.max_length
    if TOKENS in inputs:
        length, limit = length + _length(inputs[static_caches(0)[0]], axis=2), job.capacity
    checks = [_known(job, ids), *_room(length, limit)]
    if ATTENTION_MASK in inputs:
        checks.append(_masked(inputs[ATTENTION_MASK], length))
    if ENCODER_MASK in inputs:
        checks.append(_masked(inputs[ENCODER_MASK], _length(inputs[static_caches(0, cross=True)[0]], axis=2)))
    return checks


def _of_prompts(job: ExportJob, inputs: Tensors) -> list[Any]:
    ids, mask, count = (inputs[name] for name in (INPUT_IDS, ATTENTION_MASK, "max_new_tokens"))
    checks = [_known(job, ids), _masked(mask, _length(ids))]
    checks.append(_refuse(count >= 1, "max_new_tokens must be at least 1. Received:", count))
    if job.model.is_encoder_decoder:
        checks += [*_room(_length(ids), job.model.max_length), *_room(count, job.capacity)]
    else:
        real = require("tensorflow", "export").reduce_all(mask[:, -1:] == 1)
        message = "prompts are padded on their left: attention_mask must end with 1. Received:"
        checks += [*_room(_length(ids) + count, job.capacity), _refuse(real, message, mask)]
    if "temperature" in inputs:
        given = inputs["temperature"]
        checks.append(_refuse(given > 0, "temperature must be above 0, or call generate. Received:", given))
    return checks


def _length(tensor: Any, axis: int = 1) -> Any:
    return require("tensorflow", "export").shape(tensor)[axis]


def _known(job: ExportJob, ids: Any) -> Any:
    """Ids are rows of the table."""
    tf, size = require("tensorflow", "export"), job.model.config.vocab_size
    known = tf.reduce_all(tf.logical_and(ids >= 0, ids < size))
    return _refuse(known, f"ids must lie between 0 and {size - 1}. Received:", ids)


def _room(length: Any, limit: int | None) -> list[Any]:
    message = f"there is room for {limit} tokens, prompt and answer together. Received:"
    return [] if limit is None else [_refuse(length <= limit, message, length)]


def _masked(mask: Any, length: Any) -> Any:
    """A mask of one column would be stretched to all."""
    tf = require("tensorflow", "export")
    message = "a mask has a column for every token, those in the caches included. Received:"
    return _refuse(tf.equal(_length(mask), length), message, tf.shape(mask))


def _refuse(fine: Any, message: str, received: Any) -> Any:
    """An error of TensorFlow with this message, unless all is fine."""
    return require("tensorflow", "export").debugging.Assert(fine, [message, received])
