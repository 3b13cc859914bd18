"""Task names: Hugging Face names, their aliases, and tasks that differ only in the prefix of their input."""

from __future__ import annotations

ALIASES = {
    "embeddings": "feature-extraction",
    "ner": "token-classification",
    "sentiment-analysis": "text-classification",
}
"""Hugging Face task names by their aliases."""

_TEXT_TO_TEXT = "text2text-generation"
_BY_PREFIX = frozenset({"summarization", "translation"})


def known_as(task: str) -> str:
    """Returns the Hugging Face name of a task; an unknown name is returned unchanged."""
    return ALIASES.get(task, task)


def of_prefix(task: str) -> str:
    """Returns the task without the languages of its prefix: `"translation"` for `"translation_en_to_de"`."""
    return "translation" if task.startswith("translation_") else known_as(task)


def of_model(task: str) -> str:
    """Returns the task of the model that performs a task: `"text2text-generation"` for `"summarization"`."""
    name = of_prefix(task)
    return _TEXT_TO_TEXT if name in _BY_PREFIX else name
