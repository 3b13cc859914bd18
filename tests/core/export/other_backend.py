"""Exports of a Keras that computes on JAX: TensorFlow's part is done by a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import shared
from tests.extras import need

_PROGRAM = """
import sys
from pathlib import Path
import keras, kerasformer as kf
from tests.core.export.text_models import ROWS
assert keras.backend.backend() == "jax"
model, folder = ROWS["bert-text-classification"].model(), Path(sys.argv[1])
folder.mkdir()
stages = []
tflite = kf.export.export(
    model, folder / "tflite", "litert", "int8", lengths=(16, 32), texts=["Rain.", "No\\nsea"],
    progress=lambda stage, done, total: stages.append(stage),
)
stages = list(dict.fromkeys(stages))
assert stages == ["answer with Keras", "calibrate", "trace and convert", "write weights", "verify"], stages
texts = ["The train to Vienna leaves.", "What a waste!"]
ours, theirs = kf.pipeline(model)(texts, top_k=None), kf.pipeline(tflite)(texts, top_k=None)
assert [row[0]["label"] for row in ours] == [row[0]["label"] for row in theirs], (ours, theirs)
kf.export.export(model, folder / "saved-model", "saved-model", tokenizer="in-graph")
"""


def exported_on_jax(format: str) -> Path:
    """A classifier's bundle in int8 (`"tflite"`), or with its tokenizer in the graph (`"saved-model"`)."""
    need("jax")
    need("tensorflow_text")

    def export(folder: Path) -> None:
        # XLA compiles each operation for a few calls: to optimize it takes longer than it saves.
        backend = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        command, environment = [sys.executable, "-c", _PROGRAM, str(folder)], {**os.environ, **backend}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    return shared.once("exported-on-jax", export) / format
