"""Pipelines: from texts to results for each task, on any engine."""

from kerasformer.pipelines import text_parts
from kerasformer.pipelines.answers import Label
from kerasformer.pipelines.base import Pipeline, softmax
from kerasformer.pipelines.columns import Columns
from kerasformer.pipelines.creation import PIPELINES, PipelineOptions, pipeline
from kerasformer.pipelines.feature_extraction import FeatureExtractionPipeline
from kerasformer.pipelines.fill_mask import FillMaskPipeline
from kerasformer.pipelines.generation_base import GenerationPipeline, Prompt
from kerasformer.pipelines.inputs import read_inputs, read_text
from kerasformer.pipelines.labelled_texts import (
    ClassName,
    Example,
    Examples,
    examples,
    is_plain,
    read_examples,
    read_lines,
    read_parallel,
)
from kerasformer.pipelines.multi_vector_similarity import MultiVectorSimilarityPipeline
from kerasformer.pipelines.opening import Opened, Source, open_reader, open_source, open_step
from kerasformer.pipelines.quality import QUALITY, compare_quality, pipeline_of
from kerasformer.pipelines.question_answering import QuestionAnsweringPipeline
from kerasformer.pipelines.sentence_similarity import SentenceSimilarityPipeline
from kerasformer.pipelines.session import Session
from kerasformer.pipelines.span_extraction import SpanExtractionPipeline
from kerasformer.pipelines.sparse_similarity import SparseSimilarityPipeline
from kerasformer.pipelines.summarization import SummarizationPipeline
from kerasformer.pipelines.tags import OUTSIDE, PLACES, places, tag_of
from kerasformer.pipelines.text_classification import TextClassificationPipeline
from kerasformer.pipelines.text_generation import TextGenerationPipeline
from kerasformer.pipelines.text_to_text import Text2TextGenerationPipeline
from kerasformer.pipelines.token_classification import TokenClassificationPipeline
from kerasformer.pipelines.translation import TranslationPipeline
from kerasformer.pipelines.vectors import similarity
from kerasformer.pipelines.zero_shot_classification import ZeroShotClassificationPipeline

__all__ = [
    "ClassName",
    "Columns",
    "Example",
    "Examples",
    "FeatureExtractionPipeline",
    "FillMaskPipeline",
    "GenerationPipeline",
    "Label",
    "MultiVectorSimilarityPipeline",
    "OUTSIDE",
    "Opened",
    "PIPELINES",
    "PLACES",
    "Pipeline",
    "PipelineOptions",
    "Prompt",
    "QUALITY",
    "QuestionAnsweringPipeline",
    "SentenceSimilarityPipeline",
    "Session",
    "Source",
    "SpanExtractionPipeline",
    "SparseSimilarityPipeline",
    "SummarizationPipeline",
    "Text2TextGenerationPipeline",
    "TextClassificationPipeline",
    "TextGenerationPipeline",
    "TokenClassificationPipeline",
    "TranslationPipeline",
    "ZeroShotClassificationPipeline",
    "compare_quality",
    "examples",
    "is_plain",
    "open_reader",
    "open_source",
    "open_step",
    "pipeline",
    "pipeline_of",
    "places",
    "read_examples",
    "read_inputs",
    "read_lines",
    "read_parallel",
    "read_text",
    "similarity",
    "softmax",
    "tag_of",
    "text_parts",
]
