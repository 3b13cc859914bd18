"""Ray: batches over clusters, training on several machines, and a deployment of the server on Ray Serve.

`ColumnModel` is what `ray.data.Dataset.map_batches` calls. Nothing here starts Ray on import.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kerasformer.basics.arguments import check, integer
from kerasformer.errors import InputError, KerasformerError
from kerasformer.extras import require
from kerasformer.tools.integrations.blocks import BlockWriter, Figures, Job, Runner
from kerasformer.tools.integrations.columns import ColumnModel
from kerasformer.tools.server.options import ServerOptions

__all__ = ["ColumnModel", "Worker", "cluster", "deployment", "join_workers", "on_ray"]

_STORE = 100 * 2**20
"""Bytes of the object store of a Ray that is started here, through which hardly anything passes."""


@contextmanager
def cluster(address: str | None, cores: int) -> Iterator[Any]:
    """Connects to a cluster, or starts one on this machine; the one that was started is shut down at the end.

    A Ray to which this process is connected already is used as it is. The one that is started has no dashboard, prints
    no logs of workers and reports no statistics of usage. Ray prints notices of its own, such as of a killed worker.

    Args:
        address: Address of a cluster, such as `"auto"` or `"ray://head:10001"`; `None` to start one.
        cores: Cores that it needs.
    Raises:
        InputError: it cannot be reached, or has fewer cores.
        MissingExtraError: Ray is not installed.
    """
    ray = require("ray", "ray")
    if started := not ray.is_initialized():
        local = {"num_cpus": cores, "object_store_memory": _STORE, "include_dashboard": False}
        statistics = os.environ.get("RAY_USAGE_STATS_ENABLED")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray has no argument for it
        try:
            options = local if address is None else {}
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"Ray cannot be reached or started: {error}. Received: address={address!r}") from error
        finally:
            del os.environ["RAY_USAGE_STATS_ENABLED"]
            os.environ.update({} if statistics is None else {"RAY_USAGE_STATS_ENABLED": statistics})
    try:
        available = ray.cluster_resources().get("CPU", 0)
        if available < cores:
            raise InputError(f"The workers need {cores} cores. Received: a cluster with {available:g}. Pass fewer")
        yield ray
    finally:
        if started:
            ray.shutdown()


def on_ray(workers: int = 1, address: str | None = None) -> Runner:
    """Returns what `kerasformer.tools.integrations.batch.batch` calls to run its jobs on Ray.

    Ray starts a worker again that was killed, and repeats its job.

    Args:
        workers: Number of workers, each of which opens the model; with `num_threads` in its settings, so many cores
            are reserved for each.
        address: Address of a cluster; `None` to start one on this machine. Its machines need this package, the source,
            and the folders of input and output at the same paths.
    """

    def run(writer: BlockWriter, jobs: Sequence[Job]) -> Iterator[Figures]:
        check("workers", workers, integer(1))
        cores = int(writer.model.settings.get("num_threads") or 1)
        count = min(workers, len(jobs))
        with cluster(address, cores * count) as ray:
            pool = require("ray.util", "ray").ActorPool
            kind = ray.remote(num_cpus=cores, max_restarts=-1, max_task_retries=-1)(BlockWriter)
            actors = [kind.remote(writer.model, writer.folder) for _ in range(count)]
            try:
                yield from pool(actors).map_unordered(lambda actor, job: actor.write.remote(job), jobs)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, KerasformerError):
                    raise cause from error
                raise InputError(
                    f"A worker failed: {cause or error}. Finished blocks are kept: run it again to continue"
                ) from error
            finally:
                for actor in actors:
                    ray.kill(actor)

    return run


@dataclass(frozen=True)
class Worker:
    """One of the workers of Ray Train that train a model together.

    Attributes:
        rank: Its number, from 0.
        count: Number of workers.
    """

    rank: int
    count: int

    def share(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Returns the rows that this worker trains on: every `count`-th, and as many as every other worker has."""
        return rows[self.rank : len(rows) // self.count * self.count : self.count]


def join_workers() -> Worker:
    """Joins the workers of Ray Train, so that `kf.training.distribute` divides batches among the devices of all.

    It is the first call of the function that Ray's `JaxTrainer` runs in each worker, before anything is computed.
    The workers have the same random numbers; `keras.utils.set_random_seed` after it chooses which.

    Raises:
        InputError: the backend of Keras is not JAX, or this is not a worker of Ray Train.
    """
    keras, jax, train = require("keras", "jax"), require("jax", "jax"), require("ray.train", "ray")
    if keras.backend.backend() != "jax":
        raise InputError(
            "Keras trains on several machines with JAX alone. Pass worker_runtime_env={'env_vars': {'KERAS_BACKEND': "
            f"'jax'}}}} to RunConfig. Received: {keras.backend.backend()}"
        )
    try:
        context = train.get_context()
    except RuntimeError as error:
        raise InputError(
            "join_workers is called by a worker of Ray Train. Received: a call outside of one. Call it in the function "
            "that is passed to JaxTrainer"
        ) from error
    worker = Worker(context.get_world_rank(), context.get_world_size())
    is_first = worker.rank == 0
    broadcast = require("ray.train.collective", "ray").broadcast_from_rank_zero
    if not jax.distributed.is_initialized():  # JaxTrainer does it on TPUs and GPUs
        address = f"{require('ray.util', 'ray').get_node_ip_address()}:{_free_port()}" if is_first else None
        keras.distribution.initialize(broadcast(address), worker.count, worker.rank)
    seed = broadcast(secrets.randbits(31) if is_first else None)
    keras.utils.set_random_seed(seed)  # new weights and dropout must be the same in all workers
    return worker


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def deployment(
    *models: str | os.PathLike[str], options: ServerOptions | None = None, name: str = "kerasformer", **settings: Any
) -> Any:
    """Returns the server of `kerasformer serve` as an application of Ray Serve, for `ray.serve.run`.

        serve.run(deployment("out", num_replicas=2))
        serve.run(deployment("out", autoscaling_config={"min_replicas": 1, "max_replicas": 8}))

    Args:
        models: Bundles, checkpoint folders, presets and hub ids; `NAME=SOURCE` sets the name. Each replica opens them.
        options: Limits and key of each replica; its address is that of Ray Serve.
        name: Name of the deployment.
        settings: Arguments of `ray.serve.deployment`, such as `num_replicas`, `autoscaling_config` and
            `ray_actor_options`. By default, a replica has at most twice as many requests as it computes at a time.
    Raises:
        InputError: there are no models.
        MissingExtraError: Ray Serve or the server is not installed.
    """
    chosen, sources = options or ServerOptions(), [os.fspath(model) for model in models]
    if not sources:
        raise InputError("A server needs at least one model. Received: none")
    serve = require("ray.serve", "ray")
    require("prometheus_client", "serve")

    def build() -> Any:
        from kerasformer.tools.server.running import application_of

        return application_of(sources, chosen)[0]

    @serve.ingress(build)
    class Server:
        pass

    return serve.deployment(Server, name=name, **{"max_ongoing_requests": 2 * chosen.max_running, **settings}).bind()
