"""Answers with generated texts in the forms of OpenAI's API: conversations and completions, whole or in pieces."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

import kerasformer
from kerasformer.tools.server.replies import ApiError, event
from kerasformer.tools.server.served_model import ServedModel
from kerasformer.tools.server.stop_texts import StopTexts
from kerasformer.tools.server.texts import Piece, Token, Usage
from kerasformer.tools.server.tools import Tools

_LOWEST = -9999.0
"""Log-probability of an impossible token, as in OpenAI's API, since JSON has no infinity."""


class Answer(Protocol):
    """Form of an answer, as one JSON object or as a stream of server-sent events."""

    def whole(self, texts: Sequence[Sequence[Piece]], usage: Usage) -> dict[str, object]:
        """Returns a whole answer of all pieces of each text."""
        ...

    def opening(self, count: int) -> Iterator[bytes]:
        """Yields the first events of a stream of this number of texts."""
        ...

    def events(self, piece: Piece) -> Iterator[bytes]:
        """Yields the events of a piece."""
        ...

    def closing(self, usage: Usage) -> Iterator[bytes]:
        """Yields the last events."""
        ...

    def failing(self, error: ApiError) -> Iterator[bytes]:
        """Yields the last events of a stream that an error ends."""
        ...


class _Form(ABC):
    """What conversations and completions have in common.

    Args:
        model: The model.
        log_probabilities: Whether they are requested.
        includes_usage: Whether a stream ends with the numbers of tokens.
    """

    prefix, whole_kind, piece_kind = "", "", ""

    def __init__(self, model: ServedModel, log_probabilities: bool, includes_usage: bool) -> None:
        self._model, self._log_probabilities, self._includes_usage = model, log_probabilities, includes_usage
        self._id, self._created = f"{self.prefix}-{uuid.uuid4().hex}", int(time.time())

    def whole(self, texts: Sequence[Sequence[Piece]], usage: Usage) -> dict[str, object]:
        """Returns a whole answer."""
        return {**self._head(self.whole_kind), "choices": [*map(self._choice, texts)], "usage": usage.body}

    def opening(self, count: int) -> Iterator[bytes]:
        """Yields the first choice of each text, if the form has one."""
        for index in range(count):
            if choice := self._first(index):
                yield self._chunk(choice)

    def events(self, piece: Piece) -> Iterator[bytes]:
        """Yields the choice of a piece."""
        yield self._chunk(self._delta(piece))

    def closing(self, usage: Usage) -> Iterator[bytes]:
        """Yields the numbers of tokens, if they are requested, and the end."""
        if self._includes_usage:
            yield event({**self._head(self.piece_kind), "choices": [], "usage": usage.body})
        yield b"data: [DONE]\n\n"

    def failing(self, error: ApiError) -> Iterator[bytes]:
        """Yields the error."""
        yield event(error.body)

    @abstractmethod
    def _first(self, index: int) -> dict[str, object] | None:
        """Returns the first choice of a stream for a text, if the form has one."""

    @abstractmethod
    def _delta(self, piece: Piece) -> dict[str, object]:
        """Returns the choice of a stream for a piece."""

    @abstractmethod
    def _choice(self, pieces: Sequence[Piece]) -> dict[str, object]:
        """Returns the choice of a whole answer for all pieces of a text."""

    def _chunk(self, choice: dict[str, object]) -> bytes:
        usage = {"usage": None} if self._includes_usage else {}
        return event({**self._head(self.piece_kind), **usage, "choices": [choice]})

    def _head(self, kind: str) -> dict[str, object]:
        """Returns the fields that all pieces share."""
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model.name,
            "system_fingerprint": f"kerasformer-{kerasformer.__version__}",
        }


