"""Inputs of exported functions for the matrices of low-rank adapters, in the place of the variables of one.

An export with adapters gives the model an adapter that is zero, and exports its matrices as inputs instead of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import keras
import numpy as np

from kerasformer.bundle.interface import Kind, TensorInfo, adapter_input
from kerasformer.errors import InputError
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.extras import require
from kerasformer.layers.tensor import Tensor
from kerasformer.models.pretrained import PretrainedModel


@contextmanager
def zero_adapter(job: ExportJob) -> Iterator[None]:
    """Context in which the model of an export has an adapter that is zero, if the export has inputs for adapters.

    Raises:
        InputError: the model has an adapter, or no modules of these names.
    """
    if job.lora_rank is None:
        yield
        return
    if job.model.adapter is not None:
        raise InputError(
            f"lora_rank={job.lora_rank!r} is for a model without an adapter. Received: {job.model.name!r}, "
            "which has one. Call merge_adapter or unload_adapter before"
        )
    job.model.enable_lora(job.lora_rank, job.lora_targets, modules_to_save=())
    try:
        others = [module.name for module in job.model.adapted_modules if not module.linear]
        if others:
            raise InputError(
                "A bundle has inputs for adapters of linear layers only. Received: lora_targets that match "
                f"{', '.join(others)}"
            )
        yield
    finally:
        job.model.unload_adapter()


def with_adapters(function: Function, model: PretrainedModel, rank_first: bool, dotted: bool) -> Function:
    """Adds the inputs for adapters that a function uses.

    Args:
        function: The function.
        model: Its model, with an adapter whose scales are 1.
        rank_first: Whether the inputs for `A` are `(r, in)` and those for `B` `(out, r)`; otherwise their transposes,
            the shapes of the variables.
        dotted: Whether names may contain dots.
    """
    inputs: dict[str, TensorInfo] = {}
    variables: dict[str, keras.Variable] = {}
    for module in model.adapted_modules:
        several = len(module.layers) > 1
        matrices: list[tuple[Kind, int | None, keras.Variable]] = [(Kind.ADAPTER_A, None, module.layers[0].lora_a)]
        matrices += [(Kind.ADAPTER_B, index, layer.lora_b) for index, layer in enumerate(module.layers)]
        for kind, part, variable in matrices:
            name = adapter_input(module.name, kind, part if several else None, dotted)
            shape = tuple(variable.shape)[::-1] if rank_first else tuple(variable.shape)
            inputs[name] = TensorInfo(shape, "float32", kind, module=module.name, part=part, groups=module.groups)
            variables[name] = variable
    read = _read(function, variables)
    used = {name: info for name, info in inputs.items() if name in read}
    zeros = {} if rank_first else {name: np.zeros(variables[name].shape, "float32") for name in used}
    return replace(
        function,
        inputs={**function.inputs, **used},
        defaults={**function.defaults, **zeros},
        matrices=variables,
    )


def _read(function: Function, variables: Mapping[str, keras.Variable]) -> set[str]:
    """Returns the names of the variables that the outputs of a function depend on."""
    tf = require("tensorflow", "export")
    arguments = [
        tf.TensorSpec([None if isinstance(size, str) else size for size in info.shape], info.dtype)
        for info in function.inputs.values()
    ]
    matrices = [tf.TensorSpec(variable.shape, "float32") for variable in variables.values()]

    def body(*values: Tensor) -> list[Tensor]:
        scope = keras.StatelessScope()
        scope.state_mapping = dict(zip(map(id, variables.values()), values[len(arguments) :], strict=True))
        with scope:
            results = function.call(**dict(zip(function.inputs, values[: len(arguments)], strict=True)))
        return [tf.identity(results[name]) for name in function.outputs]

    traced = tf.function(body, input_signature=arguments + matrices, autograph=False).get_concrete_function()
    pending, seen = [tensor.op for tensor in traced.outputs], set()
    while pending:
        operation = pending.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            pending += [tensor.op for tensor in operation.inputs]
    placeholders = traced.inputs[len(arguments) : len(arguments) + len(matrices)]
    return {name for name, tensor in zip(variables, placeholders, strict=True) if tensor.op.name in seen}
