"""Generation of the texts of a request, token by token, in a thread."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerasformer.engines import Step, check_capacity, next_distributions
from kerasformer.errors import KerasformerError
from kerasformer.generation import ENDED, NewText, Node
from kerasformer.pipelines import Prompt
from kerasformer.tools.server.jobs import Job
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import refused
from kerasformer.tools.server.sampling import Sampling
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.stop_texts import StopTexts


@dataclass(frozen=True)
class Token:
    """A token of a text, with its probability.

    Attributes:
        id: Token id.
        start: Index of the character of the text at which the token begins.
        log_probability: Log-probability before rules and filters; `None` for the first token of a prompt.
        candidates: The most probable tokens and their log-probabilities, best first.
    """

    id: int
    start: int
    log_probability: float | None
    candidates: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Piece:
    """A piece of a text.

    Attributes:
        index: Index of the text in the answer.
        text: The piece; may be empty.
        tokens: Its tokens, if log-probabilities are requested.
        finish_reason: `"stop"` or `"length"` at the end of the text, and otherwise `None`.
    """

    index: int
    text: str
    tokens: tuple[Token, ...] = ()
    finish_reason: str | None = None


@dataclass
class Usage:
    """Numbers of tokens of a request.

    Attributes:
        prompt: Tokens of the prompts.
        reused: Those that were in a cache.
        new: Generated tokens.
    """

    prompt: int = 0
    reused: int = 0
    new: int = 0

    @property
    def body(self) -> dict[str, Any]:
        """The numbers as in OpenAI's API."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.new,
            "total_tokens": self.prompt + self.new,
            "prompt_tokens_details": {"cached_tokens": self.reused},
        }


_Score = tuple[float | None, tuple[tuple[int, float], ...]]
"""Log-probability of a token, and candidates, best first, with theirs."""