class ChatAnswer(_Form):
    """Answer to a conversation.

    Args:
        model: The model.
        log_probabilities: Whether they are requested.
        includes_usage: Whether a stream ends with the numbers of tokens.
        tools: Functions that the answer may call, if there are any.
    """

    prefix, whole_kind, piece_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self, model: ServedModel, log_probabilities: bool, includes_usage: bool, tools: Tools | None = None
    ) -> None:
        super().__init__(model, log_probabilities, includes_usage)
        self._tools, self._streams = tools, defaultdict[int, HeldCalls](lambda: HeldCalls(tools))

    def _first(self, index: int) -> dict[str, object] | None:
        """Returns the choice that names the role."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _delta(self, piece: Piece) -> dict[str, object]:
        """Returns the choice of a piece."""
        text, reason = piece.text, piece.finish_reason
        calls: list[dict[str, object]] = []
        if self._tools is not None:
            text, calls = self._streams[piece.index].put(text, is_last=reason is not None)
        delta: dict[str, object] = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
            reason = "tool_calls"
        logs = self._logs([piece]) if piece.tokens else None
        return {"index": piece.index, "delta": delta, "logprobs": logs, "finish_reason": reason}

    def _choice(self, pieces: Sequence[Piece]) -> dict[str, object]:
        """Returns the choice of a text."""
        text, reason = "".join(piece.text for piece in pieces), pieces[-1].finish_reason
        message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None}
        if self._tools is not None:
            content, calls = self._tools.split(text)
            if calls:
                message |= {"content": content or None, "tool_calls": calls}
                reason = "tool_calls"
        return {
            "index": pieces[0].index,
            "message": message,
            "logprobs": self._logs(pieces) if self._log_probabilities else None,
            "finish_reason": reason,
        }

    def _logs(self, pieces: Sequence[Piece]) -> dict[str, object]:
        tokens = [token for piece in pieces for token in piece.tokens]
        content = [
            {
                **self._entry(token.id, token.log_probability),
                "top_logprobs": [self._entry(other, log) for other, log in token.candidates],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, log: float | None) -> dict[str, object]:
        content = self._model.bytes_of(token)
        return {"token": content.decode(errors="replace"), "logprob": _finite(log), "bytes": [*content]}


class HeldCalls:
    """The text of a stream that may be a call, which is sent as a whole at its end.

    Args:
        tools: Functions that the answer may call.
    """

    def __init__(self, tools: Tools | None) -> None:
        self._tools, self._text, self._sent = tools, "", 0
        self._before = StopTexts((tools.marker,) if tools and tools.marker and not tools.forced else ())

    def put(self, text: str, is_last: bool) -> tuple[str, list[dict[str, object]]]:
        """Returns the text that can be passed on after another piece, and the calls at the end of the answer."""
        self._text += text
        if self._tools is None:
            return text, []
        if not is_last:
            passed = "" if self._tools.forced else self._before.put(text)
            self._sent += len(passed)
            return passed, []
        return self._tools.split(self._text[self._sent :])


class CompletionAnswer(_Form):
    """Continuation of a prompt."""

    prefix, whole_kind, piece_kind = "cmpl", "text_completion", "text_completion"

    def _first(self, index: int) -> dict[str, object] | None:
        """Returns nothing: the first choice of a stream is a piece."""
        return None

    def _delta(self, piece: Piece) -> dict[str, object]:
        """Returns the choice of a piece."""
        logs = self._logs(piece.tokens) if piece.tokens else None
        return {"index": piece.index, "text": piece.text, "logprobs": logs, "finish_reason": piece.finish_reason}

    def _choice(self, pieces: Sequence[Piece]) -> dict[str, object]:
        """Returns the choice of a text."""
        tokens = [token for piece in pieces for token in piece.tokens]
        return {
            "index": pieces[0].index,
            "text": "".join(piece.text for piece in pieces),
            "logprobs": self._logs(tokens) if self._log_probabilities else None,
            "finish_reason": pieces[-1].finish_reason,
        }

    def _logs(self, tokens: Sequence[Token]) -> dict[str, object]:
        return {
            "tokens": [self._name(token.id) for token in tokens],
            "token_logprobs": [_finite(token.log_probability) for token in tokens],
            # The best last, so that it is kept if several tokens have the same name.
            "top_logprobs": [
                None
                if token.log_probability is None
                else {self._name(other): _finite(log) for other, log in token.candidates[::-1]}
                for token in tokens
            ],
            "text_offset": [token.start for token in tokens],
        }

    def _name(self, token: int) -> str:
        """Returns the text of a token; its bytes as OpenAI's API writes them if they are no text by themselves."""
        content = self._model.bytes_of(token)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def _finite(log: float | None) -> float | None:
    """Returns a log-probability as JSON can have it."""
    return None if log is None else max(log, _LOWEST)
