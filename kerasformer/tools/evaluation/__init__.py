"""Evaluation of a pipeline on labelled texts, on any engine, with the metrics of its task."""

from kerasformer.pipelines import Example, Examples, examples, read_examples, read_parallel
from kerasformer.tools.evaluation.baselines import BASELINES, lead, tldr
from kerasformer.tools.evaluation.classes import ClassScores, ConfusionMatrix
from kerasformer.tools.evaluation.data import read_data, read_documents, text_to_text
from kerasformer.tools.evaluation.glue import GLUE
from kerasformer.tools.evaluation.outcome import Outcome
from kerasformer.tools.evaluation.probes import probes
from kerasformer.tools.evaluation.prompts import FewShotPrompt, prompt
from kerasformer.tools.evaluation.task_evaluation import (
    TaskEvaluation,
    check,
    evaluate,
    is_classified,
    outcome,
    refuse_ignored,
)
from kerasformer.tools.evaluation.text_evaluation import TEXT_TASKS, Evaluation, System, TextEvaluation

__all__ = [
    "BASELINES",
    "ClassScores",
    "ConfusionMatrix",
    "Evaluation",
    "Example",
    "Examples",
    "FewShotPrompt",
    "GLUE",
    "Outcome",
    "TEXT_TASKS",
    "System",
    "TaskEvaluation",
    "TextEvaluation",
    "check",
    "evaluate",
    "examples",
    "is_classified",
    "lead",
    "outcome",
    "probes",
    "prompt",
    "read_data",
    "read_documents",
    "read_examples",
    "read_parallel",
    "refuse_ignored",
    "text_to_text",
    "tldr",
]
