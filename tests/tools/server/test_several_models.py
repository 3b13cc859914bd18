"""Several models behind one server: memory, adapters, and clients that take turns."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import kerasformer as kf
from kerasformer.errors import InputError, SourceError
from kerasformer.tools.server.jobs import Jobs
from kerasformer.tools.server.keys import read_keys
from kerasformer.tools.server.limits import Limits
from kerasformer.tools.server.measurements import Measurements
from kerasformer.tools.server.replies import ApiError
from kerasformer.tools.server.served_model import size_of
from kerasformer.tools.server.served_models import open_models
from tests.core.engines.test_adapters import randomize
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.extras import need
from tests.tools.server.servers import running

httpx, openai = need("httpx"), need("openai")
from tests.tools.server.test_clients import LONG, slow

TARGETS = ["q_proj", "v_proj"]


@pytest.fixture(scope="module")
def size():
    """Size of a model in gigabytes."""
    return size_of(str(shared_chat("onnx"))) / 1e9


def sources(names):
    return [f"{name}={shared_chat('onnx')}" for name in names]


def text(server, model, **options):
    asked = {"model": model, "prompt": "Who is it?", "max_tokens": 3, "temperature": 0, **options}
    return server.client().completions.create(**asked).choices[0].text


def test_the_model_that_was_not_used_for_the_longest_time_is_closed(size):
    with running(sources("abc"), memory_budget=2.5 * size) as server:

        def opened():
            return [model.name for model in server.every]

        assert [model.id for model in server.client().models.list()] == ["a", "b", "c"]
        assert httpx.get(f"{server.url}/v2/models/c/ready").json()["ready"] and not opened()
        expected = [text(server, name) for name in ("a", "b", "a")]
        assert opened() == ["a", "b"]
        assert [text(server, "c"), text(server, "a")] == expected[:2] and opened() == ["a", "c"]
        figures = httpx.get(f"{server.url}/metrics").text
        assert 'open_models{model="b"} 0.0' in figures and 'open_models{model="c"} 1.0' in figures
        with ThreadPoolExecutor(8) as threads:  # more than fit, at once
            texts = [*threads.map(lambda name: text(server, name), "abcabcabcabc")]
        assert {*texts} == {*expected} and len(opened()) == 2


def test_a_model_that_runs_is_not_closed(size, monkeypatch):
    with running(sources("ab"), memory_budget=1.5 * size) as server:
        assert text(server, "a")
        (model,) = server.every
        server.models["tflite"] = model
        steps = slow(server, monkeypatch)
        with (
            ThreadPoolExecutor(2) as threads,
            server.client().completions.create(**{**LONG, "model": "a", "max_tokens": 40}, stream=True) as stream,
        ):
            next(iter(stream))
            other = threads.submit(text, server, "b")
            again = None
            for _ in stream:
                state = [each.name for each in server.every], other.done()
                assert state == (["a"], False) or len(steps) >= 40  # the last pieces may be read after the model ran
                again = again or threads.submit(text, server, "a")  # it waits behind the other one
            assert other.result(60) == again.result(60) and len(steps) >= 40
        assert [each.name for each in server.every] == ["a"]


def test_models_that_do_not_fit(size):
    with pytest.raises(InputError, match="The model 'b' does not fit into the memory budget"):
        open_models(sources("b"), Limits(), Measurements(), memory_budget=size / 2)
    models = open_models(sources("ab"), Limits(timeout=0.01), Measurements(), memory_budget=1.5 * size)

    async def ask():
        with ExitStack() as held:
            await models.hold("a", held)
            with pytest.raises(ApiError, match="The model 'b' needs .* and a are in use"), ExitStack() as other:
                await models.hold("b", other)
        with ExitStack() as held:
            assert (await models.hold("b", held)).name == "b"

    asyncio.run(ask())
    (model,) = models
    model.close()
    assert size_of("story-gpt2") > 4 * 100_000


def test_requests_for_a_model_that_does_not_fit_wait_at_the_same_time(size):
    models = open_models(sources("ab"), Limits(timeout=2), Measurements(), memory_budget=1.5 * size)

    async def ask():
        async def other():
            with ExitStack() as held:
                await models.hold("b", held)

        with ExitStack() as held:
            await models.hold("a", held)
            start = time.monotonic()
            answers = await asyncio.gather(*(other() for _ in range(8)), return_exceptions=True)
            assert [each.status for each in answers] == [503] * 8 and all(
                "The model 'b'" in str(each) for each in answers
            )
            assert time.monotonic() - start < 10  # one after another, they would take sixteen seconds

    asyncio.run(ask())
    (model,) = models
    model.close()


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A bundle with inputs for adapters, and two adapters."""
    folder = tmp_path_factory.mktemp("adapted")
    model = kf.zoo.load(shared_chat("checkpoint"))
    for name, rank in {"tales": 2, "poems": 3}.items():
        model.enable_lora(rank, TARGETS, alpha=6)
        randomize(model.trainable_variables, 0.5 * rank)
        model.save_adapter(folder / name)
        model.unload_adapter()
    kf.export.export(model, folder / "bundle", "onnx", lora_rank=4, lora_targets=TARGETS)
    return folder


