from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kerasformer import telemetry
from kerasformer.process import silence_native_logs
from tests import grids, shared
from tests.reporting import ProcessorTime, Reporting

TESTS = Path(__file__).parent

# Before any test imports Keras: ~/.keras/keras.json of the machine must not choose the backend.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Tests import ONNX Runtime by themselves, and so do programs that they start.
telemetry.switch_off()
# The installation compiles nothing: without compiled files, each process would compile TensorFlow again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Workers share the cores; more threads for tiny models would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ.setdefault(name, "1")
# LiteRT logs when the process ends, after the summary of the tests.
atexit.register(silence_native_logs)


def pytest_configure(config: pytest.Config) -> None:
    """Creates the folder that workers share, in the process that starts them."""
    config.pluginmanager.register(ProcessorTime())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporting(config))
    if shared.FOLDER not in os.environ:
        os.environ[shared.FOLDER] = folder = tempfile.mkdtemp(prefix="kerasformer-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop(shared.FOLDER))
    elif not os.access(os.environ[shared.FOLDER], os.W_OK):
        raise pytest.UsageError(
            f"{shared.FOLDER} must name a folder for the bundles of the tests. Received: {os.environ[shared.FOLDER]}"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives the tests of grid.txt and release.txt their marks, before tests are selected by marks."""
    unused = [
        line
        for mark in (pytest.mark.grid, pytest.mark.release)
        for line in grids.mark_listed(
            items, (TESTS / f"{mark.name}.txt").read_text(encoding="utf-8").splitlines(), mark
        )
    ]
    whole = [TESTS] == [Path(config.invocation_params.dir, path).resolve() for path in config.args]
    # tests/core/test_release.py fails for them: an error here would end the workers without a word.
    config.stash[grids.UNUSED] = unused if whole else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Relieves the garbage collector, which otherwise visits the millions of objects of TensorFlow again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Item | None) -> Iterator[None]:
    """Frees the memory of a file's tests after the last of them."""
    yield
    if nextitem is None or nextitem.path != item.path:
        release(item.module)


def release(module: ModuleType) -> None:
    """Clears the caches that a test file defines, and those of shared models, and returns the memory to the system.

    Architectures that the file has registered are forgotten.
    Models and their graphs are full of cycles, so that they stay in memory until the garbage collector runs.
    """
    for name in {module.__name__, "tests.core.export.text_models"} & set(sys.modules):
        for value in vars(sys.modules[name]).values():
            if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == name:
                value.cache_clear()
    for name, registry in {"models.registry": "_registered", "bundle.architectures": "_added"}.items():
        if known := sys.modules.get(f"kerasformer.{name}"):
            getattr(known, registry).clear()
    gc.collect()
    # What remains, such as the models of session fixtures, stays: without this, each file visits all of it again.
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each worker a half of the tests, and one that has finished a part of what is left.

    Most tests of a file stay on one worker, because they share models and exports.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
