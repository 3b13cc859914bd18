"""Names of tasks: Hugging Face's, what else they are called, and which of them are one model with another prefix."""

from __future__ import annotations

ALIASES = {
    "embeddings": "feature-extraction",
    "ner": "token-classification",
    "sentiment-analysis": "text-classification",
}
"""Other names of tasks."""

_REWRITING = "text2text-generation"
_BY_PREFIX = frozenset({"summarization", "translation"})


def known_as(task: str) -> str:
    """Hugging Face's name of a task; a name that is not known stays as it is."""
    return ALIASES.get(task, task)


def of_prefix(task: str) -> str:
    """The task without the languages of its prefix: `"translation"` of `"translation_en_to_de"`."""
    return "translation" if task.startswith("translation_") else known_as(task)


def of_model(task: str) -> str:
    """The task of the model that does it: a summary is a text from a text."""
    name = of_prefix(task)
    return _REWRITING if name in _BY_PREFIX else name