class Texts:
    """The texts of a request.

    Args:
        model: The model.
        prompts: Prompts as for `TextGenerationPipeline.prompt`.
        options: Further arguments of it, such as those of a chat template.
        sampling: How the texts are generated.
        num_candidates: Number of candidates of each token; `None` without log-probabilities.
        reuse: Whether to continue the caches of earlier texts.
        measurements: Figures of the server.
        echo: Whether texts begin with their prompts.

    Attributes:
        usage: Numbers of tokens; complete after the last piece.
    """

    def __init__(
        self,
        model: ServedModel,
        prompts: Sequence[object],
        options: dict[str, object],
        sampling: Sampling,
        num_candidates: int | None,
        reuse: bool,
        measurements: Measurements,
        *,
        echo: bool = False,
    ) -> None:
        self.usage, self._echo = Usage(), echo
        self._model, self._prompts, self._options, self._sampling = model, prompts, options, sampling
        self._num_candidates, self._reuse, self._figures = num_candidates, reuse, measurements

    def pieces(self, job: Job) -> Generator[list[Piece], None, None]:
        """Yields the pieces of each step; the first is empty and shows that the prompt was accepted and read.

        Raises:
            ApiError: the pipeline refuses the request.
        """
        try:
            for index, prompt in enumerate(self._prompts):
                if job.is_cancelled():
                    return
                yield from self._texts_of(prompt, index * self._sampling.n, job)
        except KerasformerError as error:
            raise refused(error) from error

    def _texts_of(self, prompt: Any, first: int, job: Job) -> Generator[list[Piece], None, None]:
        """Yields the pieces of the texts for one prompt, which have the indices from `first`."""
        prepared = self._prepared(prompt, job)
        self._count_prompt(prepared)
        echoed = [self._echoed(prompt, prepared, first, job)] if self._echo else []
        if not self._sampling.generates:
            yield []
            yield self._copied([dataclasses.replace(piece, finish_reason="length") for piece in echoed])
            return
        writer, before, length = self._model.pipe.tokenizer.writer, prepared.before, sum(len(p.text) for p in echoed)
        texts = [
            _Text(
                first + row,
                NewText(writer, before),
                StopTexts(self._sampling.stops),
                self._num_candidates,
                shows_end=self._echo,
                length=length,
                sent=length,
            )
            for row in range(self._sampling.rows)
        ]
        echoed = [dataclasses.replace(piece, index=text.index) for piece in echoed for text in texts]
        steps, last = prepared.steps(self._reuse), None
        with closing(iter(steps)) as all_tokens:
            for tokens in all_tokens:
                now = time.monotonic()
                if last is None:
                    self._count_first(steps.reused, now - job.arrival)
                    yield []
                    yield self._copied(echoed)
                else:
                    self._figures.next_token.labels(self._model.name).observe(now - last)
                last = now
                pieces = [
                    text.add(token, node)
                    for text, token, node in zip(texts, tokens.tolist(), steps.nodes, strict=True)
                    if token != ENDED and not text.is_stopped
                ]
                self.usage.new += len(pieces) * self._num_copies
                self._figures.new_tokens.labels(self._model.name).inc(len(pieces))
                if shown := [piece for piece in pieces if piece is not None]:
                    yield self._copied(shown)
                if all(text.is_stopped for text in texts):
                    break
        reasons, constraint = steps.finish_reasons, prepared.request.constraint
        if constraint is not None:  # it completes a text within the maximum length
            whole = [constraint.is_complete(np.array(text.ids, np.int32)) for text in texts]
            reasons = ["stop" if is_whole else each for each, is_whole in zip(reasons, whole, strict=True)]
        yield self._copied([text.end(reason) for text, reason in zip(texts, reasons, strict=True)])

    @property
    def _num_copies(self) -> int:
        """Number of answers that have the same text."""
        return self._sampling.n // self._sampling.rows

    def _copied(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Returns the pieces for all answers with the same text."""
        copies = range(self._num_copies)
        return [dataclasses.replace(piece, index=piece.index + copy) for piece in pieces for copy in copies]

    def _echoed(self, prompt: Any, prepared: Prompt, index: int, job: Job) -> Piece:
        """Returns the piece that repeats a prompt, with the log-probabilities of its tokens if they are requested."""
        writer, ids = self._model.pipe.tokenizer.writer, prepared.before
        text: str = prompt if isinstance(prompt, str) else writer.decode(list(prompt), skip_special_tokens=True)
        if self._num_candidates is None:
            return Piece(index, text)
        check_capacity(prepared.step, len(ids))
        decoder, start, tokens = NewText(writer, []), 0, []
        for token, (log, candidates) in zip(
            ids, self._scores(prepared.step, ids, self._num_candidates, job), strict=False
        ):
            tokens.append(Token(token, min(start, len(text)), log, candidates))
            start += len(decoder.put([token]))
        return Piece(index, text, tuple(tokens))

    @staticmethod
    def _scores(step: Step, ids: Sequence[int], count: int, job: Job) -> Iterator[_Score]:
        """Yields the log-probability of each token of a prompt, and the `count` most probable tokens instead of it."""
        yield None, ()
        first, targets = np.array(ids[:1], np.int32), np.array([ids[1:]], np.int32)
        if not targets.size:
            return
        state = step.start(first[None], np.ones_like(first[None]))
        for columns, logs in next_distributions(step, state, first, targets):
            if job.is_cancelled():
                return
            for token, row in zip(targets[0, columns].tolist(), logs[0], strict=True):
                best = np.argpartition(row, -count)[-count:] if count else np.zeros(0, int)
                best = best[np.argsort(-row[best], kind="stable")]
                yield float(row[token]), tuple(zip(best.tolist(), row[best].tolist(), strict=True))

    def _prepared(self, prompt: Any, job: Job) -> Prompt:
        settings = {**self._sampling.settings, "cancelled": job.is_cancelled, "max_time": max(job.remaining, 0.001)}
        settings["explain"] = self._num_candidates is not None  # records the candidates
        prepared: Prompt = self._model.pipe.prompt(prompt, **self._options, **settings)
        request, step = prepared.request, prepared.step
        room = step.capacity - (1 if step.is_encoder_decoder else prepared.num_tokens)
        limits = [each for each in (request.config.max_new_tokens, self._sampling.max_tokens) if each is not None]
        if not limits or room < 1:
            return prepared
        # A text that fills the cache ends there, without a warning for each request.
        budget = min(*limits, room)
        if request.constraint is not None:
            request.constraint.check_length(budget)
        config = request.config.replace(max_new_tokens=budget)
        return dataclasses.replace(prepared, request=dataclasses.replace(request, config=config))

    def _count_prompt(self, prompt: Prompt) -> None:
        self.usage.prompt += prompt.num_tokens
        self._figures.prompt_tokens.labels(self._model.name).inc(prompt.num_tokens)

    def _count_first(self, reused: int, seconds: float) -> None:
        self.usage.reused += reused
        self._figures.reused_tokens.labels(self._model.name).inc(reused)
        self._figures.first_token.labels(self._model.name).observe(seconds)


@dataclass
class _Text:
    """One text while it is generated.

    Attributes:
        index: Index of the text in the answer.
        decoder: Decodes its tokens.
        stops: Ends it before a stop sequence.
        num_candidates: Number of candidates of each token; `None` without log-probabilities.
        shows_end: Whether an end token is among the tokens of the last piece, although it is no text.
        length: Number of decoded characters.
        sent: Number of characters that were passed on.
        tokens: Tokens that were not passed on yet.
        ids: Token ids of the whole text.
    """

    index: int
    decoder: NewText
    stops: StopTexts
    num_candidates: int | None
    shows_end: bool = False
    length: int = 0
    sent: int = 0
    tokens: list[Token] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop sequence was found."""
        return self.stops.found

    def add(self, token: int, node: Node | None) -> Piece | None:
        """Adds a token; returns the piece that can be passed on, if there is one."""
        self.ids.append(token)
        if node is not None and self.num_candidates is not None:
            best = zip(node.choice.tokens.tolist(), node.choice.log_probabilities.tolist(), strict=True)
            candidates = tuple(best)[: self.num_candidates]
            self.tokens.append(Token(token, self.length, node.log_probability, candidates))
        new = self.decoder.put([token])
        self.length += len(new)
        text = self.stops.put(new)
        return self._piece(text) if text else None

    def end(self, reason: str) -> Piece:
        """Returns the last piece."""
        stopped = self.is_stopped
        text = self.stops.put(self.decoder.end()) + self.stops.end()
        is_complete = stopped or self.is_stopped or reason in ("eos", "stop")
        return self._piece(text, "stop" if is_complete else "length")

    def _piece(self, text: str, reason: str | None = None) -> Piece:
        self.sent += len(text)
        all_shown = self.shows_end and reason is not None and not self.is_stopped
        shown = tuple(token for token in self.tokens if all_shown or token.start < self.sent)
        self.tokens = self.tokens[len(shown) :]
        return Piece(self.index, text, shown, reason)
