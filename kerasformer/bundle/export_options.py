"""Options of an export, each declared once, for `model.export`, `kerasformer.export.export` and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from kerasformer.basics.arguments import ANYTHING, BOOLEAN, STRING, Kind, integer, one_of, sequence
from kerasformer.basics.options import Option
from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.interface import MAX_CAPACITY

TFLITE, ONNX, SAVED_MODEL, TABLE = FORMATS = ("tflite", "onnx", "saved-model", "table")
"""Names of the formats, the default first."""
ALIASES = {"litert": TFLITE, "saved_model": SAVED_MODEL}
"""Names that Keras has for formats."""
IN_GRAPH = "in-graph"
INT8_CACHES = "int8"
CACHE_DTYPES = ("float32", INT8_CACHES)
"""Data types of the caches of a decoder."""
GPU = "gpu"
ACCELERATORS = ("cpu", GPU)
"""Processors that a TFLite file is written for."""
ATTENTIONS = "attentions"
OUTPUTS = (ATTENTIONS,)
"""Further outputs that a bundle may have."""

_LENGTH = integer(1, MAX_CAPACITY)
_TEXTS = Kind("a list or a file of texts", lambda value: value)
_LABELS = sequence(ANYTHING)
_FUNCTION = Kind("a function, True or False", lambda value: value if callable(value) else BOOLEAN.convert(value))
_MODULES = Kind(
    "a regular expression, 'all-linear' or a list of names",
    lambda value: value if isinstance(value, str) else sequence(STRING, least=1).convert(value),
)


class ExportOptions(TypedDict, total=False):
    """Options of an export; those that are left out or `None` have their defaults.

    Attributes:
        target: Third-party runtime that needs more than the plain bundle, such as `mediapipe`; it determines the
            format. What it does not support raises an error.
        task: Task of the bundle, such as `summarization`; the model's own by default.
        overwrite: Replace an existing bundle, which is kept until the new one is complete.
        capacity: Slots of a decoder's cache, in tokens, for prompt and answer; by default the smaller of the model's
            limit and 1024.
        encoder_capacity: Longest text that an encoder-decoder reads, in tokens; by default the smaller of the model's
            limit and 512. In the format tflite, it is the largest of `lengths`.
        lengths: Lengths, in tokens, for which an encoder is compiled; a text runs at the smallest that it fits into. By
            default 16, 32, 64, … up to 512 or the model's limit.
        prefill_lengths: Numbers of tokens of a prompt that one call of a decoder reads; 8 and 32 by default. A sliding
            window needs a longer cache for a longer prefill.
        cache_lengths: Numbers of slots that a step attends to while the text is no longer, which is faster than the
            whole cache. By default 128 and 256, and for one token of one text also 512, 1024 and so on, below the
            capacity.
        batch_sizes: Numbers of texts, at least 2, that one step continues; 8 by default.
        verify_lengths: Numbers of tokens, at least 2, that one step reads to check guessed tokens; 4 and 8 by default.
        num_labels: Largest number of labels that a model for zero-shot-token-classification reads in one call; 32 by
            default.
        profile: `ort`, the default, uses the fused operators of ONNX Runtime; `portable` only standard operators, as
            far as the recipe allows.
        opset: Version of the standard operators; 17 by default.
        tokenizer: `in-graph` also writes an encoder's tokenizer as TF Text operators, so that the bundle takes texts.
        lora_rank: Largest rank of the low-rank adapters that the bundle runs, see `pipeline.load_adapter`; none by
            default.
        lora_targets: Modules that adapters may adapt, as `target_modules` of `model.enable_lora`; by default all linear
            layers below the head.
        cache_dtype: `int8` stores a decoder's cache in a quarter of the bytes of `float32`, the default, with scales
            from the calibration texts.
        accelerator: `gpu` writes a file without anything that LiteRT's GPU delegate is known to compute wrongly or to
            leave to the CPU; `cpu` by default.
        outputs: Further outputs: `attentions` adds a signature that returns the attention weights of all layers, for
            `kerasformer.attention` and `kerasformer explain`. None by default.
        calibration: Texts on which inputs of products, or keys and values, are measured: a file with one text per line,
            a list, or a dataset, of which the first 128 are used; by default, texts of this package.
        texts: Texts on which the bundle is compared with the Keras model: a list of strings, of lists of words, or of
            `{'question': …, 'context': …}`; or a file, plain lines, TSV, CSV or JSONL, optionally with labels. By
            default, texts of this package.
        labels: Expected result for each of `texts`: a class, a list of classes, an answer, or a text to be generated.
            The fidelity then includes the metrics of the task, and the bundle contains the texts.
        fallback: Replace a recipe whose files differ too much from Keras by the smallest more faithful one that does
            not, instead of an error that names it.
        progress: A function that is called with each stage, or `False` for no report. By default, a progress bar on
            standard error if it is a terminal; with `True`, as on the command line, a line for each stage if it is not.
    """

    target: Annotated[str | None, Option(STRING)]
    task: Annotated[str | None, Option(STRING)]
    overwrite: Annotated[bool | None, Option(BOOLEAN)]
    capacity: Annotated[int | None, Option(_LENGTH)]
    encoder_capacity: Annotated[int | None, Option(_LENGTH, formats=(ONNX, SAVED_MODEL))]
    lengths: Annotated[Sequence[int] | None, Option(sequence(_LENGTH, least=1))]
    prefill_lengths: Annotated[Sequence[int] | None, Option(sequence(integer(1), least=1), formats=(TFLITE,))]
    cache_lengths: Annotated[Sequence[int] | None, Option(sequence(integer(1)), formats=(TFLITE,))]
    batch_sizes: Annotated[Sequence[int] | None, Option(sequence(integer(2)), formats=(TFLITE,))]
    verify_lengths: Annotated[Sequence[int] | None, Option(sequence(integer(2)), formats=(TFLITE,))]
    num_labels: Annotated[int | None, Option(integer(1), formats=(TFLITE,))]
    profile: Annotated[str | None, Option(STRING, formats=(ONNX,))]
    opset: Annotated[int | None, Option(integer(1), formats=(ONNX,))]
    tokenizer: Annotated[str | None, Option(STRING, formats=(TFLITE, SAVED_MODEL))]
    lora_rank: Annotated[int | None, Option(integer(1), formats=(TFLITE, ONNX))]
    lora_targets: Annotated[str | Sequence[str] | None, Option(_MODULES, formats=(TFLITE, ONNX))]
    cache_dtype: Annotated[str | None, Option(one_of(*CACHE_DTYPES), formats=(TFLITE, ONNX))]
    accelerator: Annotated[str | None, Option(one_of(*ACCELERATORS), formats=(TFLITE,))]
    outputs: Annotated[Sequence[str] | None, Option(sequence(one_of(*OUTPUTS), least=1), formats=(TFLITE, ONNX))]
    calibration: Annotated[Any, Option(_TEXTS)]
    texts: Annotated[Any, Option(_TEXTS)]
    labels: Annotated[Sequence[Any] | None, Option(_LABELS)]
    fallback: Annotated[bool | None, Option(BOOLEAN)]
    progress: Annotated[StageProgress | bool | None, Option(_FUNCTION, in_shell=False)]
