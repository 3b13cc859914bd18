"""Checks in the graph of inputs for which some devices would return wrong numbers instead of an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kerasformer.bundle.interface import ATTENTION_MASK, ENCODER_MASK, INPUT_IDS, TOKENS, static_caches
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.extras import require
from kerasformer.layers.tensor import Tensor

Tensors = dict[str, Tensor]


def guarded(job: ExportJob, function: Function) -> Function:
    """Adds checks of the inputs to a function.

    Args:
        job: The model and its capacity.
        function: A function that reads tokens, with or without caches.
    """
    return _guarded(function, lambda inputs: _token_checks(job, inputs))


def guarded_generation(job: ExportJob, function: Function) -> Function:
    """Adds checks of the prompts and settings to a function.

    Args:
        job: The model and its capacity.
        function: A function that generates text.
    """
    return _guarded(function, lambda inputs: _prompt_checks(job, inputs))


def _guarded(function: Function, checks: Callable[[Tensors], Sequence[Tensor]]) -> Function:
    """Makes a function wait for its checks."""

    def call(**inputs: Tensor) -> Tensors:
        tf = require("tensorflow", "export")
        with tf.control_dependencies(checks(inputs)):
            checked = {name: tf.identity(tensor) for name, tensor in inputs.items()}
        return function.call(**checked)

    return replace(function, call=call)


def _token_checks(job: ExportJob, inputs: Tensors) -> list[Tensor]:
    ids = inputs[TOKENS] if TOKENS in inputs else inputs[INPUT_IDS]
    length, limit, count = _length(ids), job.model.max_length, job.model.config.vocab_size
    if TOKENS in inputs:
        cache = static_caches(0, tensors=job.model.cache_specs()[0].tensors)[0]
        length, limit = length + _length(inputs[cache], axis=2), job.capacity
        count = job.model.output_vocab_size
    checks = [_check_ids(ids, count), *_check_length(length, limit)]
    if ATTENTION_MASK in inputs:
        checks.append(_check_mask(inputs[ATTENTION_MASK], length))
    if ENCODER_MASK in inputs:
        checks.append(_check_mask(inputs[ENCODER_MASK], _length(inputs[static_caches(0, cross=True)[0]], axis=2)))
    return checks


def _prompt_checks(job: ExportJob, inputs: Tensors) -> list[Tensor]:
    ids, mask, count = (inputs[name] for name in (INPUT_IDS, ATTENTION_MASK, "max_new_tokens"))
    checks = [_check_ids(ids, job.model.config.vocab_size), _check_mask(mask, _length(ids))]
    checks.append(_refuse(count >= 1, "max_new_tokens must be at least 1. Received:", count))
    if job.model.is_encoder_decoder:
        checks += [*_check_length(_length(ids), job.model.max_length), *_check_length(count, job.capacity)]
    else:
        left_padded = require("tensorflow", "export").reduce_all(mask[:, -1:] == 1)
        message = "prompts must be padded on the left: attention_mask must end with 1. Received:"
        checks += [*_check_length(_length(ids) + count, job.capacity), _refuse(left_padded, message, mask)]
    if "temperature" in inputs:
        temperature = inputs["temperature"]
        message = "temperature must be above 0; call generate for greedy search. Received:"
        checks.append(_refuse(temperature > 0, message, temperature))
    return checks


def _length(tensor: Tensor, axis: int = 1) -> Tensor:
    return require("tensorflow", "export").shape(tensor)[axis]


def _check_ids(ids: Tensor, size: int) -> Tensor:
    """Checks that ids are in a vocabulary of this size."""
    tf = require("tensorflow", "export")
    in_vocabulary = tf.reduce_all(tf.logical_and(ids >= 0, ids < size))
    return _refuse(in_vocabulary, f"ids must be between 0 and {size - 1}. Received:", ids)


def _check_length(length: Tensor, limit: int | None) -> list[Tensor]:
    message = f"at most {limit} tokens are supported, prompt and answer together. Received:"
    return [] if limit is None else [_refuse(length <= limit, message, length)]


def _check_mask(mask: Tensor, length: Tensor) -> Tensor:
    """Checks the length of a mask, since a mask with a single column would be broadcast."""
    tf = require("tensorflow", "export")
    message = "a mask must have a column for every token, including those in the caches. Received:"
    return _refuse(tf.equal(_length(mask), length), message, tf.shape(mask))


def _refuse(valid: Tensor, message: str, received: Tensor) -> Tensor:
    """Returns an operation that raises an error with this message unless `valid` is true."""
    return require("tensorflow", "export").debugging.Assert(valid, [message, received])
