"""Pipelines: from texts to results for each task, on any engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.arguments import check, integer, shown
from kerasformer.errors import InputError
from kerasformer.pipelines.base import Pipeline
from kerasformer.pipelines.feature_extraction import FeatureExtractionPipeline
from kerasformer.pipelines.fill_mask import FillMaskPipeline
from kerasformer.pipelines.opening import open_source
from kerasformer.pipelines.question_answering import QuestionAnsweringPipeline
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.pipelines.summarization import SummarizationPipeline
from kerasformer.pipelines.text_classification import TextClassificationPipeline
from kerasformer.pipelines.text_generation import TextGenerationPipeline
from kerasformer.pipelines.text_to_text import Text2TextGenerationPipeline
from kerasformer.pipelines.token_classification import TokenClassificationPipeline
from kerasformer.pipelines.translation import TranslationPipeline
from kerasformer.pipelines.zero_shot_classification import ZeroShotClassificationPipeline
from kerasformer.tasks import ALIASES, known_as, of_prefix
from kerasformer.tokenization import Tokenizer

if TYPE_CHECKING:
    from kerasformer.models.pretrained import PretrainedModel

__all__ = ["PIPELINES", "Pipeline", "pipeline"]

PIPELINES: dict[str, type[Pipeline]] = {
    "feature-extraction": FeatureExtractionPipeline,
    "fill-mask": FillMaskPipeline,
    "question-answering": QuestionAnsweringPipeline,
    "sentence-similarity": SentenceSimilarityPipeline,
    "summarization": SummarizationPipeline,
    "text-classification": TextClassificationPipeline,
    "text-ranking": TextClassificationPipeline,
    "text-generation": TextGenerationPipeline,
    "text2text-generation": Text2TextGenerationPipeline,
    "token-classification": TokenClassificationPipeline,
    "translation": TranslationPipeline,
    "zero-shot-classification": ZeroShotClassificationPipeline,
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
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    prefix_cache: int | None = None,
) -> Any:
    """Creates the pipeline of a task for a Keras model or a bundle.

    Args:
        task: Hugging Face task name (a key of `PIPELINES`) or an alias (`kerasformer.tasks.ALIASES`); the task of the
            source if `None`. A source may also be the only argument: `pipeline("folder")`.
        source: Model of the zoo, checkpoint folder, preset, hub id or bundle.
        model: Alternative name of `source`, for compatibility with `transformers`.
        tokenizer: Tokenizer, or a folder, preset or hub id that contains one; defaults to that of the source.
        num_threads: Number of CPU threads, for a bundle; the runtime's default if `None`.
        cache_dir: Folder for packed weights, which make later loads faster, for a bundle; `True` for the user's cache
            folder. Nothing is cached by default.
        accelerator: For a TFLite bundle: `"gpu"` or `"npu"`, if the device has one.
        providers: For an ONNX bundle: execution providers of ONNX Runtime in order of preference.
        src_lang: Language of the texts, for translation and other tasks from text to text; a call can change it.
        tgt_lang: Language of the results, likewise.
        prefix_cache: For text-generation: memory in bytes for the caches of earlier prompts and conversations. A text
            is only read from where it differs from all of them. By default, 256 MiB for conversations alone.

    Returns:
        A callable; its arguments are documented in the class of the task. Results have the structure of those of
        `transformers`.

    Raises:
        SourceError: the source was not found.
        InputError: the task is unknown or not that of the source; the engine does not support an option; or the model
            does not know a language.
        MissingExtraError: the engine is not installed.
        TokenizerError: there is no tokenizer.
    """
    task, source = _task_and_source(task, source, model)
    options = {"cache_dir": cache_dir, "accelerator": accelerator, "providers": providers}
    opened = open_source(task, source, tokenizer, num_threads=num_threads, **options)
    kind = PIPELINES.get(of_prefix(opened.task))
    if kind is None:
        raise InputError(f"There is no pipeline for {opened.task}. Expected one of {', '.join(PIPELINES)}")
    if prefix_cache is not None:
        if not issubclass(kind, TextGenerationPipeline):
            raise InputError(
                f"prefix_cache is for text-generation. Expected: None for {opened.task}. "
                f"Received: {shown(prefix_cache)}"
            )
        return kind(opened, check("prefix_cache", prefix_cache, integer(0)))
    if src_lang is None and tgt_lang is None:
        return kind(opened)
    if not issubclass(kind, Text2TextGenerationPipeline):
        raise InputError(
            f"src_lang and tgt_lang are for tasks from text to text. Expected: neither. Received: {opened.task}"
        )
    return kind(opened, src_lang, tgt_lang)


def _task_and_source(task: Any, source: Any, model: Any) -> tuple[str | None, Any]:
    """Returns the task and the source, from the positional and keyword arguments.

    Raises:
        InputError: the task is unknown, or there is no source or more than one.
    """
    if source is not None and model is not None:
        raise InputError("source and model are the same argument. Expected: one of them. Received: both")
    source = model if source is None else source
    if source is None and task is not None and not _is_task(task) and not _is_misspelled(task):
        task, source = None, task
    if task is not None and not _is_task(task):
        names = ", ".join([*PIPELINES, *ALIASES])
        raise InputError(f"Unknown task. Expected one of {names}. Received: {shown(task)}")
    if source is None:
        raise InputError(
            "A source was expected: a model, a checkpoint folder, a preset, a hub id or a bundle. Received: none"
        )
    return None if task is None else known_as(task), source


def _is_task(value: Any) -> bool:
    return isinstance(value, str) and of_prefix(value) in PIPELINES


def _is_misspelled(value: Any) -> bool:
    """Returns whether a value is a misspelled task, rather than a folder or a hub id."""
    near = isinstance(value, str) and bool(get_close_matches(value, [*PIPELINES, *ALIASES], n=1, cutoff=0.8))
    return near and not Path(value).exists()
