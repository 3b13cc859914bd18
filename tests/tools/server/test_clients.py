"""Clients that come and go: nothing is left of them, and others get their answers."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from kerasformer.engines.litert.step import _Row
from kerasformer.tools.server.jobs import Jobs
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import ApiError
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tools.server.servers import running, serving, wait_until

openai = need("openai")

LONG = {"model": "tflite", "prompt": "Who is it?", "max_tokens": 240, "logit_bias": {"1": -100, "3": -100}}


@pytest.fixture(scope="module")
def server():
    with running([f"tflite={shared_chat('tflite')}"]) as server:
        yield server


def rows():
    return sum(isinstance(each, _Row) for each in gc.get_objects())


def slow(server, monkeypatch, seconds=0.02):
    """Lets each step of the engine take so long that a client can leave before the end."""
    engine = server.models["tflite"].pipe.model.engine
    steps = []

    def counted(original):
        def step(*arguments):
            steps.append(threading.Event().wait(seconds))
            return original(*arguments)

        return step

    monkeypatch.setattr(engine, "step", counted(engine.step))
    return steps


def test_a_client_that_leaves_a_stream(server, monkeypatch):
    steps, jobs = slow(server, monkeypatch), server.models["tflite"].jobs
    with server.client().completions.create(**LONG, stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: not len(jobs))
    assert len(steps) < 200 and rows() <= 1  # the prefix cache keeps one


def test_a_client_that_leaves_without_a_stream(server, monkeypatch):
    steps, jobs = slow(server, monkeypatch), server.models["tflite"].jobs

    async def leave():
        async with server.async_client() as client:
            task = asyncio.create_task(client.completions.create(**LONG))
            while not steps:
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(leave())
    wait_until(lambda: not len(jobs))
    assert len(steps) < 200 and rows() <= 1
    assert server.measurements.cancelled.labels("tflite")._value.get() >= 2


def test_a_client_that_leaves_before_its_other_prompts_are_read(server, monkeypatch):
    steps, jobs = slow(server, monkeypatch), server.models["tflite"].jobs
    engine, read = server.models["tflite"].pipe.model.engine, []
    for name in ("start", "resume"):
        original = getattr(engine, name)

        def counted(*arguments, name=name, original=original):
            read.append(name)
            return original(*arguments)

        monkeypatch.setattr(engine, name, counted)

    async def leave():
        async with server.async_client() as client:
            prompts = ["Alice is late.", "Who is it?", "The rabbit", "It is late"]
            task = asyncio.create_task(client.completions.create(**{**LONG, "prompt": prompts}))
            while not steps:
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(leave())
    wait_until(lambda: not len(jobs))
    assert len(read) == 1


def test_a_client_that_leaves_the_queue(server, monkeypatch):
    """Its place is free at once, and nothing is computed for it."""
    slow(server, monkeypatch)
    jobs = server.models["tflite"].jobs

    async def leave():
        async with server.async_client() as client:
            tasks = [asyncio.create_task(client.completions.create(**LONG)) for _ in range(12)]
            while len(jobs) < 12:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()

    asyncio.run(leave())
    wait_until(lambda: not len(jobs))
    assert server.measurements.waiting.labels("tflite")._value.get() == 0
    assert server.measurements.running.labels("tflite")._value.get() == 0


def test_a_hundred_clients_that_come_and_go(server):
    """Some read a whole answer, some leave in the middle, some ask for what does not exist."""
    short = {**LONG, "max_tokens": 10}
    expected = server.client().completions.create(**short, temperature=0).choices[0].text

    async def visit(client, number):
        if number % 4 == 0:
            answer = await client.completions.create(**short, temperature=0)
            assert answer.choices[0].text == expected
        elif number % 4 == 1:
            async with await client.completions.create(**LONG, stream=True) as stream:
                async for _ in stream:
                    break
        elif number % 4 == 2:
            task = asyncio.create_task(client.completions.create(**LONG))
            await asyncio.sleep(0.01)
            task.cancel()
        else:
            try:
                await client.completions.create(**{**short, "model": "gpt-4"})
            except Exception as error:
                assert "does not exist" in str(error)

    async def visits(count):
        async with server.async_client() as client:
            for start in range(0, count, 20):
                await asyncio.gather(*(visit(client, start + number) for number in range(20)))

    asyncio.run(visits(20))
    wait_until(lambda: not len(server.models["tflite"].jobs))
    threads = threading.active_count()
    asyncio.run(visits(100))
    wait_until(lambda: not len(server.models["tflite"].jobs))
    assert threading.active_count() <= threads and rows() <= 1
    assert server.client().completions.create(**short, temperature=0).choices[0].text == expected


def test_a_request_that_waits_too_long():
    measurements, blocked = Measurements(), threading.Event()
    jobs = Jobs("m", Limits(max_running=1, timeout=0.1), measurements)

    def slow(job):
        yield blocked.wait(10)

    async def ask():
        first, second = jobs.start(slow), jobs.start(slow)
        await asyncio.sleep(0.2)
        blocked.set()
        assert await first.result()
        with pytest.raises(ApiError, match="waited too long"):
            await second.result()

    asyncio.run(ask())
    jobs.close()
    assert measurements.waiting.labels("m")._value.get() == measurements.running.labels("m")._value.get() == 0


def test_texts_that_are_generated_at_once_are_limited():
    """Requests wait for each other, one for more texts than the limit runs alone, and a cancelled one ends."""
    measurements, running, most, ended = Measurements(), [], [], threading.Event()
    jobs = Jobs("m", Limits(max_running=4, max_rows=4), measurements)

    def generate(rows):
        def compute(job):
            running.append(rows)
            most.append(sum(running))
            threading.Event().wait(0.05)
            running.remove(rows)
            yield rows

        return compute

    def blocked(job):
        yield ended.wait(10)

    async def ask():
        started = [jobs.start(generate(rows), rows) for rows in (3, 1, 3, 2, 9, 2, 4)]
        assert [await job.result() for job in started] == [3, 1, 3, 2, 9, 2, 4]
        first, second, third = jobs.start(blocked, 3), jobs.start(blocked, 3), jobs.start(generate(1), 1)
        assert await third.result() == 1
        second.cancel()
        while len(jobs) > 1:
            await asyncio.sleep(0.01)
        ended.set()
        await first.result()

    asyncio.run(ask())
    jobs.close()
    assert all(rows <= 4 or rows == 9 for rows in most)
    assert measurements.waiting.labels("m")._value.get() == measurements.running.labels("m")._value.get() == 0


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_reads_no_answer(reads):
    """A connection is aborted when nothing was read for some time, and not because the whole answer takes longer."""
    ended, part, count = threading.Event(), b"x" * 2**20, 16

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(count):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    with serving(app, Limits(body_timeout=0.4)) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if reads:
            size, pause = 0, threading.Event()
            while received := client.recv(2**16):
                size += len(received)
                pause.wait(0.003)
            assert size > count * len(part)
        assert ended.wait(10)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_command_ends_after_its_last_answer():
    """SIGTERM during a stream: the stream goes on to its end, and the process ends with status 0."""
    command = [sys.executable, "-m", "kerasformer.cli", "serve", f"m={shared_chat('onnx')}", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "KERASFORMER_API_KEY": "secret"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            url = re.search(r"Serving m at (http://127.0.0.1:\d+/v1)", process.stdout.readline()).group(1)
            client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
            stream = client.completions.create(**{**LONG, "model": "m"}, stream=True)
            next(iter(stream))
            process.send_signal(signal.SIGTERM)
            assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
            assert process.wait(20) == 0
        finally:
            process.kill()
