"""Training on two virtual devices is training on one; each backend has its number of devices from its start."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.tools.integrations.ray import Worker
from kerasformer.tools.training.distribution import distribute
from kerasformer.tools.training.optimizers import optimizer
from tests.extras import need

_PROGRAM = """
import json, os, sys
if os.environ["KERAS_BACKEND"] == "jax":
    sys.modules["tensorflow"] = None  # as if it were not installed, which also saves the seconds of its import
import keras
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.tools.training.test_distribution import curve, distribute
print(json.dumps([type(distribute()).__name__, *curve(json.loads(sys.argv[1]))]))
"""


ALONE = Worker(0, 1)


class Batches(keras.utils.PyDataset):
    """Two batches of random texts, of which a worker has its share."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.ids = np.stack([worker.share(ids) for ids in np.random.default_rng(0).integers(1, 31, (2, 8, 6))])
        self.labels = worker.share(np.arange(8) // 3 % 2)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int):
        return {"input_ids": self.ids[index]}, self.labels


def curve(way, worker=ALONE):
    """Losses of a training, and where the matrices of the model are."""
    keras.utils.set_random_seed(0)
    with contextlib.nullcontext() if way is None else distribute(**way).scope():
        # The size of the vocabulary is odd: it cannot be divided.
        sizes = {"vocab_size": 31, "hidden_dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 12}
        model = zoo.build("bert", "text-classification", hidden_dropout=0.0, attention_dropout=0.0, **sizes)
        random = np.random.default_rng(0)
        for variable in model.trainable_variables:  # the random initial values depend on the devices
            variable.assign(random.normal(0, 0.3, variable.shape))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(model, 2e-2, steps=6, layer_decay=0.9), loss, run_eagerly=way is None)
        history = model.fit(Batches(worker), epochs=3, shuffle=False, verbose=0).history
    layer, tokens = model.backbone.encoder.layers[0], model.backbone.embeddings.tokens
    kernels = [layer.attention.query.kernel, layer.attention.output_dense.kernel, tokens.embeddings]
    return history["loss"], [str(getattr(kernel.value, "sharding", None)) for kernel in kernels]


@pytest.fixture(scope="module")
def alone():
    """The curve on one device, of this backend; the initial weights are those of all backends."""
    losses, _ = curve(None)
    assert len(set(losses)) == 3
    return losses


@pytest.mark.grid
@pytest.mark.parametrize(
    "backend, way, kind",
    [
        pytest.param("jax", {"data": 2, "model": 2}, "DataParallel", id="jax"),
        pytest.param("tensorflow", {"data": 2}, "MirroredStrategy", id="tensorflow", marks=pytest.mark.release),
    ],
)
def test_the_curve_is_that_of_one_device(alone, backend, way, kind):
    need(backend)
    environment = {**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(way)],
        cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    default, losses, places = json.loads(result.stdout.splitlines()[-1])
    assert default == kind
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    if backend == "jax":
        query, output, tokens = places
        assert "(None, 'model')" in query and "('model', None)" in output
        assert "(None, None)" in tokens  # 31 rows cannot be divided


@pytest.mark.parametrize(
    "way, message",
    [
        ({"data": 99}, "Received: data=99, model=1"),
        ({"model": 2}, "needs the backend JAX"),
        ({"data": 0}, "Received: data=0"),
    ],
)
def test_devices_that_there_are_not(way, message):
    with pytest.raises(InputError, match=message):
        distribute(**way)
