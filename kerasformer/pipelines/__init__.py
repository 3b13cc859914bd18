"""Text in, result out, over any engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.arguments import shown
from kerasformer.errors import InputError
from kerasformer.pipelines.base import Pipeline
from kerasformer.pipelines.feature_extraction import FeatureExtractionPipeline
from kerasformer.pipelines.fill_mask import FillMaskPipeline
from kerasformer.pipelines.opening import open_source
from kerasformer.pipelines.question_answering import QuestionAnsweringPipeline
from kerasformer.pipelines.text_classification import TextClassificationPipeline
from kerasformer.pipelines.text_generation import Text2TextGenerationPipeline, TextGenerationPipeline
from kerasformer.pipelines.token_classification import TokenClassificationPipeline
from kerasformer.tasks import ALIASES, known_as, of_prefix
from kerasformer.tokenization import Tokenizer

if TYPE_CHECKING:
    from kerasformer.zoo import PretrainedModel

__all__ = ["PIPELINES", "Pipeline", "pipeline"]

PIPELINES: dict[str, type[Pipeline]] = {
    "feature-extraction": FeatureExtractionPipeline,
    "fill-mask": FillMaskPipeline,
    "question-answering": QuestionAnsweringPipeline,
    "summarization": Text2TextGenerationPipeline,
    "text-classification": TextClassificationPipeline,
    "text-generation": TextGenerationPipeline,
    "text2text-generation": Text2TextGenerationPipeline,
    "token-classification": TokenClassificationPipeline,
    "translation": Text2TextGenerationPipeline,
}


def pipeline(
    task: str | os.PathLike[str] | PretrainedModel | None = None,
    source: str | os.PathLike[str] | PretrainedModel | None = None,
    *,
    model: str | os.PathLike[str] | PretrainedModel | None = None,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    num_threads: int | None = None,
    cache_dir: str | Path | bool | None = None,
    accelerator: str | None = None,
    providers: Sequence[str] | None = None,
) -> Any:
    """Opens a source for a task, on the engine that it needs.

    Args:
        task: A key of `PIPELINES`, Hugging Face's name, or one of `kerasformer.tasks.ALIASES`; the source's own task
            if `None`. A source alone may stand here, too: `pipeline("folder")`.
        source: A model of the zoo, a checkpoint folder, a preset, a hub id, or a bundle.
        model: The same as `source`, under the name that it has in `transformers`.
        tokenizer: Instead of the source's own: a tokenizer, or a folder that has one.
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
        TokenizerError: there is no tokenizer.
    """
    task, source = _task_and_source(task, source, model)
    options = {"cache_dir": cache_dir, "accelerator": accelerator, "providers": providers}
    opened = open_source(task, source, tokenizer, num_threads=num_threads, **options)
    kind = PIPELINES.get(of_prefix(opened.task))
    if kind is None:
        raise InputError(f"There is no pipeline for {opened.task}. Expected one of {', '.join(PIPELINES)}")
    return kind(opened)


def _task_and_source(task: Any, source: Any, model: Any) -> tuple[str | None, Any]:
    """What is to be opened, and for which task, from the ways to say it.

    Raises:
        InputError: an unknown task, no source, or two.
    """
    if source is not None and model is not None:
        raise InputError("source and model are the same. Expected one of them. Received: both")
    source = model if source is None else source
    if source is None and task is not None and not _is_task(task) and not _is_misspelt(task):
        task, source = None, task
    if task is not None and not _is_task(task):
        names = ", ".join([*PIPELINES, *ALIASES])
        raise InputError(f"Unknown task. Expected one of {names}. Received: {shown(task)}")
    if source is None:
        raise InputError("A pipeline needs a source: a model, a folder, a preset, a hub id or a bundle.")
    return None if task is None else known_as(task), source


def _is_task(value: Any) -> bool:
    return isinstance(value, str) and of_prefix(value) in PIPELINES


def _is_misspelt(value: Any) -> bool:
    """Whether this is a task with a mistake, and no folder: it is not to be looked for on the hub."""
    near = isinstance(value, str) and bool(get_close_matches(value, [*PIPELINES, *ALIASES], n=1, cutoff=0.8))
    return near and not Path(value).exists()
