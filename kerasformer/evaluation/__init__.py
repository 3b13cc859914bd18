"""Evaluation of a pipeline on labelled texts, on any engine, with the metrics of its task."""

from kerasformer.evaluation.examples import Example, examples, read_examples
from kerasformer.evaluation.quality import QUALITY, Quality, compare_quality, pipeline_of, record_quality
from kerasformer.evaluation.task_evaluation import check, evaluate

__all__ = [
    "QUALITY",
    "Example",
    "Quality",
    "check",
    "compare_quality",
    "evaluate",
    "examples",
    "pipeline_of",
    "read_examples",
    "record_quality",
]
