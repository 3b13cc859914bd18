"""Answers that stand in a text, with their offsets; long texts are read in overlapping windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.arguments import BOOLEAN, check, integer, optional, shown
from kerasformer.errors import InputError
from kerasformer.pipelines.base import Pipeline, softmax
from kerasformer.pipelines.inputs import answered, read_inputs, read_text
from kerasformer.tokenization.fitting import check_known

_WINDOW = 384  # tokens of question and context together
_NEVER = -1e4
_SPANS = 20  # candidates of one window


@dataclass(frozen=True)
class _Search:
    """How answers are sought: the arguments of a call, by their names there."""

    top_k: int
    doc_stride: int
    window: int | None
    max_answer_len: int
    handle_impossible_answer: bool
    batch_size: int


class QuestionAnsweringPipeline(Pipeline):
    """The span of a context that answers a question: `{"answer", "score", "start", "end"}`."""

    def __call__(
        self,
        inputs: Any = None,
        *,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        top_k: int = 1,
        doc_stride: int = 128,
        window: int | None = None,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """Answers.

        Args:
            inputs: `{"question": …, "context": …}`, a list of them, or an iterable, read as its results are.
            question: Instead of `inputs`: a question or a list.
            context: The text to search, one for each question.
            top_k: So many answers, the best first.
            doc_stride: Tokens that neighbouring windows of a long context share.
            window: Tokens of a window, question and special tokens included; 384 by default, or the model's length.
            max_answer_len: Longest answer, in tokens.
            handle_impossible_answer: Lets "there is none" (an empty answer) compete.
            batch_size: Windows that go through the model at once.
            progress: Shows a bar on standard error.

        Returns:
            An answer, or a list of `top_k`; `start` and `end` are characters of the context. For lists, a list; for an
            iterable, an iterator.

        Raises:
            InputError: not as many contexts as questions, or an empty one.
        """
        asked = read_inputs(_asked(inputs, question, context), _read_question, "question with its context")
        search = _Search(
            check("top_k", top_k, integer(1)),
            check("doc_stride", doc_stride, integer(0)),
            check("window", window, optional(integer(1, self.info.max_length))),
            check("max_answer_len", max_answer_len, integer(1)),
            check("handle_impossible_answer", handle_impossible_answer, BOOLEAN),
            check("batch_size", batch_size, integer(1)),
        )

        def answer(part: Sequence[tuple[str, str]]) -> list[Any]:
            found = [self._answers(*pair, search)[: search.top_k] for pair in part]
            return [row[0] for row in found] if search.top_k == 1 else found

        return answered(asked, answer, batch_size=1, progress=progress, label=self.task)

    def _answers(self, question: str, context: str, search: _Search) -> list[dict[str, Any]]:
        """All candidates, the best first; the same span from two windows counts once, with its best score."""
        limit = search.window or min(_WINDOW, self.info.max_length or _WINDOW)
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
        outputs = self._run(windows, search.batch_size)
        for place, (starts, ends) in enumerate(zip(outputs["start_logits"], outputs["end_logits"], strict=True)):
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


def _asked(inputs: Any, question: Any, context: Any) -> Any:
    """Questions with their contexts, from either way to give them.

    Raises:
        InputError: both ways, or not as many contexts as questions.
    """
    if inputs is not None:
        if question is not None or context is not None:
            raise InputError("Give inputs, or question and context. Received: both")
        return inputs
    questions = read_inputs(question, read_text, "question")
    contexts = read_inputs(context, read_text, "context")
    if questions.total != contexts.total or questions.total is None:
        raise InputError(
            f"Each question needs a context. Received: {questions.total} questions, {contexts.total} contexts"
        )
    pairs = [{"question": one, "context": text} for one, text in zip(questions.items, contexts.items, strict=True)]
    return pairs[0] if questions.form == "one" else pairs


def _read_question(value: Any) -> tuple[str, str]:
    """A question and its context."""
    if not isinstance(value, Mapping) or not {"question", "context"} <= set(value):
        raise InputError(f'{{"question": …, "context": …}} or a list of them was expected. Received: {shown(value)}')
    question, context = (read_text(value[name], name) for name in ("question", "context"))
    if not context:
        raise InputError(
            f"Each question needs a context that is not empty. Received: an empty one for {shown(question)}"
        )
    return question, context


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
