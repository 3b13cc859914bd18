"""Text piece by piece, as it is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from types import TracebackType

import numpy as np

from kerasformer.tokenization import Tokenizer

Callback = Callable[[str], object]
"""Is given each piece."""

Tokens = Generator[np.ndarray, None, list[str]]
"""New tokens `(1,)` as they come, and at the end why it ended."""


class Stream:
    """Pieces of one text that together are the whole: `for piece in stream`, or `async for piece in stream`.

    A token is generated when the next piece is asked for, never ahead. In the async form that happens in a thread, so
    that the event loop stays free; a task that is cancelled ends the text with the token at hand.

        with pipe.stream("Once upon", max_new_tokens=40) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        stream.finish_reason  # "eos", "length", "cancelled", …

    Args:
        start: From a function that says whether to end now to the tokens.
        tokenizer: Of the model.
        prompt: Ids that stand before the text.
        callback: Is given each piece before the reader has it, in the thread where it was made.
        cancelled: The caller's own function that says whether to end now.

    Attributes:
        text: What has come so far.
        finish_reason: Why the text ended, as in `GenerationOutput.finish_reasons`, or `"error"`; `None` before its end.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], bool]], Tokens],
        tokenizer: Tokenizer,
        prompt: Sequence[int] = (),
        callback: Callback | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self.text = ""
        self.finish_reason: str | None = None
        self._cancelled = threading.Event()
        self._asked = cancelled or (lambda: False)
        self._callback = callback
        self._reader = tokenizer.streamer()
        # A token may begin with a space or within a word, so it is read after the prompt, whose own text is left out.
        before = self._reader.put(prompt)
        self._hidden = len(tokenizer.decode(prompt, skip_special_tokens=True)) - len(before)
        self._lock = threading.RLock()  # a generator is not for two threads at once
        self._tokens = start(lambda: self._cancelled.is_set() or self._asked())

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
        """Reads to the end; the whole text."""
        for _ in self:
            pass
        return self.text

    def cancel(self) -> None:
        """Ends the text with the token at hand; from any thread, and without waiting."""
        self._cancelled.set()

    def close(self) -> None:
        """Ends the text, after the token at hand if another thread is generating it."""
        self.cancel()
        with self._lock:
            self._tokens.close()
            self.finish_reason = self.finish_reason or "cancelled"

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _next(self) -> str:
        """The next piece, `""` at the end."""
        with self._lock:
            piece = ""
            while not piece and self.finish_reason is None:
                piece = self._shown(self._put())
            self.text += piece
            if piece and self._callback is not None:
                self._callback(piece)
            return piece

    def _put(self) -> str:
        """Text that one more token makes certain; at the end, what was held back."""
        if self._cancelled.is_set():
            self._tokens.close()
            self.finish_reason = "cancelled"
            return self._reader.end()
        try:
            return self._reader.put(next(self._tokens).tolist())
        except StopIteration as end:
            self.finish_reason = end.value[0]
            return self._reader.end()
        except BaseException:
            self.finish_reason = "error"
            raise

    def _shown(self, piece: str) -> str:
        """Without what belongs to the prompt."""
        hidden = min(self._hidden, len(piece))
        self._hidden -= hidden
        return piece[hidden:]
