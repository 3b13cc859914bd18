"""Streaming of generated text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from kerasformer.generation.loop import Steps
from kerasformer.tokenization import Tokenizer

Callback = Callable[[str], object]
"""Function that receives each piece of text."""


class NewText:
    """Decodes new tokens of a text as they are generated.

    A token may start with a space or within a word, so it is decoded after the prompt, whose text is then removed.

    Args:
        tokenizer: Tokenizer of the model.
        prompt: Token ids that precede the text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._decoder = tokenizer.streamer()
        before = self._decoder.put(prompt)
        self._hidden = len(tokenizer.decode(prompt, skip_special_tokens=True)) - len(before)

    def put(self, tokens: Sequence[int]) -> str:
        """Returns the text that is final after further tokens."""
        return self._without_prompt(self._decoder.put(tokens))

    def end(self) -> str:
        """Returns the remaining text."""
        return self._without_prompt(self._decoder.end())

    def _without_prompt(self, piece: str) -> str:
        hidden = min(self._hidden, len(piece))
        self._hidden -= hidden
        return piece[hidden:]


class Stream:
    """Iterator over the pieces of one text: `for piece in stream`, or `async for piece in stream`.

    Tokens are generated when the next piece is requested, not in advance. Asynchronous iteration generates them in a
    thread, so that the event loop is not blocked; cancelling the task ends the text after the current token.

        with pipe.stream("Once upon", max_new_tokens=40) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        stream.finish_reason  # "eos", "length", "cancelled", …

    Args:
        steps: Generates the tokens of the text.
        tokenizer: Tokenizer of the model.
        prompt: Token ids that precede the text.
        callback: Called with each piece before it is returned, in the thread that generates it.

    Attributes:
        text: Text so far.
        finish_reason: Finish reason as in `GenerationOutput.finish_reasons`, or `"error"`; `None` before the end.
    """

    def __init__(
        self,
        steps: Steps,
        tokenizer: Tokenizer,
        prompt: Sequence[int] = (),
        callback: Callback | None = None,
    ) -> None:
        self.text = ""
        self.finish_reason: str | None = None
        self._cancelled = threading.Event()
        self._callback = callback
        self._decoder = NewText(tokenizer, prompt)
        self._lock = threading.RLock()  # two threads must not use the generator at the same time
        self._steps, self._tokens = steps, iter(steps)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        if piece := self._next():
            return piece
        raise StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        try:
            piece = await asyncio.to_thread(self._next)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if piece:
            return piece
        raise StopAsyncIteration

    def read(self) -> str:
        """Generates the rest of the text and returns the whole text."""
        for _ in self:
            pass
        return self.text

    def cancel(self) -> None:
        """Ends the text after the current token. Can be called from any thread and does not wait."""
        self._cancelled.set()

    def close(self) -> None:
        """Ends the text and waits for the current token if another thread is generating it."""
        self.cancel()
        with self._lock:
            self._tokens.close()
            self.finish_reason = self.finish_reason or "cancelled"

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _next(self) -> str:
        """Returns the next piece, or `""` at the end."""
        with self._lock:
            piece = ""
            while not piece and self.finish_reason is None:
                piece = self._put()
            self.text += piece
            if piece and self._callback is not None:
                self._callback(piece)
            return piece

    def _put(self) -> str:
        """Generates one token and returns the text that is final after it; at the end, the remaining text."""
        if self._cancelled.is_set():
            self._tokens.close()
            self.finish_reason = "cancelled"
            return self._decoder.end()
        try:
            return self._decoder.put(next(self._tokens).tolist())
        except StopIteration:
            self.finish_reason = self._steps.finish_reasons[0]
            return self._decoder.end()
        except BaseException:
            self.finish_reason = "error"
            raise
