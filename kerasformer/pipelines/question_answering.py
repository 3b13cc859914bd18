"""Extractive question answering; long contexts are split into overlapping chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, integer, optional, shown
from kerasformer.errors import InputError
from kerasformer.pipelines.answers import Answer
from kerasformer.pipelines.base import Pipeline, softmax
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.tokenization.fitting import check_known

_CHUNK_LENGTH = 384  # tokens of question and context together
_MASKED = -1e4
_SPANS = 20  # candidates of one chunk


@dataclass(frozen=True)
class _Search:
    """Arguments of a call, by their names there."""

    top_k: int
    doc_stride: int
    chunk_length: int | None
    max_answer_len: int
    handle_impossible_answer: bool
    batch_size: int


class QuestionAnsweringPipeline(Pipeline):
    """Finds the span of a context that answers a question: `{"answer", "score", "start", "end"}`."""

    def _advice_for_infinite_output(self) -> str:
        return (
            "A model with global tokens returns NaN for a question with more tokens than its max_global_tokens: "
            "shorten the question, or export the model with a larger max_global_tokens in its config. Otherwise: "
            f"{super()._advice_for_infinite_output()}"
        )

    def __call__(
        self,
        inputs: object = None,
        *,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        top_k: int = 1,
        doc_stride: int = 128,
        chunk_length: int | None = None,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """Answers questions.

        Args:
            inputs: `{"question": …, "context": …}`, a list of these, or another iterable, which is read lazily.
            question: Alternative to `inputs`: a question, or a list of questions.
            context: Text to search, one for each question.
            top_k: Number of answers to return, the best first.
            doc_stride: Overlap of neighbouring chunks of a long context in tokens.
            chunk_length: Length of a chunk in tokens, including the question and special tokens; by default 384, or the
                model's maximum length if that is less.
            max_answer_len: Maximum length of an answer in tokens.
            handle_impossible_answer: Whether to include the empty answer, which means that there is none.
            batch_size: Number of chunks in one call of the model.
            progress: Whether to show a progress bar on standard error.

        Returns:
            An answer, or a list of `top_k` answers; `start` and `end` are character offsets in the context. For a list
            of inputs, a list; for another iterable, an iterator.

        Raises:
            InputError: the numbers of questions and contexts differ, or a context is empty.
        """
        questions = read_inputs(_inputs(inputs, question, context), _read_question, "question with its context")
        search = _Search(
            check("top_k", top_k, integer(1)),
            check("doc_stride", doc_stride, integer(0)),
            check("chunk_length", chunk_length, optional(integer(1, self.info.max_length))),
            check("max_answer_len", max_answer_len, integer(1)),
            check("handle_impossible_answer", handle_impossible_answer, BOOLEAN),
            check("batch_size", batch_size, integer(1)),
        )

        def answer(part: Sequence[tuple[str, str]]) -> list[Answer] | list[list[Answer]]:
            results = [self._answers(*pair, search)[: search.top_k] for pair in part]
            return [row[0] for row in results] if search.top_k == 1 else results

        return map_inputs(questions, answer, batch_size=1, progress=progress, label=self.task)

    def _answers(self, question: str, context: str, search: _Search) -> list[Answer]:
        """Returns all candidates, the best first; a span found in two chunks is listed once, with its best score."""
        limit = search.chunk_length or min(_CHUNK_LENGTH, self.info.max_length or _CHUNK_LENGTH)
        question_length = len(self.tokenizer.encode(question, add_special_tokens=False))
        context_length = limit - question_length - self.tokenizer.num_special_tokens(pair=True)
        if context_length < 1:
            raise InputError(
                f"The question must be shorter than the {limit} tokens of a chunk. Received: {question_length} tokens"
            )
        chunks = self.tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=limit,
            stride=min(search.doc_stride, context_length // 2),
            return_overflowing_tokens=True,
            padding_side="right",
        )
        check_known(chunks.input_ids, self.tokenizer, self.info.vocab_size)
        spans: dict[tuple[int, int], float] = {}
        none_score = np.inf
        outputs = self._run(chunks, search.batch_size)
        for row, (starts, ends) in enumerate(zip(outputs["start_logits"], outputs["end_logits"], strict=True)):
            allowed = chunks.sequence_ids[row] == 1
            allowed[0] = True  # the first token means "no answer"
            start, end = (softmax(np.where(allowed, scores, _MASKED)) for scores in (starts, ends))
            none_score = min(none_score, float(start[0] * end[0]))
            for first, last, score in _spans(start, end, allowed, search):
                span = _trimmed(context, chunks.offsets[row, first, 0], chunks.offsets[row, last, 1])
                spans[span] = max(score, spans.get(span, 0.0))
        answers: list[Answer] = [
            {"score": score, "start": start, "end": end, "answer": context[start:end]}
            for (start, end), score in spans.items()
        ]
        if search.handle_impossible_answer or not answers:
            answers.append({"score": none_score, "start": 0, "end": 0, "answer": ""})
        return sorted(answers, key=lambda answer: -answer["score"])


def _inputs(inputs: object, question: object, context: object) -> object:
    """Returns questions with their contexts, from `inputs` or from `question` and `context`.

    Raises:
        InputError: both forms were used, or the numbers of questions and contexts differ.
    """
    if inputs is not None:
        if question is not None or context is not None:
            raise InputError("Either inputs, or question and context, were expected. Received: both")
        return inputs
    questions = read_inputs(question, read_text, "question")
    contexts = read_inputs(context, read_text, "context")
    if questions.total != contexts.total or questions.total is None:
        raise InputError(
            f"Each question needs a context. Received: {questions.total} questions, {contexts.total} contexts"
        )
    pairs = [{"question": one, "context": text} for one, text in zip(questions.items, contexts.items, strict=True)]
    return pairs[0] if questions.form == "one" else pairs


def _read_question(value: object) -> tuple[str, str]:
    if not isinstance(value, Mapping) or not {"question", "context"} <= set(value):
        raise InputError(f'{{"question": …, "context": …}} or a list of them was expected. Received: {shown(value)}')
    question, context = (read_text(value[name], name) for name in ("question", "context"))
    if not context:
        raise InputError(
            f"Each question needs a context that is not empty. Received: an empty context for {shown(question)}"
        )
    return question, context


def _spans(start: np.ndarray, end: np.ndarray, allowed: np.ndarray, search: _Search) -> list[tuple[int, int, float]]:
    """Returns the most probable spans of a chunk, as first token, last token and score."""
    products = np.outer(start, end)
    scores = np.triu(products) - np.triu(products, search.max_answer_len)
    usable = allowed.copy()
    usable[0] = False
    scores = np.where(usable[:, None] & usable[None, :], scores, 0.0)
    best = np.argsort(-scores, axis=None, kind="stable")[: max(_SPANS, search.top_k)]
    spans = zip(*np.unravel_index(best, scores.shape), scores.flat[best], strict=True)
    return [(int(first), int(last), float(score)) for first, last, score in spans if score > 0]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Removes whitespace at the ends of a span, which belongs to the tokens of some vocabularies."""
    span = text[start:end]
    return int(start) + len(span) - len(span.lstrip()), int(end) - len(span) + len(span.rstrip())
