"""Streams: their pieces form the whole text, and all ways to end one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kerasformer.errors import GenerationError
from kerasformer.generation import GenerationConfig, Stream, request
from tests import tiny_text
from tests.core.generation.scripted import Scripted
from tests.core.generation.test_stopping import byte_fallback

PROMPT = "The old man, 25 €"
TEXT = " größer. The 日本 🙂🙃 and the ship… And so on"
KINDS = {"bytes": tiny_text.byte_pairs, "pieces": tiny_text.pieces, "byte fallback": byte_fallback}


def opened(
    text: str = TEXT,
    kind: str = "bytes",
    before_token: Callable[[int], object] = lambda number: None,
    callback: Callable[[str], object] | None = None,
    **settings: Any,
) -> Stream:
    tokenizer = KINDS[kind]()
    engine = Scripted(tokenizer, PROMPT, text, before_token)
    run_request = request({"max_new_tokens": 200, "eos_token_id": 0, **settings}, GenerationConfig(), tokenizer, None)
    return run_request.stream(engine, engine.ids, engine.mask, callback)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_form_the_text_after_the_prompt(kind: str) -> None:
    tokenizer = KINDS[kind]()
    engine = Scripted(tokenizer, PROMPT, TEXT)
    run_request = request({"max_new_tokens": 200, "eos_token_id": 0}, GenerationConfig(), tokenizer, None)
    stream = run_request.stream(engine, engine.ids, engine.mask)
    pieces: list[str] = []
    for piece in stream:
        pieces.append(piece)
        assert stream.text == "".join(pieces)
        assert piece and not piece.endswith("\ufffd")
    generated = run_request.write(engine, engine.ids, engine.mask)
    assert stream.text == generated.texts[0][0]
    if kind != "pieces":  # this vocabulary lacks most of the characters
        assert stream.text == TEXT
    assert len(pieces) > 10
    assert stream.finish_reason == generated.output.finish_reasons[0] == "eos"
    assert list(stream) == []


@pytest.mark.parametrize(("strings", "text"), [(" The", " größer. The"), (["xyz", "€ gr"], " gr")])
def test_a_stop_string_ends_the_text(strings: Any, text: str) -> None:
    stream = opened(stop_strings=strings)
    assert (stream.read(), stream.finish_reason) == (text, "stop")


def test_the_callback_receives_each_piece_first() -> None:
    received: list[str] = []
    stream = opened(callback=received.append)
    for piece in stream:
        assert received[-1] == piece
    assert "".join(received) == stream.text == TEXT


def test_tokens_are_generated_on_request() -> None:
    numbers: list[int] = []
    stream = opened(before_token=numbers.append)
    assert numbers == []
    next(stream)
    assert numbers == [0]


def test_cancel_from_another_thread_ends_after_the_current_token() -> None:
    stream: Stream

    def cancel(number: int) -> None:
        if number == 3:
            thread = threading.Thread(target=stream.cancel)
            thread.start()
            thread.join()

    numbers: list[int] = []
    stream = opened(before_token=lambda number: (numbers.append(number), cancel(number)))
    text = stream.read()
    assert numbers == [0, 1, 2, 3]
    assert TEXT.startswith(text.rstrip("\ufffd")) and stream.finish_reason == "cancelled"


def test_leaving_a_with_block_closes() -> None:
    numbers: list[int] = []
    with opened(before_token=numbers.append) as stream:
        first = next(stream)
    assert (list(stream), stream.text, stream.finish_reason) == ([], first, "cancelled")
    assert numbers == [0]
    with opened() as stream:
        stream.read()
    assert stream.finish_reason == "eos"


def test_close_waits_for_the_current_token_of_another_thread() -> None:
    started, go = threading.Event(), threading.Event()
    stream = opened(before_token=lambda number: (started.set(), go.wait(10)))
    reader = threading.Thread(target=stream.read)
    reader.start()
    started.wait(10)
    closer = threading.Thread(target=stream.close)
    closer.start()
    go.set()
    for thread in (reader, closer):
        thread.join(10)
        assert not thread.is_alive()
    assert stream.finish_reason == "cancelled"


class EngineError(Exception):
    pass


def fail(number: int) -> None:
    if number == 2:
        raise EngineError("no more")


def test_an_error_of_the_engine_is_raised_and_ends_the_stream() -> None:
    stream = opened(before_token=fail)
    with pytest.raises(EngineError):
        stream.read()
    assert (list(stream), stream.finish_reason) == ([], "error")


def test_async_iteration_does_not_block_the_event_loop() -> None:
    ticks = 0

    async def main() -> str:
        nonlocal ticks

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        clock = asyncio.create_task(tick())
        threads: set[int] = set()
        stream = opened(before_token=lambda number: (threads.add(threading.get_ident()), time.sleep(0.01)))
        pieces = [piece async for piece in stream]
        clock.cancel()
        assert threading.get_ident() not in threads
        assert stream.finish_reason == "eos"
        return "".join(pieces)

    assert asyncio.run(main()) == TEXT
    assert ticks > 50


def test_async_errors_are_raised() -> None:
    async def main() -> None:
        async for _ in opened(before_token=fail):
            pass

    with pytest.raises(EngineError):
        asyncio.run(main())


def test_a_cancelled_task_ends_the_text_after_the_current_token() -> None:
    numbers: list[int] = []
    third = threading.Event()

    def before(number: int) -> None:
        numbers.append(number)
        if number == 3:
            third.set()
            time.sleep(0.05)

    async def main() -> Stream:
        stream = opened(before_token=before)

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read())
        await asyncio.to_thread(third.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream

    stream = asyncio.run(main())
    stream.close()
    assert numbers == [0, 1, 2, 3]
    assert stream.finish_reason == "cancelled"


def test_an_async_with_block_closes_the_stream() -> None:
    numbers: list[int] = []

    async def main() -> Stream:
        async with opened(before_token=numbers.append) as stream:
            async for _ in stream:
                break
            await asyncio.sleep(0.05)
        return stream

    assert asyncio.run(main()).finish_reason == "cancelled"
    assert numbers == [0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 2}, "num_beams=1"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences=1. Received: 2"),
        ({"output_scores": True}, "returns only text"),
        ({"explain": True}, "request explanation"),
    ],
)
def test_unsupported_settings_raise_at_the_call(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        opened(**settings)
