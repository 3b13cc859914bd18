from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kerasformer import zoo
from tests.zoo.cases import Case
from tests.zoo.harness import Loaded

logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[Case, str]], Loaded]:
    """Creates, saves and loads the reference of a case and task, once for all tests."""
    made: dict[tuple[str, str], Loaded] = {}

    def load(row: tuple[Case, str]) -> Loaded:
        case, task = row
        if (case.name, task) not in made:
            folder = tmp_path_factory.mktemp(f"{case}-{task}")
            reference = case.reference(task)
            reference.save_pretrained(folder)
            made[case.name, task] = Loaded(case, task, folder, reference, zoo.load(folder))
        return made[case.name, task]

    return load
