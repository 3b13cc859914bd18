"""Evaluation of a pipeline on labelled texts, on any engine, with the metrics of its task."""

from kerasformer.evaluation.baselines import BASELINES, lead, tldr
from kerasformer.evaluation.examples import Example, examples, read_data, read_examples, read_parallel
from kerasformer.evaluation.quality import QUALITY, Quality, compare_quality, pipeline_of, record_quality
from kerasformer.evaluation.task_evaluation import TaskEvaluation, check, evaluate, refuse_ignored
from kerasformer.evaluation.text_evaluation import TEXT_TASKS, Evaluation, System, TextEvaluation

__all__ = [
    "BASELINES",
    "QUALITY",
    "Evaluation",
    "Example",
    "Quality",
    "TEXT_TASKS",
    "System",
    "TaskEvaluation",
    "TextEvaluation",
    "check",
    "compare_quality",
    "evaluate",
    "examples",
    "lead",
    "pipeline_of",
    "read_data",
    "read_examples",
    "read_parallel",
    "record_quality",
    "refuse_ignored",
    "tldr",
]
