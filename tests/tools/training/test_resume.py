"""A training that is killed and continued is the training without interruption."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import CheckpointError
from kerasformer.tools.training.callbacks import SavePretrained
from kerasformer.tools.training.optimizers import optimizer
from kerasformer.tools.training.resume import FILE, Resume

ROOT = Path(__file__).parents[3]
EPOCHS = 3


class Batches(keras.utils.PyDataset):
    """Six batches of random texts in an order of their own in each epoch."""

    batch_size, seed = 4, 0

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.ids, self.labels = random.integers(1, 31, (24, 7)), random.integers(0, 2, 24)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.ids) // self.batch_size

    def __getitem__(self, index: int):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.ids))
        rows = order[index * self.batch_size :][: self.batch_size]
        return {"input_ids": self.ids[rows]}, self.labels[rows]

    def on_epoch_end(self) -> None:
        self.epoch += 1


class Kill(keras.callbacks.Callback):
    """Kills the process after a batch; both are counted from 0."""

    def __init__(self, epoch: int, batch: int) -> None:
        super().__init__()
        self.place, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.place:
            os.kill(os.getpid(), signal.SIGKILL)


def model_to_train(learning_rate=1e-2, **settings):
    keras.utils.set_random_seed(0)
    sizes = {"vocab_size": 31, "hidden_dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 12}
    model = zoo.build("bert", "text-classification", hidden_dropout=0.3, **{**sizes, **settings})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(model, learning_rate, steps=6 * EPOCHS, layer_decay=0.9), loss, metrics=["accuracy"])
    return model


def train(folder, kill=None, epochs=(EPOCHS,), model=None):
    """Trains in the folder, in one call of `fit` or several; returns the last history, and the final weights."""
    model, data = model or model_to_train(), Batches()
    best = SavePretrained(Path(folder) / "best", "loss")
    resume = Resume(Path(folder) / "state", every=2, dataset=data, callbacks=[best])
    callbacks = [best, *([Kill(*kill)] if kill else []), resume]
    for count in epochs:
        history = model.fit(data, epochs=count, callbacks=callbacks, verbose=0)
    return {**history.history, "epoch": history.epoch, "best": best.best}, [np.asarray(w) for w in model.variables]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Folder of a training that killed itself in another process, after the fifth batch of the second epoch."""
    folder = tmp_path_factory.mktemp("killed")
    program = f"from tests.tools.training import test_resume; test_resume.train({str(folder)!r}, (1, 4))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    return folder / "state"


@pytest.mark.jax
def test_the_curve_is_that_of_a_training_without_kill(state, tmp_path):
    shutil.copytree(state.parent, tmp_path / "killed")
    model = model_to_train()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    initial = [np.asarray(variable) for variable in variables]
    # Then the training ends, goes on for another epoch, and has nothing left to do.
    history, weights = train(tmp_path / "killed", epochs=(2, 3, 3), model=model)
    for variable, value in zip(variables, initial, strict=True):  # the same model begins again: Keras compiled it
        variable.assign(value)
    expected_history, expected_weights = train(tmp_path / "unbroken", model=model)
    assert history == expected_history
    assert history["epoch"] == [0, 1, 2]
    for ours, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    "change, received",
    [
        ({"learning_rate": 2e-2}, r"compile\.optimizer\..*learning_rate was 0\.01 and is 0\.02"),
        ({"hidden_dim": 12}, r"model\.config\.hidden_size was 8 and is 12"),
    ],
)
def test_the_state_of_another_training_is_refused(state, change, received):
    model = model_to_train(**change)
    with pytest.raises(CheckpointError, match=f"state of another training.*{received}"):
        model.fit(Batches(), callbacks=[Resume(state, callbacks=[SavePretrained("best", "loss")])], verbose=0)


def test_frozen_layers_and_recipes_are_compared(state, tmp_path):
    model = model_to_train()
    model.backbone.embeddings.tokens.embeddings.trainable = False
    resume = Resume(state, recipe={"data": "dev.tsv"})
    expected = (
        r"trainable\.backbone/embeddings/tokens/embeddings was True and is False.*recipe.data was None and is 'dev.tsv'"
    )
    with pytest.raises(CheckpointError, match=expected):
        model.fit(Batches(), callbacks=[resume], verbose=0)


def test_a_full_disk_leaves_the_last_state(state, monkeypatch):
    before = (state / FILE).read_bytes()

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    resume = Resume(state)
    resume.set_model(model_to_train())
    resume._identity = {}
    resume.model.history = keras.callbacks.History()
    resume.model.history.epoch = []
    monkeypatch.setattr("kerasformer.tools.training.resume.save_tensors", full)
    with pytest.raises(CheckpointError, match=r"No space left.*Nothing was changed there"):
        resume.on_epoch_end(3, {"loss": 1.0})
    assert (state / FILE).read_bytes() == before
    assert os.listdir(state) == [FILE]


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    resume = Resume(tmp_path)
    resume.set_model(model_to_train())
    resume.model.head.output_dense.bias.assign([np.nan, 0.0])
    resume.on_epoch_end(0, {"loss": 1.0})
    assert not os.listdir(tmp_path)
