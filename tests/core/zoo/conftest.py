from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerasformer.bundle import architectures
from kerasformer.models import registry
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import Loaded
from tests.core.zoo.cases import BERT_CASE, GPT2_CASE

logging.getLogger("transformers").setLevel(logging.ERROR)


class Models:
    """The references of cases and tasks, with the models loaded from them; each is created once."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[tuple[str, str], Loaded] = {}

    def __call__(self, row: tuple[Case, str]) -> Loaded:
        case, task = row
        if (case.name, task) not in self._made:
            self._made[case.name, task] = Loaded.of(case, task, self._factory.mktemp(f"{case}-{task}"))
        return self._made[case.name, task]

    def free_graphs(self) -> None:
        """Deletes the compiled functions of the models, which take much more memory than the models."""
        for made in self._made.values():
            vars(made.model).pop("_compiled_functions", None)


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Creates, saves and loads the reference of a case and task, once for all tests."""
    return Models(tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def _without_graphs(loaded: Models) -> Iterator[None]:
    yield
    loaded.free_graphs()


@pytest.fixture
def bert(loaded: Models) -> Loaded:
    return loaded((BERT_CASE, "text-classification"))


@pytest.fixture
def gpt2(loaded: Models) -> Loaded:
    return loaded((GPT2_CASE, "text-generation"))


@pytest.fixture
def folder(bert: Loaded, tmp_path: Path) -> Path:
    """A copy of a checkpoint, to be modified."""
    return Path(shutil.copytree(bert.folder, tmp_path / "checkpoint"))


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No architecture of another package is known, and those that the test registers are forgotten."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(architectures, "_added", {})