def test_adapters_by_name(adapted):
    """Requests with different adapters at once get what each gets alone."""
    pipe = kf.pipeline(adapted / "bundle")
    expected = {}
    for name in (None, "tales", "poems"):
        if name is not None:
            pipe.load_adapter(adapted / name)
        (answer,) = pipe("Who is it?", raw=True, max_new_tokens=8, do_sample=False, return_full_text=False)
        expected[name or "m"] = answer["generated_text"]
    assert len({*expected.values()}) == 3
    adapters = [f"tales={adapted / 'tales'}", f"poems=m:{adapted / 'poems'}"]
    with running([f"m={adapted / 'bundle'}"], adapters=adapters) as server:
        listed = {model.id: model.to_dict().get("parent") for model in server.client().models.list()}
        assert listed == {"m": None, "tales": "m", "poems": "m"}
        names = ["m", "tales", "poems", "tales", "m", "tales", "poems", "m"] * 3
        with ThreadPoolExecutor(8) as threads:
            texts = [*threads.map(lambda name: text(server, name, max_tokens=8), names)]
        assert texts == [expected[name] for name in names]
        assert server.client().completions.create(model="tales", prompt="a", max_tokens=1).model == "tales"


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        (["tales"], "must be NAME=FOLDER"),
        (["tales={}/tales", "tales={}/poems"], "its own name"),
        (["m={}/tales"], "its own name. Received: m several"),
        (["tales={}/tales"], "This bundle runs no adapters"),
    ],
)
def test_adapters_that_cannot_be_used(adapted, adapters, message):
    given = [each.format(adapted) for each in adapters]
    with pytest.raises(InputError, match=message):
        open_models(sources("m"), Limits(), Measurements(), adapters=given)
    if message.startswith("This"):
        with pytest.raises(InputError, match="NAME=MODEL:FOLDER, with one of a, b"):
            open_models(sources("ab"), Limits(), Measurements(), adapters=given)


def test_clients_take_turns():
    measurements, begun, order = Measurements(), threading.Event(), []
    jobs = Jobs("m", Limits(max_running=1, max_waiting=5), measurements)

    def named(name):
        def compute(job):
            begun.wait(10)
            order.append(name)
            yield name

        return compute

    async def ask():
        started = [jobs.start(named(f"a{index}"), client="a") for index in range(4)]
        wait = measurements.waiting.labels("m")._value
        while wait.get() > 3:  # the first one runs
            await asyncio.sleep(0.005)
        started += [jobs.start(named(f"b{index}"), client="b") for index in range(2)]
        # The queue is full: who has the most in it makes room for who has less.
        started.append(jobs.start(named("c0"), client="c"))
        with pytest.raises(ApiError, match="busy with other requests"):
            jobs.start(named("a4"), client="a")
        started[4].cancel()
        begun.set()
        for index in (0, 1, 2, 5, 6):
            await started[index].result()
        with pytest.raises(ApiError, match="requests of other clients"):
            await started[3].result()

    asyncio.run(ask())
    jobs.close()
    assert order == ["a0", "a1", "b1", "c0", "a2"] and not len(jobs)
    assert measurements.waiting.labels("m")._value.get() == 0


def test_keys_with_names(tmp_path, monkeypatch):
    seen, start = [], Jobs.start

    def noted(jobs, compute, rows, client):
        seen.append(client)
        return start(jobs, compute, rows, client)

    monkeypatch.setattr(Jobs, "start", noted)
    keys = tmp_path / "keys"
    keys.write_text("# clients\nalice = one\n\nrabbit=two\n")
    with running(sources("m"), api_keys=read_keys(f"@{keys}"), hosts=None) as server:
        for key in ("one", "two"):
            assert server.client(api_key=key).completions.create(model="m", prompt="a", max_tokens=1).choices
        for key in ("three", "alice"):
            with pytest.raises(openai.AuthenticationError):
                server.client(api_key=key).models.list()
    with running(sources("m")) as server:
        assert text(server, "m")
    assert seen == ["alice", "rabbit", "127.0.0.1"]


@pytest.mark.parametrize(
    "given", ["", "alice", "alice=", "=sesame", "alice=ö", "alice=sesame,alice=two", "alice=sesame,rabbit=sesame"]
)
def test_wrong_keys(given):
    with pytest.raises(InputError) as refusal:
        read_keys(given)
    assert "sesame" not in str(refusal.value)
    with pytest.raises(SourceError, match="cannot be read"):
        read_keys("@/nowhere/keys")
