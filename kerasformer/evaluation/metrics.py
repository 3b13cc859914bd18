"""Metrics of classification, entities, answers, summaries and translations, as shares from 0 to 1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence

from kerasformer.errors import require

Entity = tuple[str, int, int]
"""Type, first word, last word."""


def accuracy(received: Sequence[Hashable], expected: Sequence[Hashable]) -> float:
    """Share of equal ones."""
    return sum(a == b for a, b in zip(received, expected, strict=True)) / len(expected)


def macro_f1(received: Sequence[Hashable], expected: Sequence[Hashable]) -> float:
    """Mean F1 of all classes that were expected or received, each counting the same."""
    pairs = list(zip(received, expected, strict=True))
    classes = {*received, *expected}
    return sum(_class_f1(pairs, one) for one in classes) / len(classes)


def _class_f1(pairs: Sequence[tuple[Hashable, Hashable]], one: Hashable) -> float:
    right = sum(a == b == one for a, b in pairs)
    return 2 * right / sum((a == one) + (b == one) for a, b in pairs)


def labels_f1(received: Sequence[set[int]], expected: Sequence[set[int]]) -> float:
    """Mean F1 of classes that do not exclude each other; one that is never expected nor received does not count."""
    classes = set().union(*received, *expected)
    scores = [f1([{one} & row for row in received], [{one} & row for row in expected]) for one in classes]
    return sum(scores) / len(scores) if scores else 1.0


def f1(received: Sequence[set], expected: Sequence[set]) -> float:
    """F1 of the members of sets, all rows together; 1 where there are none at all."""
    right = sum(len(a & b) for a, b in zip(received, expected, strict=True))
    total = sum(map(len, received)) + sum(map(len, expected))
    return 2 * right / total if total else 1.0


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities that tags such as `B-PER`, `I-PER`, `O` of words in turn stand for.

    As in CoNLL's evaluation, an `I-` that continues nothing of its type begins an entity.
    """
    found, begin, current = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-") if "-" in tag else ("", "", "" if tag == "O" else tag)
        if current and (prefix == "B" or kind != current):
            found.add((current, begin, place - 1))
            current = ""
        if kind and not current:
            begin, current = place, kind
    return found


def answer_scores(received: str, expected: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of words, with the best of several right answers, as in SQuAD; none means "no answer"."""
    scores = [_answer_score(_words(received), _words(right)) for right in expected or [""]]
    return max(exact for exact, _ in scores), max(score for _, score in scores)


def _answer_score(received: list[str], expected: list[str]) -> tuple[float, float]:
    exact = float(received == expected)
    if not received or not expected:
        return exact, exact
    right = sum((Counter(received) & Counter(expected)).values())
    return exact, 2 * right / (len(received) + len(expected))


def _words(answer: str) -> list[str]:
    """Words of an answer without case, punctuation and articles."""
    plain = "".join(letter for letter in answer.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


_ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_EXTRA = "metrics"


def rouge(received: Sequence[str], expected: Sequence[Sequence[str]]) -> dict[str, float]:
    """Mean F1 of ROUGE-1, -2, -L and -Lsum with stemming, of several right texts the nearest, by `rouge-score`.

    Args:
        received: Texts; for `rougeLsum`, each line counts as a sentence.
        expected: One or more right texts for each.

    Raises:
        MissingExtraError: `rouge-score` is not installed.

    Reference: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries.
    """
    scorer = require("rouge_score.rouge_scorer", _EXTRA).RougeScorer(_ROUGE, use_stemmer=True)
    scores = [scorer.score_multi(list(right), text) for text, right in zip(received, expected, strict=True)]
    return {name: sum(score[name].fmeasure for score in scores) / len(scores) for name in _ROUGE}


def bleu_and_chrf(received: Sequence[str], expected: Sequence[Sequence[str]]) -> dict[str, float]:
    """BLEU and chrF2 of all texts together, as `sacrebleu` has them by default, divided by 100.

    Args:
        received: Texts.
        expected: One or more right texts for each.

    Raises:
        MissingExtraError: `sacrebleu` is not installed.

    Reference: Post 2018, A Call for Clarity in Reporting BLEU Scores; Popović 2015, chrF.
    """
    sacrebleu = require("sacrebleu", _EXTRA)
    most = max(map(len, expected))
    references = [[right[n] if n < len(right) else None for right in expected] for n in range(most)]
    scores = {
        "bleu": sacrebleu.corpus_bleu(list(received), references),
        "chrf": sacrebleu.corpus_chrf(list(received), references),
    }
    return {name: score.score / 100 for name, score in scores.items()}


def check_packages(*modules: str) -> None:
    """Refuses to begin without the packages that are needed at the end.

    Raises:
        MissingExtraError: one is not installed.
    """
    for module in modules:
        require(module, _EXTRA)
