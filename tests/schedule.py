"""The order in which workers receive the test files: long ones first, so that none runs alone at the end.

The tests of a file stay on one worker, because they share models and exports. Of a file that takes longer than
`LONGEST`, workers share parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from xdist.scheduler import LoadFileScheduling

LONGEST = 300
"""Seconds above which a file is divided among workers."""
PART = 150
"""Seconds of each part of a divided file, about."""
# Seconds in `.ci/run` on two cores (`--durations`, `--junitxml`), of the files above half a minute.
SECONDS = {
    "export/test_export.py": 840,
    "zoo/test_parity.py": 370,
    "foreign/test_litert_web.py": 320,
    "foreign/test_saved_model.py": 280,
    "zoo/test_generation.py": 220,
    "foreign/test_transformers_js.py": 210,
    "engines/test_steps.py": 180,
    "integrations/test_ray.py": 130,
    "web/test_page.py": 130,
    "training/test_shrinking.py": 120,
    "foreign/test_litert_lm.py": 120,
    "foreign/test_mediapipe.py": 110,
    "interpretability/test_explainer.py": 100,
    "zoo/test_check_architecture.py": 100,
    "foreign/test_optimum.py": 100,
    "web/test_library.py": 90,
    "zoo/test_round_trip.py": 90,
    "examples/test_notebooks.py": 90,
    "foreign/test_genai.py": 80,
    "export/formats/test_tflite_recipes.py": 70,
    "mobile/test_kotlin.py": 70,
    "export/formats/test_onnx_portable.py": 70,
    "export/formats/test_onnx_recipes.py": 60,
    "test_mobile_docs.py": 60,
    "integrations/test_lm_eval.py": 60,
    "export/quantization/test_input_scales.py": 60,
    "zoo/test_older_checkpoints.py": 60,
    "export/test_long_texts.py": 60,
    "foreign/test_litert_lm_embeddings.py": 50,
    "engines/test_saved_states.py": 50,
    "export/formats/test_saved_model.py": 50,
    "test_saved_models.py": 50,
    "interop/test_keras_hub.py": 50,
    "mobile/test_cpp.py": 50,
    "foreign/test_own_runtimes.py": 50,
    "zoo/test_adapters.py": 50,
    "export/quantization/test_sensitivity.py": 50,
    "web/test_choice.py": 40,
    "export/quantization/test_auto.py": 40,
    "web/test_chat.py": 40,
    "training/test_recipe.py": 40,
    "web/test_page_engines.py": 40,
    "export/formats/test_described_attention.py": 40,
    "zoo/test_pruning.py": 40,
    "interpretability/test_attention.py": 40,
    "export/test_rolling_caches.py": 30,
    "zoo/test_lfm2.py": 30,
    "test_packaging.py": 30,
    "export/formats/test_gpu_graph.py": 30,
    "export/test_divergence_limits.py": 30,
    "training/test_distribution.py": 30,
    "cli/test_cli.py": 30,
    "generation/test_constraints.py": 30,
    "zoo/test_loading.py": 30,
    "engines/test_methods.py": 30,
}


def seconds(unit: str) -> float:
    """The estimated seconds of a file or of a part of one."""
    file, _, _ = unit.partition("#")
    total = SECONDS.get(file.removeprefix("tests/"), 0)
    return total / parts(total)


def parts(total: float) -> int:
    """How many parts a file is divided into that takes so many seconds."""
    return ceil(total / PART) if total > LONGEST else 1


def units(tests: Sequence[str]) -> dict[str, str]:
    """Returns for each test, by its id, what a worker receives with it: its file, or a part of it, `file#index`."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    assigned = {}
    for file, members in files.items():
        count = parts(SECONDS.get(file.removeprefix("tests/"), 0))
        for index, test in enumerate(members):
            assigned[test] = f"{file}#{index * count // len(members)}" if count > 1 else file
    return assigned


class LongFilesFirst(LoadFileScheduling):
    """Gives each worker that is free the longest of the files that are left."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.units = units(collection)
        super().add_node_collection(node, collection)

    def _split_scope(self, nodeid: str) -> str:
        return self.units[nodeid]

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda unit: (seconds(unit), len(self.workqueue[unit])))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
