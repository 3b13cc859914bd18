"""Metrics of classification, entities, answers, summaries and translations, all between 0 and 1, and correlations."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib import metadata

import numpy as np

from kerasformer.basics.arguments import check, one_of, optional
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import OUTSIDE, PLACES, places, tag_of

Entity = tuple[str, int, int]
"""Type, index of the first word, index of the last word."""


def accuracy(received: Sequence[Hashable], expected: Sequence[Hashable]) -> float:
    """Returns the share of equal items."""
    return sum(a == b for a, b in zip(received, expected, strict=True)) / len(expected)


def labels_f1(received: Sequence[set[int]], expected: Sequence[set[int]]) -> float:
    """Returns the unweighted mean of the F1 scores of independent classes; classes that never occur are ignored."""
    classes = set().union(*received, *expected)
    scores = [f1([{one} & row for row in received], [{one} & row for row in expected]) for one in classes]
    return sum(scores) / len(scores) if scores else 1.0


def f1(received: Sequence[set], expected: Sequence[set]) -> float:
    """Returns the F1 score of the members of sets, over all rows together; 1 if all sets are empty."""
    right = sum(len(a & b) for a, b in zip(received, expected, strict=True))
    total = sum(map(len, received)) + sum(map(len, expected))
    return 2 * right / total if total else 1.0


def entities(tags: Sequence[str], labels: Sequence[str] | None = None) -> set[Entity]:
    """Returns the entities described by the tags of words, such as `B-PER`, `I-PER`, `O`.

    As in the CoNLL evaluation and the package seqeval, an `I-` tag that does not continue an entity of its type starts
    a new one. `E-` or `L-` ends an entity, and `S-` or `U-` is one of a single word.

    Args:
        tags: Tags of the words.
        labels: All labels of the model, which show what the letters mean; by default, they have these meanings.
    """
    letters = PLACES if labels is None else places(labels)
    spans, start, before = set(), 0, OUTSIDE
    for index, tag in enumerate([*(tag_of(tag, letters) for tag in tags), OUTSIDE]):
        if index and not tag.continues(before):
            if before != OUTSIDE:
                spans.add((before.kind, start, index - 1))
            start = index
        before = tag
    return spans


def pearson(received: Sequence[float] | np.ndarray, expected: Sequence[float] | np.ndarray) -> float:
    """Returns the linear correlation of two lists of numbers, from -1 to 1; 0 if one of them is constant."""
    a, b = (np.asarray(values, np.float64) - np.mean(values, dtype=np.float64) for values in (received, expected))
    lengths = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / lengths) if lengths > 0 else 0.0


def spearman(received: Sequence[float], expected: Sequence[float]) -> float:
    """Returns the correlation of the ranks of two lists of numbers; equal numbers share the mean of their ranks."""
    return pearson(ranks(received), ranks(expected))


def ranks(values: Sequence[float]) -> np.ndarray:
    """Returns the rank of each number from 1, float64 `(N,)`; equal numbers share the mean of their ranks."""
    _, groups, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last: np.ndarray = np.cumsum(counts)
    return (last - (counts - 1) / 2)[groups]


def answer_scores(received: str, expected: Sequence[str]) -> tuple[float, float]:
    """Returns exact match and word F1 against the best of several references, as in SQuAD.

    An empty list of references means that the question has no answer.
    """
    scores = [_answer_score(_words(received), _words(right)) for right in expected or [""]]
    return max(exact for exact, _ in scores), max(score for _, score in scores)


def _answer_score(received: list[str], expected: list[str]) -> tuple[float, float]:
    exact = float(received == expected)
    if not received or not expected:
        return exact, exact
    right = sum((Counter(received) & Counter(expected)).values())
    return exact, 2 * right / (len(received) + len(expected))


def _words(answer: str) -> list[str]:
    """Returns the words of an answer without case, punctuation and articles."""
    plain = "".join(character for character in answer.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


@dataclass(frozen=True)
class TextScores:
    """Scores of generated texts.

    Attributes:
        figures: Scores by metric, between 0 and 1.
        signatures: Package, version and settings that each score was computed with, by the name of the metric.
    """

    figures: dict[str, float]
    signatures: dict[str, str]

    def __or__(self, other: TextScores) -> TextScores:
        return TextScores(self.figures | other.figures, self.signatures | other.signatures)


_ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_EXTRA = "metrics"

BLEU_TOKENIZERS = ("13a", "char", "intl", "ja-mecab", "ko-mecab", "none", "zh")
"""Tokenizers of `sacrebleu` that need no download."""


def rouge(received: Sequence[str], expected: Sequence[Sequence[str]]) -> TextScores:
    """Computes the mean F1 of ROUGE-1, -2, -L and -Lsum with `rouge-score`, with stemming and the best reference.

    Args:
        received: Generated texts; for `rougeLsum`, each line is a sentence.
        expected: One or more references for each text.

    Raises:
        InputError: most letters of the references are not the letters a to z, which alone `rouge-score` counts.
        MissingExtraError: `rouge-score` is not installed.

    Reference: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries.
    """
    check_latin(expected)
    scorer = require("rouge_score.rouge_scorer", _EXTRA).RougeScorer(_ROUGE, use_stemmer=True)
    scores = [scorer.score_multi(list(right), text) for text, right in zip(received, expected, strict=True)]
    figures = {name: sum(score[name].fmeasure for score in scores) / len(scores) for name in _ROUGE}
    settings = "stemmer:yes|score:f1|refs:best"
    return TextScores(figures, {"rouge": f"{settings}|version:{metadata.version('rouge-score')}"})


def is_latin(texts: Sequence[Sequence[str]]) -> bool:
    """Returns whether at least half of the letters of all texts are the letters a to z."""
    letters = [character for row in texts for text in row for character in text if character.isalpha()]
    return 2 * sum(map(str.isascii, letters)) >= len(letters)


def check_latin(texts: Sequence[Sequence[str]]) -> None:
    """Checks that ROUGE can be computed with these references.

    Raises:
        InputError: most of their letters are not the letters a to z.
    """
    if not is_latin(texts):
        raise InputError(
            "ROUGE counts only words of the letters a to z and digits. Expected: references of which most letters are "
            f"these. Received: {texts[0][0]!r:.80}"
        )


def bleu_and_chrf(
    received: Sequence[str], expected: Sequence[Sequence[str]], bleu_tokenizer: str | None = None
) -> TextScores:
    """Computes corpus BLEU and chrF2 with the default settings of `sacrebleu`, divided by 100.

    Args:
        received: Generated texts.
        expected: One or more references for each text.
        bleu_tokenizer: Tokenizer of BLEU, one of `BLEU_TOKENIZERS`. By default, `"13a"` or, if most characters of the
            references are of scripts without spaces, `"zh"` for Chinese and `"char"` for others.

    Raises:
        InputError: the tokenizer is unknown, or its package is not installed.
        MissingExtraError: `sacrebleu` is not installed.

    Reference: Post 2018, A Call for Clarity in Reporting BLEU Scores; Popović 2015, chrF.
    """
    sacrebleu = require("sacrebleu.metrics", _EXTRA)
    bleu_tokenizer = check("bleu_tokenizer", bleu_tokenizer, optional(one_of(*BLEU_TOKENIZERS)))
    count = max(map(len, expected))
    references = [[right[n] if n < len(right) else None for right in expected] for n in range(count)]
    try:
        metrics = {
            "bleu": sacrebleu.BLEU(tokenize=bleu_tokenizer or _bleu_tokenizer(expected)),
            "chrf": sacrebleu.CHRF(),
        }
    except RuntimeError as error:  # with the command that installs the tokenizer of Japanese or Korean
        raise InputError(" ".join(str(error).split())) from error
    figures = {name: metric.corpus_score(list(received), references).score / 100 for name, metric in metrics.items()}
    return TextScores(figures, {name: str(metric.get_signature()) for name, metric in metrics.items()})


def rouge_l_each(received: Sequence[str], expected: Sequence[Sequence[str]]) -> list[float]:
    """Returns ROUGE-L of each text, as in `rouge`."""
    scorer = require("rouge_score.rouge_scorer", _EXTRA).RougeScorer(["rougeL"], use_stemmer=True)
    rows = zip(received, expected, strict=True)
    return [scorer.score_multi(list(right), text)["rougeL"].fmeasure for text, right in rows]


def chrf_each(received: Sequence[str], expected: Sequence[Sequence[str]]) -> list[float]:
    """Returns chrF2 of each text, as in `bleu_and_chrf`."""
    chrf = require("sacrebleu.metrics", _EXTRA).CHRF()
    return [chrf.sentence_score(text, list(right)).score / 100 for text, right in zip(received, expected, strict=True)]


_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_OTHERS_WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")


def _bleu_tokenizer(texts: Sequence[Sequence[str]]) -> str:
    """Returns the tokenizer for texts in the script of most of their characters.

    Thai, Lao, Burmese, Khmer and Japanese are written without spaces, as is Chinese.
    """
    characters = [character for row in texts for text in row for character in text if character.isalpha()]
    others = sum(map(bool, map(_OTHERS_WITHOUT_SPACES.match, characters)))
    han = sum(map(bool, map(_HAN.match, characters)))
    if 2 * (others + han) <= len(characters):
        return "13a"
    return "zh" if others < han / 20 else "char"


def check_packages(*modules: str) -> None:
    """Checks that packages of metrics are installed, before the evaluation starts.

    Raises:
        MissingExtraError: a package is not installed.
    """
    for module in modules:
        require(module, _EXTRA)


def repetition(tokens: Sequence[Hashable], n: int) -> float:
    """Returns the share of the n-grams of a text that occurred in it before (rep-n); 0 for a text that is too short.

    Reference: Welleck et al. 2020, arXiv:1908.04319.
    """
    grams = _n_grams(tokens, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def distinct(texts: Sequence[Sequence[Hashable]], n: int) -> float:
    """Returns the number of distinct n-grams in texts divided by their number of tokens (distinct-n).

    Reference: Li et al. 2016, arXiv:1510.03055, section 5.
    """
    count = sum(map(len, texts))
    return len({gram for tokens in texts for gram in _n_grams(tokens, n)}) / count if count else 0.0


def _n_grams(tokens: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
