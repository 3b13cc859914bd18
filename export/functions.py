"""One function to be exported: what a converter needs to know, and nothing about models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kerasformer.bundle import TensorInfo


@dataclass(frozen=True)
class Function:
    """A function of named tensors, written in `keras.ops`, that a converter traces.

    Attributes:
        name: Of the TFLite signature, or of the ONNX file without suffix.
        inputs: Shape and dtype of each argument, in the order in which the artifact declares them. A string in a shape
            is a symbolic dimension, such as `"batch_size"`.
        outputs: Likewise for the results.
        call: Takes the inputs as keyword arguments and returns a dictionary with the keys of `outputs`. It reads the
            model's variables; the converter replaces them by placeholders, so that no weight enters the graph.
    """

    name: str
    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    call: Callable[..., dict[str, Any]]
