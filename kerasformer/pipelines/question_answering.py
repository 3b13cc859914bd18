"""Answers that stand in a text, with their offsets; long texts are read in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer
from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline, batches, listed, softmax
from kerasformer.tokenization.fitting import check_known

_WINDOW = 384  # tokens of question and context together
_NEVER = -1e4
_SPANS = 20  # candidates of one window


@dataclass(frozen=True)
class _Search:
    """How answers are sought: the arguments of a call, by their names there."""

    top_k: int
    doc_stride: int
    max_answer_len: int
    handle_impossible_answer: bool
    batch_size: int


class QuestionAnswering(Pipeline):
    """The span of a context that answers a question: `{"answer", "score", "start", "end"}`."""

    def __call__(
        self,
        *,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
        doc_stride: int = 128,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        batch_size: int = 8,
    ) -> Any:
        """Answers.

        Args:
            question: A question or a list.
            context: The text to search, one for each question.
            top_k: So many answers, the best first.
            doc_stride: Tokens that neighbouring windows of a long context share.
            max_answer_len: Longest answer, in tokens.
            handle_impossible_answer: Lets "there is none" (an empty answer) compete.
            batch_size: Windows that go through the model at once.

        Returns:
            An answer, or a list of `top_k`; `start` and `end` are characters of the context. For lists, a list.

        Raises:
            InputError: not as many contexts as questions, or an empty one.
        """
        questions, single = listed(question, "question")
        contexts, _ = listed(context, "context")
        if len(questions) != len(contexts) or not all(contexts):
            raise InputError(
                f"Each question needs a context that is not empty. Received: {len(questions)} questions, "
                f"{len(contexts)} contexts"
            )
        search = _Search(
            check("top_k", top_k, integer(1)),
            check("doc_stride", doc_stride, integer(0)),
            check("max_answer_len", max_answer_len, integer(1)),
            check("handle_impossible_answer", handle_impossible_answer, BOOLEAN),
            check("batch_size", batch_size, integer(1)),
        )
        results = [self._answers(*pair, search)[: search.top_k] for pair in zip(questions, contexts, strict=True)]
        chosen: list[Any] = [answers[0] for answers in results] if search.top_k == 1 else list(results)
        return chosen[0] if single else chosen

    def _answers(self, question: str, context: str, search: _Search) -> list[dict[str, Any]]:
        """All candidates, the best first; the same span from two windows counts once, with its best score."""
        limit = min(_WINDOW, self.info.max_length or _WINDOW)
        asked = len(self.tokenizer.encode(question, add_special_tokens=False))
        room = limit - asked - self.tokenizer.num_special_tokens(pair=True)
        if room < 1:
            raise InputError(f"The question alone fills the model's {limit} tokens. Received: {asked} tokens")
        windows = self.tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=limit,
            stride=min(search.doc_stride, room // 2),
            return_overflowing_tokens=True,
            padding_side="right",
        )
        check_known(windows.input_ids, self.tokenizer, self.info.vocab_size)
        found: dict[tuple[int, int], float] = {}
        none_score = np.inf
        arrays = {**windows.inputs, "token_type_ids": windows.token_type_ids}
        for rows in batches(range(len(windows.input_ids)), search.batch_size):
            places = list(rows)
            outputs = self._forward().run({name: arrays[name][places] for name in self.info.input_names})
            for place, starts, ends in zip(places, outputs["start_logits"], outputs["end_logits"], strict=True):
                allowed = windows.sequence_ids[place] == 1
                allowed[0] = True  # the first token stands for "no answer"
                start, end = (softmax(np.where(allowed, scores, _NEVER)) for scores in (starts, ends))
                none_score = min(none_score, float(start[0] * end[0]))
                for first, last, score in _spans(start, end, allowed, search):
                    span = _trimmed(context, windows.offsets[place, first, 0], windows.offsets[place, last, 1])
                    found[span] = max(score, found.get(span, 0.0))
        answers = [
            {"score": score, "start": start, "end": end, "answer": context[start:end]}
            for (start, end), score in found.items()
        ]
        if search.handle_impossible_answer or not answers:
            answers.append({"score": none_score, "start": 0, "end": 0, "answer": ""})
        return sorted(answers, key=lambda answer: -answer["score"])


def _spans(start: np.ndarray, end: np.ndarray, allowed: np.ndarray, search: _Search) -> list[tuple[int, int, float]]:
    """The most probable spans of one window: first token, last token, score."""
    products = np.outer(start, end)
    scores = np.triu(products) - np.triu(products, search.max_answer_len)
    usable = allowed.copy()
    usable[0] = False
    scores = np.where(usable[:, None] & usable[None, :], scores, 0.0)
    best = np.argsort(-scores, axis=None, kind="stable")[: max(_SPANS, search.top_k)]
    spans = zip(*np.unravel_index(best, scores.shape), scores.flat[best], strict=True)
    return [(int(first), int(last), float(score)) for first, last, score in spans if score > 0]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its ends: some vocabularies count it as part of a token."""
    span = text[start:end]
    return int(start) + len(span) - len(span.lstrip()), int(end) - len(span) + len(span.rstrip())
