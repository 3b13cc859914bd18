"""What is to be exported: as the caller said it, and once the model is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerasformer.bundle import ModelInfo
from kerasformer.zoo import PretrainedModel


@dataclass(frozen=True)
class Wish:
    """The caller's words, `None` where nothing was said; `kerasformer.export.export` explains them.

    Attributes:
        format: `"tflite"`, `"onnx"` or `"saved-model"`.
        task: For which the bundle is meant.
        capacity: Positions of the decoder's cache.
        lengths: Token lengths for which an encoder is compiled.
        profile: Of ONNX.
        opset: Of ONNX.
        tokenizer: `"in-graph"`.
    """

    format: str | None = None
    task: str | None = None
    capacity: int | None = None
    lengths: Sequence[int] | None = None
    profile: str | None = None
    opset: int | None = None
    tokenizer: str | None = None


@dataclass(frozen=True)
class Job:
    """A checked wish for an export, but for its recipe."""

    model: PretrainedModel
    info: ModelInfo
    format: str
    capacity: int | None
    encoder_capacity: int | None
    lengths: tuple[int, ...]
    profile: str | None
    opset: int | None
