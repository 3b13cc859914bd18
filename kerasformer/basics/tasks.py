"""Task names: Hugging Face names, their aliases, and tasks that share a model."""

from __future__ import annotations

from collections.abc import Sequence

ALIASES = {
    "embeddings": "sentence-similarity",
    "ner": "token-classification",
    "reranking": "text-ranking",
    "sentiment-analysis": "text-classification",
}
"""Hugging Face task names by their aliases."""

PRETRAINING = frozenset({"next-sentence-prediction", "pretraining", "replaced-token-detection"})
"""Tasks of heads that models have for their pretraining, for which there is no pipeline."""

FEATURE_EXTRACTION, SENTENCE_SIMILARITY = "feature-extraction", "sentence-similarity"
MULTI_VECTOR_SIMILARITY, SPARSE_SIMILARITY = "multi-vector-similarity", "sparse-similarity"
TEXT_RANKING = "text-ranking"
TOKEN_CLASSIFICATION, ZERO_SHOT_TOKENS = "token-classification", "zero-shot-token-classification"

_TEXT_TO_TEXT = "text2text-generation"
PERFORMED_BY = {
    "summarization": _TEXT_TO_TEXT,
    "translation": _TEXT_TO_TEXT,
    TEXT_RANKING: "text-classification",
    "zero-shot-classification": "text-classification",
}
"""Tasks that models for another task perform."""

VARIANTS = {
    MULTI_VECTOR_SIMILARITY: SENTENCE_SIMILARITY,
    SPARSE_SIMILARITY: SENTENCE_SIMILARITY,
    ZERO_SHOT_TOKENS: TOKEN_CLASSIFICATION,
}
"""Tasks that the hub knows by the name of another one, by which a caller may name them, too."""

NEEDS = {
    MULTI_VECTOR_SIMILARITY: "a model for vectors of tokens (ColBERT, BGE-M3)",
    SPARSE_SIMILARITY: "a masked language model whose scores become the weights of tokens (SPLADE)",
    TEXT_RANKING: "a classifier of pairs of texts (a cross-encoder), or a language model that answers 'yes' or 'no'; "
    "an encoder of embeddings ranks texts by sentence-similarity",
    ZERO_SHOT_TOKENS: "a model of GLiNER, which gets the names of the types in the call",
    "zero-shot-classification": "a model for natural language inference (NLI), with a class whose name starts with "
    "'entail'",
}
"""What tasks need besides the task of their model."""


def canonical(task: str) -> str:
    """Returns the Hugging Face name of a task; an unknown name is returned unchanged."""
    return ALIASES.get(task, task)


def languages(task: str) -> tuple[str | None, str | None]:
    """Returns the languages of the input and the output in a task such as `"translation_en_to_de"`, or `None`."""
    source, _, target = task.removeprefix("translation_").partition("_to_")
    return (source, target) if task.startswith("translation_") and source and target else (None, None)


def without_languages(task: str) -> str:
    """Returns the task without the languages of its prefix: `"translation"` for `"translation_en_to_de"`."""
    return "translation" if task.startswith("translation_") else canonical(task)


def task_of_model(task: str) -> str:
    """Returns the task of the model that performs a task: `"text2text-generation"` for `"summarization"`."""
    name = without_languages(task)
    return PERFORMED_BY.get(name, name)


def entailment_class(labels: Sequence[str]) -> int | None:
    """Returns the index of the class "entailment" of a model for natural language inference, or `None`."""
    found = [index for index, label in enumerate(labels) if label.lower().startswith("entail")]
    return found[0] if found and len(labels) > 1 else None


def tasks_of_class(task: str) -> tuple[str, ...]:
    """Returns the tasks of a model class, the first of which is `task`.

    Classes for feature extraction return hidden states, or with a head one embedding of each text.
    """
    return (task, SENTENCE_SIMILARITY) if task == FEATURE_EXTRACTION else (task,)
