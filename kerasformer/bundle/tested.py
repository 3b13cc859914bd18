"""What was tested: formats, runtimes and checkpoints, from `tested.json`, which is generated from the tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Bundles = dict[str, dict[str, list[str]]]
"""Names of the tested recipes by task and model type."""


@dataclass(frozen=True)
class Tested:
    """A runtime and the bundles whose answers were tested against Keras in it.

    Attributes:
        name: Value of `export(target=…)`, or `litert` or `onnxruntime`, which need no target.
        option: Options of `kerasformer export`, such as `--target mediapipe`.
        summary: Description of the runtime.
        version: Tested version of the runtime.
        bundles: Names of the tested recipes by task and model type.
        in_ci: Those of them that each run of CI tests; the others are tested before a release.
        refused: Model types by task and by the reason why their bundles are refused.
    """

    name: str
    option: str
    summary: str
    version: str
    bundles: Bundles
    in_ci: Bundles
    refused: dict[str, dict[str, list[str]]]

    @property
    def is_target(self) -> bool:
        """Whether bundles are exported for it with `target=`."""
        return self.option.startswith("--target ")

    def covers(self, task: str, model_type: str) -> bool:
        """Returns whether a bundle of this task and model type was tested, with any recipe."""
        return model_type in self.bundles.get(task, {})

    def tasks_of(self, model_type: str) -> list[str]:
        """Returns the tasks for which bundles of a model type were tested."""
        return [task for task in self.bundles if self.covers(task, model_type)]

    def refusals_of(self, model_type: str) -> dict[str, list[str]]:
        """Returns the tasks that are refused for a model type, by the reason."""
        found = {why: [task for task in tasks if model_type in tasks[task]] for why, tasks in self.refused.items()}
        return {why: tasks for why, tasks in found.items() if tasks}


def runtimes() -> dict[str, Tested]:
    """Returns all runtimes by name, without importing Keras."""
    return {row["name"]: Tested(**row) for row in _content()["runtimes"]}


def formats() -> dict[str, Bundles]:
    """Returns the bundles whose answers were tested against Keras, by format, in any runtime."""
    found: dict[str, Bundles] = _content()["formats"]
    return found


def checkpoints() -> dict[str, list[str]]:
    """Returns the published checkpoints whose configuration was tested, by model type."""
    found: dict[str, list[str]] = _content()["checkpoints"]
    return found


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("tested.json").read_text(encoding="utf-8"))
    return content
