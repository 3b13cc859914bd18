"""Creation of the pipeline of a task: `pipeline`, its options, and the classes by task.

Called by the user as `kerasformer.pipeline`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack, overload

from kerasformer.basics.arguments import STRING, instance, integer, sequence, shown
from kerasformer.basics.options import Option, checked, documented
from kerasformer.basics.tasks import ALIASES, canonical, without_languages
from kerasformer.errors import InputError
from kerasformer.files import live
from kerasformer.pipelines.base import Pipeline
from kerasformer.pipelines.feature_extraction import FeatureExtractionPipeline
from kerasformer.pipelines.fill_mask import FillMaskPipeline
from kerasformer.pipelines.multi_vector_similarity import MultiVectorSimilarityPipeline
from kerasformer.pipelines.opening import Source, open_source
from kerasformer.pipelines.question_answering import QuestionAnsweringPipeline
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.pipelines.span_extraction import SpanExtractionPipeline
from kerasformer.pipelines.sparse_similarity import SparseSimilarityPipeline
from kerasformer.pipelines.summarization import SummarizationPipeline
from kerasformer.pipelines.text_classification import TextClassificationPipeline
from kerasformer.pipelines.text_generation import TextGenerationPipeline
from kerasformer.pipelines.text_to_text import Text2TextGenerationPipeline
from kerasformer.pipelines.token_classification import TokenClassificationPipeline
from kerasformer.pipelines.translation import TranslationPipeline
from kerasformer.pipelines.zero_shot_classification import ZeroShotClassificationPipeline
from kerasformer.tokenization import Tokenizer

PIPELINES: dict[str, type[Pipeline]] = {
    "feature-extraction": FeatureExtractionPipeline,
    "fill-mask": FillMaskPipeline,
    "multi-vector-similarity": MultiVectorSimilarityPipeline,
    "question-answering": QuestionAnsweringPipeline,
    "sentence-similarity": SentenceSimilarityPipeline,
    "sparse-similarity": SparseSimilarityPipeline,
    "summarization": SummarizationPipeline,
    "text-classification": TextClassificationPipeline,
    "text-ranking": TextClassificationPipeline,
    "text-generation": TextGenerationPipeline,
    "text2text-generation": Text2TextGenerationPipeline,
    "token-classification": TokenClassificationPipeline,
    "translation": TranslationPipeline,
    "zero-shot-classification": ZeroShotClassificationPipeline,
    "zero-shot-token-classification": SpanExtractionPipeline,
}


class PipelineOptions(TypedDict, total=False):
    """Options of `pipeline`.

    Attributes:
        tokenizer: Tokenizer, or a folder, preset or hub id that contains one; by default that of the source.
        num_threads: Number of CPU threads of a bundle; the runtime's default otherwise.
        cache_dir: Folder for packed weights, which make later loads of a bundle faster; `True` for the user's cache
            folder. Nothing is cached by default.
        accelerator: For a TFLite bundle: `gpu` or `npu`, if the device has one.
        providers: For an ONNX bundle: execution providers of ONNX Runtime, in order of preference.
        src_lang: For tasks from text to text: language of the texts, which a call can change.
        tgt_lang: Language of the results, likewise.
        prefix_cache: For text-generation: memory in bytes for the caches of earlier prompts and conversations. A text
            is only read from where it differs from all of them. By default, 256 MiB for conversations alone.
    """

    tokenizer: Annotated[
        Tokenizer | str | os.PathLike[str] | None,
        Option(instance("a Tokenizer, a preset, a folder or a hub id", Tokenizer, str, os.PathLike)),
    ]
    num_threads: Annotated[int | None, Option(integer(1))]
    cache_dir: Annotated[str | Path | bool | None, Option(instance("a folder, True or False", str, os.PathLike, bool))]
    accelerator: Annotated[str | None, Option(STRING)]
    providers: Annotated[Sequence[str] | None, Option(sequence(STRING))]
    src_lang: Annotated[str | None, Option(STRING)]
    tgt_lang: Annotated[str | None, Option(STRING)]
    prefix_cache: Annotated[int | None, Option(integer(0))]


_Classification = Literal["text-classification", "text-ranking", "sentiment-analysis"]


@overload
def pipeline(
    source: Source, task: Literal["text-generation"], **options: Unpack[PipelineOptions]
) -> TextGenerationPipeline: ...
@overload
def pipeline(
    source: Source, task: _Classification, **options: Unpack[PipelineOptions]
) -> TextClassificationPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["token-classification", "ner"], **options: Unpack[PipelineOptions]
) -> TokenClassificationPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["question-answering"], **options: Unpack[PipelineOptions]
) -> QuestionAnsweringPipeline: ...
@overload
def pipeline(source: Source, task: Literal["fill-mask"], **options: Unpack[PipelineOptions]) -> FillMaskPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["feature-extraction"], **options: Unpack[PipelineOptions]
) -> FeatureExtractionPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["sentence-similarity"], **options: Unpack[PipelineOptions]
) -> SentenceSimilarityPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["zero-shot-classification"], **options: Unpack[PipelineOptions]
) -> ZeroShotClassificationPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["zero-shot-token-classification"], **options: Unpack[PipelineOptions]
) -> SpanExtractionPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["multi-vector-similarity"], **options: Unpack[PipelineOptions]
) -> MultiVectorSimilarityPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["sparse-similarity"], **options: Unpack[PipelineOptions]
) -> SparseSimilarityPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["summarization"], **options: Unpack[PipelineOptions]
) -> SummarizationPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["translation"], **options: Unpack[PipelineOptions]
) -> TranslationPipeline: ...
@overload
def pipeline(
    source: Source, task: Literal["text2text-generation"], **options: Unpack[PipelineOptions]
) -> Text2TextGenerationPipeline: ...
@overload
def pipeline(source: Source, task: str | None = None, **options: Unpack[PipelineOptions]) -> Any: ...
@overload
def pipeline(
    source: str | None = None, task: str | None = None, *, model: Source, **options: Unpack[PipelineOptions]
) -> Any: ...


@documented(PipelineOptions)
def pipeline(
    source: Source | None = None,
    task: str | None = None,
    *,
    model: Source | None = None,
    **options: Unpack[PipelineOptions],
) -> Any:
    """Creates the pipeline of a task for a Keras model or a bundle.

        pipeline("sentiment-bert")("A warm and funny film.")
        pipeline("path/to/bundle", "summarization", num_threads=2)

    Args:
        source: Model of the zoo, checkpoint folder, preset, hub id or bundle.
        task: Hugging Face task name (a key of `PIPELINES`) or an alias (`kerasformer.basics.tasks.ALIASES`); that of
            the source by default.
        model: The source, as `transformers` calls it: `pipeline("summarization", model=source)`.
        options: See `PipelineOptions`.

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
    if model is not None:
        given = [value for value in (source, task) if value is not None]
        if len(given) > 1 or (given and not _is_task(given[0])):
            raise InputError(
                f"With model=, a task alone was expected: pipeline({shown(task or 'text-classification')}, model=…). "
                f"Received: {', '.join(map(shown, given))}"
            )
        source, task = model, str(given[0]) if given else None
    if task is not None and not _is_task(task):
        swapped = f". The source comes first: pipeline({shown(task)}, {shown(source)})" if _is_task(source) else ""
        names = ", ".join([*PIPELINES, *ALIASES])
        raise InputError(f"Unknown task. Expected one of {names}. Received: {shown(task)}{swapped}")
    if source is None or (task is None and _is_task(source)):
        raise InputError(
            "A source was expected: a model, a checkpoint folder, a preset, a hub id or a bundle. "
            f"Received: {'none' if source is None else f'the task {shown(source)} alone'}"
        )
    if live.is_tokenizer(options.get("tokenizer")):
        options["tokenizer"] = Tokenizer.load(options["tokenizer"])
    chosen = checked(PipelineOptions, options, "a pipeline")
    of_class = {name: chosen.pop(name) for name in ("src_lang", "tgt_lang", "prefix_cache") if name in chosen}
    opened = open_source(None if task is None else canonical(task), source, **chosen)
    pipeline_class = PIPELINES.get(without_languages(opened.task))
    if pipeline_class is None:
        raise InputError(f"There is no pipeline for {opened.task}. Expected one of {', '.join(PIPELINES)}")
    for name in of_class:
        only = TextGenerationPipeline if name == "prefix_cache" else Text2TextGenerationPipeline
        if not issubclass(pipeline_class, only):
            purpose = "text-generation" if name == "prefix_cache" else "tasks from text to text"
            raise InputError(
                f"{name} is for {purpose}. Expected: none for {opened.task}. Received: {name}={of_class[name]!r}"
            )
    return pipeline_class(opened, **of_class)


def _is_task(value: object) -> bool:
    return isinstance(value, str) and without_languages(value) in PIPELINES
