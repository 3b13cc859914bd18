"""Text in, result out, over any engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline
from kerasformer.pipelines._open import open_source
from kerasformer.pipelines.feature_extraction import FeatureExtraction
from kerasformer.pipelines.fill_mask import FillMask
from kerasformer.pipelines.question_answering import QuestionAnswering
from kerasformer.pipelines.text_classification import TextClassification
from kerasformer.pipelines.text_generation import Text2TextGeneration, TextGeneration
from kerasformer.pipelines.token_classification import TokenClassification

if TYPE_CHECKING:
    from kerasformer.zoo import PretrainedModel

__all__ = ["PIPELINES", "Pipeline", "pipeline"]

PIPELINES: dict[str, type[Pipeline]] = {
    "feature-extraction": FeatureExtraction,
    "fill-mask": FillMask,
    "question-answering": QuestionAnswering,
    "summarization": Text2TextGeneration,
    "text-classification": TextClassification,
    "text-generation": TextGeneration,
    "text2text-generation": Text2TextGeneration,
    "token-classification": TokenClassification,
    "translation": Text2TextGeneration,
}


def pipeline(
    task: str | None = None,
    source: str | Path | PretrainedModel | None = None,
    *,
    num_threads: int | None = None,
    cache_dir: str | Path | bool | None = None,
    accelerator: str | None = None,
    providers: Sequence[str] | None = None,
) -> Any:
    """Opens a source for a task, on the engine that it needs.

    Args:
        task: A key of `PIPELINES`, Hugging Face's name; the source's own task if `None`.
        source: A model of the zoo, a checkpoint folder, a preset, a hub id, or a bundle.
        num_threads: Threads of a bundle's runtime; all cores by default.
        cache_dir: Folder for what a bundle's runtime prepares at a first load and finds at the next ones; `True` for
            that of the user. Nothing is kept by default.
        accelerator: For a TFLite bundle: `"gpu"` or `"npu"`, where the device has one.
        providers: For an ONNX bundle: execution providers of ONNX Runtime, the preferred one first.

    Returns:
        A callable; see the class of the task for its arguments. Result shapes are those of `transformers`.

    Raises:
        SourceError: nothing was found there.
        InputError: an unknown task, one that the source is not for, or an option that its engine does not have.
        MissingExtraError: the engine is not installed.
    """
    if task is not None and task not in PIPELINES:
        raise InputError(f"Unknown task. Expected one of {', '.join(PIPELINES)}. Received: {task!r}")
    if source is None:
        raise InputError("A pipeline needs a source: a model, a folder, a preset, a hub id or a bundle.")
    options = {"cache_dir": cache_dir, "accelerator": accelerator, "providers": providers}
    opened = open_source(task, source, num_threads=num_threads, **options)
    if opened.task not in PIPELINES:
        raise InputError(f"There is no pipeline for {opened.task}. Expected one of {', '.join(PIPELINES)}")
    return PIPELINES[opened.task](opened)
