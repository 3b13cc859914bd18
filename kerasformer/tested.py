"""In which runtimes bundles were tested: what `tested.json` says, which is written from the tests themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tested:
    """A runtime, with the bundles whose answers a test has compared with those of Keras there.

    Attributes:
        name: As `export(target=…)` takes it, but for `litert` and `onnxruntime`, which need no target.
        option: What `kerasformer export` is told, such as `--target mediapipe`.
        summary: What the runtime is.
        version: Which one was tested.
        bundles: Names of recipes by model type, by task.
    """

    name: str
    option: str
    summary: str
    version: str
    bundles: dict[str, dict[str, list[str]]]

    def covers(self, task: str, model_type: str) -> bool:
        """Whether a test ran such a bundle, with any recipe."""
        return model_type in self.bundles.get(task, {})


def runtimes() -> dict[str, Tested]:
    """All runtimes by name; no Keras is needed to know them."""
    rows = json.loads(Path(__file__).with_name("tested.json").read_text(encoding="utf-8"))
    return {row["name"]: Tested(**row) for row in rows}
