"""Ray: data sets, workers that are killed, and a deployment with a replica that dies."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest

from kerasformer.errors import InputError
from kerasformer.tools.integrations.batch import batch
from kerasformer.tools.integrations.columns import ColumnModel
from kerasformer.tools.integrations.ray import Worker, cluster, deployment, join_workers, on_ray
from tests.extras import need
from tests.tools.integrations import models
from tests.tools.integrations.deadly import Deadly
from tests.tools.integrations.models import read_lines, rows, write_lines
from tests.tools.server.servers import wait_until

openai, ray = need("openai"), need("ray")


@pytest.fixture(scope="module")
def local():
    with cluster(None, 2) as started:
        yield started
    assert not ray.is_initialized()


def descendants(parent: int) -> Iterator[tuple[int, str]]:
    """Yields the processes below one, with their names."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            children.setdefault(int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]), []).append(
                int(folder.name)
            )
        except OSError:
            continue  # it has ended
    waiting = [parent]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child)
            try:
                yield child, Path(f"/proc/{child}/cmdline").read_text().strip("\0")
            except OSError:
                continue


def test_nothing_starts_ray_by_itself():
    code = "import sys, kerasformer.tools.integrations.ray, kerasformer.cli; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.grid
def test_a_row_that_kills_its_worker_is_kept_aside(local, tmp_path):
    content = rows(20)
    content[13]["text"] = "deadly"
    inputs = write_lines(tmp_path / "in.jsonl", content)
    report = batch(Deadly(models.classifier()), inputs, tmp_path / "out", on_ray(1), block_rows=10)
    assert (report.total.rows, report.total.failed) == (20, 1)
    assert json.loads(report.errors.read_text())["input"]["id"] == 13
    assert [row["id"] for row in read_lines(tmp_path / "out")] == [number for number in range(20) if number != 13]


@pytest.mark.release
def test_more_workers_than_cores_are_refused(local, tmp_path):
    inputs = write_lines(tmp_path / "in.jsonl", rows(3))
    with pytest.raises(InputError, match="The workers need 3 cores. Received: a cluster with 2"):
        batch(ColumnModel(models.classifier()), inputs, tmp_path / "out", on_ray(3), block_rows=1)


def test_a_cluster_that_is_not_there_is_named(monkeypatch):
    def init(address, **options):
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        raise ConnectionError("timed out")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    with pytest.raises(InputError, match="reached or started: timed out. Received: address='far'"), cluster("far", 1):
        pass
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ


def command(*arguments: object) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "kerasformer.tools.integrations.batch", *map(str, arguments)]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.grid
def test_nothing_is_lost_or_doubled_when_workers_are_killed(tmp_path):
    kills, draw, blocks = 3, random.Random(3), 60
    content = rows(50 * blocks)
    content[77]["text"] = None
    arguments = [models.classifier(), write_lines(tmp_path / "in.jsonl", content), tmp_path / "out"]
    options = ["--workers", 2, "--block-rows", 50, "--num-threads", 1, "--json"]
    killed: set[int] = set()
    running = command(*arguments, *options)
    done, end = tmp_path / "out/_run", time.monotonic() + 60 * kills
    while running.poll() is None and len(killed) < kills and time.monotonic() < end:
        # A worker that has begun a block, or nothing would be interrupted.
        names = {pid: name for pid, name in descendants(running.pid) if name.startswith("ray::BlockWriter.write")}
        new = [pid for pid in names if pid not in killed]
        if new and list(done.glob("*.attempts")):
            time.sleep(draw.uniform(0, 0.2))
            killed.add(victim := draw.choice(new))
            os.kill(victim, signal.SIGKILL)
        time.sleep(0.02)
    running.kill()  # and the command itself
    running.communicate()
    running = command(*arguments, *options)
    out, error = running.communicate(timeout=600)
    assert running.returncode == 0, error
    report = json.loads(out)
    assert len(killed) == kills
    assert (report["rows"], report["failed"], report["blocks"]) == (len(content), 1, blocks)
    read = read_lines(tmp_path / "out")
    assert [row["id"] for row in read] == [number for number in range(len(content)) if number != 77]
    expected = ColumnModel(models.classifier())({"text": [row["text"] for row in read]})
    assert [row["result_label"] for row in read] == expected["result_label"]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.startswith(".")]


def worker_of_a_training(config):
    """Trains the model of the other tests of distribution on the share of this worker, and keeps its curve."""
    sys.modules["tensorflow"] = None  # which saves the seconds of its import
    worker = join_workers()
    from tests.tools.training.test_distribution import curve

    losses, _ = curve({}, worker)
    Path(config["out"], f"{worker.rank}.json").write_text(json.dumps(losses))


# Ray 2.60 sets options of its data sets that it deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
@pytest.mark.release  # test_distribution.py trains on several devices
def test_two_workers_train_one_model(local, tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxTrainer

    from tests.tools.training.test_distribution import curve

    root = str(Path(__file__).parents[3])
    variables = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": root}
    JaxTrainer(
        worker_of_a_training,
        train_loop_config={"out": str(tmp_path)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), worker_runtime_env={"env_vars": variables}),
    ).fit()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    np.testing.assert_allclose(first, curve(None)[0], rtol=2e-5)


def test_workers_have_equal_shares():
    shares = [Worker(rank, 3).share(range(11)) for rank in range(3)]
    assert [list(share) for share in shares] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="is about other backends")
def test_joining_needs_jax():
    with pytest.raises(InputError, match="with JAX alone.*'KERAS_BACKEND': 'jax'.*Received: tensorflow"):
        join_workers()


def replicas() -> set[int]:
    return {pid for pid, name in descendants(os.getpid()) if name.startswith("ray::ServeReplica")}


# Ray Serve 2.60 declares its settings with an older form of pydantic.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.grid
def test_a_deployment_answers_and_survives_the_death_of_a_replica(local):
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        settings = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}, "health_check_period_s": 1}
        serve.run(deployment(f"tiny={models.writer()}", **settings))
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=8)
        question = {"model": "tiny", "prompt": "a warm film", "max_tokens": 5, "temperature": 0}
        text = client.completions.create(**question).choices[0].text
        pieces = [each.choices[0].text for each in client.completions.create(**question, stream=True)]
        assert "".join(pieces) == text and len(pieces) > 1
        wait_until(lambda: len(replicas()) == 2, 60)
        before = replicas()
        os.kill(min(before), signal.SIGKILL)
        assert [client.completions.create(**question).choices[0].text for _ in range(10)] == [text] * 10
        wait_until(lambda: len(replicas()) == 2 and replicas() != before, 120)
        assert client.completions.create(**question).choices[0].text == text
    finally:
        serve.shutdown()
