"""Runtimes in which bundles were tested, from `tested.json`, which is generated from the tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tested:
    """A runtime and the bundles whose answers were tested against Keras in it.

    Attributes:
        name: Value of `export(target=…)`, or `litert` or `onnxruntime`, which need no target.
        option: Options of `kerasformer export`, such as `--target mediapipe`.
        summary: Description of the runtime.
        version: Tested version of the runtime.
        bundles: Names of the tested recipes by task and model type.
    """

    name: str
    option: str
    summary: str
    version: str
    bundles: dict[str, dict[str, list[str]]]

    def covers(self, task: str, model_type: str) -> bool:
        """Returns whether a bundle of this task and model type was tested, with any recipe."""
        return model_type in self.bundles.get(task, {})


def runtimes() -> dict[str, Tested]:
    """Returns all runtimes by name, without importing Keras."""
    rows = json.loads(Path(__file__).with_name("tested.json").read_text(encoding="utf-8"))
    return {row["name"]: Tested(**row) for row in rows}
