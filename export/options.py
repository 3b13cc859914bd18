"""What is to be exported: as the caller said it, and once the model is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kerasformer.arguments import STRING, check, integer, optional, sequence
from kerasformer.bundle import ModelInfo
from kerasformer.errors import InputError, argument
from kerasformer.export.formats.tflite.signatures import ENCODER_LENGTHS, PREFILL_LENGTHS, lengths_up_to
from kerasformer.tasks import of_model, of_prefix
from kerasformer.zoo import PretrainedModel, load

DEFAULT_CAPACITY = 1024
MAX_LENGTH = 65_536
"""Most positions of a cache, and longest text: each is memory that a runtime takes at once."""
IN_GRAPH = "in-graph"


@dataclass(frozen=True)
class ExportOptions:
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

    def __post_init__(self) -> None:
        """Checks what each is, and puts it into its plain form.

        Raises:
            InputError: an argument of a wrong kind, such as lengths that no model has.
        """
        for names, kind in _KINDS.items():
            for name in names:
                object.__setattr__(self, name, check(name, getattr(self, name), optional(kind)))


_KINDS = {
    ("format", "task", "profile", "tokenizer"): STRING,
    ("capacity",): integer(1, MAX_LENGTH),
    ("lengths",): sequence(integer(1, MAX_LENGTH), least=1),
    ("opset",): integer(1),
}


@dataclass(frozen=True)
class ExportJob:
    """A checked options for an export, but for its recipe.

    Attributes:
        model: With its tokenizer, if it has one.
        info: What pipelines are told of it.
        format: Name of the format.
        capacity: Positions of the cache of a model that generates.
        encoder_capacity: Longest text that an encoder-decoder reads.
        lengths: Of texts that are read at once, ascending.
        profile: Of a format that has profiles.
        opset: Of ONNX.
        in_graph: The tokenizer is to be part of what is written.
    """

    model: PretrainedModel
    info: ModelInfo
    format: str
    capacity: int | None
    encoder_capacity: int | None
    lengths: tuple[int, ...]
    profile: str | None
    opset: int | None
    in_graph: bool = False


def resolve_options(
    model: PretrainedModel | str | Path,
    options: ExportOptions,
    profiles: Sequence[str],
    static: bool,
    lengths: Sequence[int] = ENCODER_LENGTHS,
) -> ExportJob:
    """The options, settled for a model.

    Args:
        model: The model, or what `zoo.load` takes.
        options: With its format.
        profiles: Of the format, the default first.
        static: The format reads an encoder's texts in fixed lengths.
        lengths: Of texts, where the options has none and as far as the model reads.

    Raises:
        InputError: a task that the model is not for, or a capacity or lengths that it does not have.
    """
    if not isinstance(model, PretrainedModel):
        model = load(model, options.task)
    if options.task is not None and of_model(options.task) != model.task:
        raise InputError(f"This model is for {model.task}. Received: {argument('task', options.task)}")
    capacity = _capacity(model, options.capacity)
    lengths = (
        lengths_up_to(model.max_length, lengths) if options.lengths is None else tuple(sorted(set(options.lengths)))
    )
    if model.max_length is not None and max(lengths) > model.max_length:
        raise InputError(f"lengths must lie between 1 and {model.max_length}. Received: {list(lengths)}")
    info = model.info(None if options.task is None else of_prefix(options.task))
    if model.is_encoder_decoder or (static and not model.generates):
        info = replace(info, max_length=max(lengths))
    return ExportJob(
        model,
        info,
        str(options.format),
        capacity,
        max(lengths) if model.is_encoder_decoder else None,
        lengths,
        options.profile or next(iter(profiles), None),
        options.opset,
        options.tokenizer == IN_GRAPH,
    )


def _capacity(model: PretrainedModel, wanted: int | None) -> int | None:
    if model.generates:
        return cache_capacity(wanted, None if model.is_encoder_decoder else model.max_length)
    if wanted is not None:
        raise InputError(
            f"capacity is for models that generate. Received: {argument('capacity', wanted)} for {model.task}"
        )
    return None


def cache_capacity(wanted: int | None, limit: int | None) -> int:
    """Positions of a cache: a multiple of the longest prefill, as LiteRT-LM asks, unless the model is smaller.

    Args:
        wanted: By the caller, if anything.
        limit: Of the model, if it has one.

    Raises:
        InputError: less than a prompt and an answer need, or more than the model has.
    """
    chosen = min(DEFAULT_CAPACITY, limit or DEFAULT_CAPACITY) if wanted is None else wanted
    if chosen < 2 or (limit is not None and chosen > limit):
        raise InputError(
            f"capacity must lie between 2 and {limit or MAX_LENGTH}. Received: {argument('capacity', wanted)}"
        )
    step = max(PREFILL_LENGTHS)
    return chosen if chosen < step or wanted is not None else chosen // step * step
