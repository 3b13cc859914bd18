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
    "export/test_export.py": 1080,
    "foreign/test_gguf.py": 450,
    "zoo/test_parity.py": 250,
    "foreign/test_litert_web.py": 250,
    "foreign/test_saved_model.py": 240,
    "zoo/test_generation.py": 220,
    "foreign/test_transformers_js.py": 210,
    "foreign/test_optimum.py": 200,
    "zoo/test_round_trip.py": 160,
    "foreign/test_mediapipe.py": 140,
    "zoo/test_pruning.py": 130,
    "web/test_page.py": 110,
    "foreign/test_litert_lm.py": 110,
    "foreign/test_genai.py": 100,
    "engines/test_steps.py": 90,
    "zoo/test_check_architecture.py": 90,
    "web/test_library.py": 80,
    "export/quantization/test_input_scales.py": 80,
    "interop/test_keras_hub.py": 70,
    "export/formats/test_onnx_portable.py": 70,
    "foreign/test_litert_lm_embeddings.py": 70,
    "zoo/test_older_checkpoints.py": 70,
    "export/formats/test_onnx_recipes.py": 70,
    "test_saved_models.py": 60,
    "cli/test_demo.py": 60,
    "export/test_long_texts.py": 60,
    "training/test_shrinking.py": 60,
    "zoo/test_loading.py": 60,
    "export/formats/test_saved_model.py": 60,
    "web/test_choice.py": 50,
    "web/test_page_engines.py": 50,
    "export/formats/test_tflite_recipes.py": 50,
    "zoo/test_wrong_weights.py": 50,
    "export/quantization/test_auto.py": 50,
    "test_mobile_docs.py": 50,
    "integrations/test_ray.py": 50,
    "engines/test_methods.py": 40,
    "cli/test_cli.py": 40,
    "zoo/test_adapters.py": 40,
    "foreign/test_own_runtimes.py": 40,
    "export/formats/test_described_attention.py": 40,
    "export/formats/test_tflite_inventory.py": 40,
    "web/test_chat.py": 40,
    "export/quantization/test_sensitivity.py": 40,
    "bench/test_bench.py": 40,
    "test_packaging.py": 40,
    "export/formats/test_to_onnx.py": 40,
    "engines/test_adapters.py": 30,
    "export/test_divergence_limits.py": 30,
    "export/formats/test_gpu_graph.py": 30,
    "engines/test_saved_states.py": 30,
    "examples/test_pages.py": 45,
    "examples/test_notebooks.py": 90,
    "training/test_distribution.py": 40,
    "training/test_resume.py": 30,
    "test_training_page.py": 30,
    "test_claims.py": 30,
    "evaluation/test_perplexity.py": 30,
    "export/quantization/test_quantization_aware.py": 30,
    "training/test_distillation.py": 30,
    "training/test_pruning.py": 30,
    "training/test_recipe.py": 40,
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
