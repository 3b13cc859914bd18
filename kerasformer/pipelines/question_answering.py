"""Answers that stand in a text, with their offsets; long texts are read in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.pipelines._base import Pipeline, batches, listed, softmax

_WINDOW = 384  # tokens of question and context together
_NEVER = -1e4


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
        results = [
            self._answers(asked, text, doc_stride, max_answer_len, handle_impossible_answer, batch_size)[:top_k]
            for asked, text in zip(questions, contexts, strict=True)
        ]
        chosen: list[Any] = [answers[0] for answers in results] if top_k == 1 else list(results)
        return chosen[0] if single else chosen

    def _answers(
        self, question: str, context: str, stride: int, longest: int, impossible: bool, batch_size: int
    ) -> list[dict[str, Any]]:
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
            stride=min(stride, room // 2),
            return_overflowing=True,
        )
        found: dict[tuple[int, int], float] = {}
        none_score = np.inf
        arrays = {**windows.inputs, "token_type_ids": windows.token_type_ids}
        for rows in batches(range(len(windows)), batch_size):
            places = list(rows)
            outputs = self._forward().run({name: arrays[name][places] for name in self.info.input_names})
            for place, starts, ends in zip(places, outputs["start_logits"], outputs["end_logits"], strict=True):
                allowed = windows.sequence_ids[place] == 1
                allowed[0] = True  # the first token stands for "no answer"
                start, end = (softmax(np.where(allowed, scores, _NEVER)) for scores in (starts, ends))
                none_score = min(none_score, float(start[0] * end[0]))
                for span, score in _spans(start, end, allowed, windows.offsets[place], longest):
                    found[span] = max(score, found.get(span, 0.0))
        answers = [
            {"score": score, "start": start, "end": end, "answer": context[start:end]}
            for (start, end), score in found.items()
        ]
        if impossible or not answers:
            answers.append({"score": none_score, "start": 0, "end": 0, "answer": ""})
        return sorted(answers, key=lambda answer: -answer["score"])


def _spans(
    start: np.ndarray, end: np.ndarray, allowed: np.ndarray, offsets: np.ndarray, longest: int
) -> list[tuple[tuple[int, int], float]]:
    """The 20 most probable spans of at most `longest` tokens, as offsets in the context."""
    scores = np.triu(np.outer(start, end)) - np.triu(np.outer(start, end), longest)
    usable = allowed.copy()
    usable[0] = False
    scores = np.where(usable[:, None] & usable[None, :], scores, 0.0)
    best = np.argsort(-scores, axis=None)[:20]
    firsts, lasts = np.unravel_index(best, scores.shape)
    return [
        ((int(offsets[first, 0]), int(offsets[last, 1])), float(scores[first, last]))
        for first, last in zip(firsts, lasts, strict=True)
        if scores[first, last] > 0
    ]
