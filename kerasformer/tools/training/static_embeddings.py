"""Static embeddings distilled from a model for embeddings: a vector for each token, whose mean stands for a text.

This is Model2Vec (Tulkens and van Dongen 2024, github.com/MinishLab/model2vec). Each token of the vocabulary is read as
a text of its own, with the special tokens around it. The principal components of the results are kept, and each vector
gets the weight `a / (a + p)` of smooth inverse frequency (Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for
Sentence Embeddings"), so that a mean depends most on rare words. The probability `p` of a token follows from its rank
in the vocabulary by Zipf's law, since vocabularies are in the order of frequency.

Shape letters: `V` tokens of the vocabulary, `N` those that texts contain, `E` size of the model's embeddings, `D` size
of a vector.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from kerasformer.basics.progress import StageProgress
from kerasformer.basics.tasks import SENTENCE_SIMILARITY
from kerasformer.errors import InputError
from kerasformer.models import PretrainedModel, build, load
from kerasformer.tokenization import Tokenizer
from kerasformer.zoo import SentenceSettings

_BATCH = 256
"""Number of tokens that are read at once, as texts of a few tokens each."""
_NEVER_USED = re.compile(r"\[unused\d+\]")
"""Tokens of BERT's vocabulary that stand for nothing."""
_NORMALIZE = "normalize"


def load_teacher(source: str | Path) -> PretrainedModel:
    """Loads a model for embeddings, whose embeddings are not scaled to length 1: lengths differ between tokens.

    Raises:
        InputError: it has no tokenizer whose rules are in `tokenizer.json`.
    """
    model = load(source, SENTENCE_SIMILARITY)
    if model.tokenizer is None or not model.tokenizer.portable:
        raise InputError(
            "A model with a tokenizer.json was expected, which a folder of static embeddings contains. "
            f"Received: {source} with {type(model.tokenizer).__name__}"
        )
    settings = model.sentence
    if _NORMALIZE not in settings.steps:
        return model
    steps = tuple(step for step in settings.steps if step != _NORMALIZE)
    return load(source, SENTENCE_SIMILARITY, sentence=replace(settings, steps=steps))


def static_embeddings(teacher: PretrainedModel, width: int, sif: float, report: StageProgress) -> PretrainedModel:
    """Distils static embeddings.

    Args:
        teacher: Result of `load_teacher`.
        width: Size `D` of a vector; at most that of the model's embeddings.
        sif: The coefficient `a` of smooth inverse frequency; 0 for equal weights.
        report: Called with the numbers of tokens.

    Returns:
        A model of the architecture `model2vec`, with the tokenizer of the teacher but for its special tokens.
    """
    tokenizer: Tokenizer = teacher.tokenizer
    vocabulary = tokenizer.get_vocab()
    special = {*tokenizer.all_special_ids}
    used = sorted(i for token, i in vocabulary.items() if i not in special and not _NEVER_USED.fullmatch(token))
    size = teacher.sentence.dimension(teacher.config.output_dim)
    if not 1 <= width <= min(size, len(used) - 1):
        raise InputError(
            f"width must be from 1 to {min(size, len(used) - 1)}, the size of the embeddings or the number of tokens. "
            f"Received: width={width}"
        )
    vectors = principal_components(_token_embeddings(teacher, used, report), width)
    table = np.zeros((max(vocabulary.values()) + 1, width), np.float32)  # 0 for what no text contains
    table[used] = vectors * smooth_inverse_frequencies(len(used), sif)[:, None]
    unknown = tokenizer.unk_token_id
    student = build(
        "model2vec",
        SENTENCE_SIMILARITY,
        sentence=SentenceSettings(steps=(_NORMALIZE,), similarity=teacher.sentence.similarity),
        vocab_size=len(table),
        hidden_dim=width,
        skipped_token_ids=[] if unknown is None else [unknown],
    )
    student.backbone.embeddings.tokens.embeddings.assign(table)
    student.set_tokenizer(copy.deepcopy(tokenizer))
    student.source = teacher.source  # whose licence and name are those of the base model
    return student


def principal_components(vectors: np.ndarray, width: int) -> np.ndarray:
    """Returns the first principal components of vectors `(N, E)`, float32 `(N, D)`.

    The sign of each component, which is arbitrary, makes its largest score positive.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    scores = centred @ axes[:, ::-1][:, :width]
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(width)]
    return (scores * np.where(largest < 0, -1, 1)).astype(np.float32)


def smooth_inverse_frequencies(count: int, coefficient: float) -> np.ndarray:
    """Returns the weights of tokens in the order of their frequency, float32 `(N,)`; 1 for a coefficient of 0."""
    if not coefficient:
        return np.ones(count, np.float32)
    inverse_ranks = 1 / np.arange(2, count + 2)
    weights: np.ndarray = coefficient / (coefficient + inverse_ranks / inverse_ranks.sum())
    return weights.astype(np.float32)


def _token_embeddings(teacher: PretrainedModel, ids: list[int], report: StageProgress) -> np.ndarray:
    """Returns the embeddings of tokens as texts with special tokens, float32 `(N, E)`."""
    before, after = _special_tokens(teacher.tokenizer)
    parts = []
    for start in range(0, len(ids), _BATCH):
        report("read tokens", start, len(ids))
        chosen = ids[start : start + _BATCH]
        filled = chosen + chosen[:1] * (_BATCH - len(chosen))  # one shape, so that the model is compiled once
        rows = np.array([[*before, index, *after] for index in filled], np.int32)
        arrays = {"input_ids": rows, "attention_mask": np.ones_like(rows)}
        inputs = {name: arrays.get(name, np.zeros_like(rows)) for name in teacher.input_names}
        parts.append(np.asarray(teacher.predict_on_batch(inputs), np.float32)[: len(chosen)])
    return np.concatenate(parts)


def _special_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Returns the ids that the tokenizer adds before and after a text."""
    whole, text = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=False)
    start = next(i for i in range(len(whole)) if whole[i : i + len(text)] == text)
    return whole[:start], whole[start + len(text) :]
