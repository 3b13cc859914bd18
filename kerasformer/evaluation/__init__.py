"""Evaluation of a pipeline on labelled texts, on any engine, with the metrics of its task."""

from kerasformer.evaluation.baselines import BASELINES, lead, tldr
from kerasformer.evaluation.examples import Example, examples, read_data, read_examples, read_parallel
from kerasformer.evaluation.task_evaluation import TaskEvaluation, check, evaluate, refuse_ignored
from kerasformer.evaluation.text_evaluation import TEXT_TASKS, Evaluation, System, TextEvaluation

__all__ = [
    "BASELINES",
    "Evaluation",
    "Example",
    "TEXT_TASKS",
    "System",
    "TaskEvaluation",
    "TextEvaluation",
    "check",
    "evaluate",
    "examples",
    "lead",
    "read_data",
    "read_examples",
    "read_parallel",
    "refuse_ignored",
    "tldr",
]
