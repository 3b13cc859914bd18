"""Exact continuation of a training that was killed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer.basics.arguments import check, integer, optional, shown
from kerasformer.errors import CheckpointError
from kerasformer.extras import require
from kerasformer.files.publishing import move_files, staging
from kerasformer.files.reading import local_path, parse_json
from kerasformer.files.tensors import save_tensors
from kerasformer.tools.training.callbacks import Logs, non_finite, with_epoch

FILE = "training.safetensors"
"""File of a checkpoint: all variables, and the rest of the state as JSON in its header."""
_STATE = "state"
_DIFFERENCES = 5
"""Maximum number of differences that an error names."""
_DATASET = ("batch_size", "seed", "shuffle", "files", "rates")
"""Attributes of a data set that determine its batches."""


class Resume(keras.callbacks.Callback):
    """Saves the state of a training, and continues it after a kill as if nothing had happened.

    The state has the weights, the optimizer, the number of the epoch and of the batch in it, the metrics of the epoch
    so far, the random numbers of dropout, the counters of other callbacks and the history. The batches of an epoch that
    the model has seen are skipped. Run the same program again, which builds the same model and compiles it in the same
    way: the history that `fit` returns is that of a training without interruption, to the last digit on the same
    machine.

        keras.utils.set_random_seed(0)  # the first state of dropout
        best = SavePretrained("best")
        model.fit(data, epochs=3, callbacks=[best, Resume("state", every=500, dataset=data, callbacks=[best])])

    The order of the batches must be that of the epoch's number, not of earlier random numbers. That holds for a
    `keras.utils.PyDataset` whose order, if random, is determined by its attribute `epoch`; `fit` itself shuffles its
    batches with Python's `random`, which is seeded by each epoch's number here. Arrays need `shuffle=False`.

    The folder remains when the training ends: `fit` with more epochs and the same optimizer continues it. Put this
    callback last in the list, so that it sees what the others add to the logs.

    Args:
        folder: Folder of the checkpoint.
        every: Number of batches after which the state is saved within an epoch; by default only after each epoch.
        dataset: Data set of the training, if it has an order of its own. Before each epoch, its attribute `epoch` is
            set to the number of the epoch, from 0, if it has one; likewise `start`, if it has one, to the number of the
            first batch that is not skipped, so that it need not read earlier ones.
        callbacks: Other callbacks whose numbers continue, such as `EarlyStopping` or `SavePretrained`.
        recipe: Further settings that must be the same when the training continues.
        seed: Seed of the order in which `fit` shuffles batches.

    Raises:
        InputError: an argument is not accepted.
        CheckpointError: the folder holds the state of another training, which the message compares; or it cannot be
            written, such as on a full disk, which leaves the previous state.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        dataset: Any = None,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        recipe: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.folder = local_path(folder, CheckpointError)
        self.every = check("every", every, optional(integer(1)))
        self.seed = check("seed", seed, integer())
        self.dataset, self.callbacks, self.recipe = dataset, list(callbacks), dict(recipe or {})
        self._loaded: _Checkpoint | None = None
        self._epoch = self._done = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Restores weights, optimizer and epoch, if there is a checkpoint of this training."""
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self._identity = self._describe()
        self._loaded = _Checkpoint.read(self.folder / FILE)
        if self._loaded is not None:
            self._loaded.check(self._identity, self.folder)
            self._loaded.restore("model", self.model.variables)
            self._loaded.restore("optimizer", self.model.optimizer.variables)
            self.model._initial_epoch = self._loaded.state["epoch"]  # as `keras.callbacks.BackupAndRestore` does

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Determines the order of the epoch; in the first one, restores what `fit` has reset meanwhile."""
        self._epoch, self._done = epoch, 0
        random.seed(f"{self.seed}, {epoch}")
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._done = loaded.state["batch"]
            self._continue(loaded)
        for name, value in {"epoch": epoch, "start": self._done}.items():
            if hasattr(self.dataset, name):
                setattr(self.dataset, name, value)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Saves the state after each `every` batches."""
        before, self._done = self._done, max(self._done, batch + 1)
        if self.every and self._done // self.every > before // self.every:
            self._save(self._epoch, self._done, {})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves the state after each epoch."""
        self._save(epoch + 1, 0, logs or {})

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Restores the history of a training that had ended before."""
        if self._loaded is not None:
            self._continue(self._loaded)
            self._loaded = None

    def _continue(self, loaded: _Checkpoint) -> None:
        """Restores the history, the counters of callbacks, and the position in an epoch that has begun."""
        model, state = self.model, loaded.state
        model._initial_epoch = None  # `fit` has read it
        model.history.epoch, model.history.history = state["epochs"], state["history"]
        for callback, numbers in zip(self.callbacks, state["callbacks"], strict=True):
            vars(callback).update(numbers)
        if state["batch"]:
            model.train_function = _skipping(model, loaded)

    def _save(self, epoch: int, batch: int, logs: Logs) -> None:
        """Saves the state, unless a weight is not finite: the last good one remains.

        Args:
            epoch: Number of finished epochs.
            batch: Number of finished batches of the next one.
            logs: Logs of the epoch that has ended, which the history lacks yet.
        """
        model = self.model
        if non_finite(model):
            return
        parts = {"model": model.variables, "optimizer": model.optimizer.variables, "metrics": model.metrics_variables}
        arrays = {
            f"{part}/{index}": np.asarray(keras.ops.convert_to_numpy(variable), order="C")
            for part, variables in parts.items()
            for index, variable in enumerate(variables)
        }
        state = {
            "epoch": epoch,
            "batch": batch,
            "identity": self._identity,
            "epochs": [*model.history.epoch, *([epoch - 1] if logs else [])],
            "history": with_epoch(model.history.history, logs),
            "callbacks": [_numbers(callback) for callback in self.callbacks],
        }
        with staging(self.folder, "state of the training", CheckpointError) as aside:
            save_tensors(arrays, aside / FILE, {_STATE: json.dumps(state)})
            move_files(aside, self.folder)

    def _describe(self) -> dict[str, Any]:
        """Returns what must be the same when the training continues, by name."""
        model = self.model
        described = {
            "backend": keras.backend.backend(),
            "model": {"class": type(model).__name__, **model.get_config()},
            "trainable": {variable.path.partition("/")[2]: variable.trainable for variable in model.weights},
            "compile": model.get_compile_config(),
            "batches": self.params["steps"],
            "dataset": {name: getattr(self.dataset, name, None) for name in _DATASET},
            "recipe": self.recipe,
            "callbacks": [type(callback).__name__ for callback in self.callbacks],
            "seed": self.seed,
        }
        return dict(_leaves(json.loads(json.dumps(described, default=str))))


class _Checkpoint:
    """The content of a file of `Resume`."""

    def __init__(self, path: Path) -> None:
        safetensors = require("safetensors", "adapters")
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                self.state = parse_json(file.metadata()[_STATE], str(path))
                self._arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not iterable
        except (safetensors.SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"The state of a training was expected. Received: {path}, which cannot be read: {error}. Remove it to "
                "begin again"
            ) from error

    @classmethod
    def read(cls, path: Path) -> _Checkpoint | None:
        """Reads a file; returns `None` if there is none."""
        return cls(path) if path.exists() else None

    def check(self, identity: Mapping[str, Any], folder: Path) -> None:
        """Checks that the state is that of the training that begins.

        Raises:
            CheckpointError: it differs, in what the message says.
        """
        saved = self.state["identity"]
        different = [
            f"{name} was {shown(saved.get(name))} and is {shown(identity.get(name))}"
            for name in {**saved, **identity}
            if saved.get(name) != identity.get(name)
        ]
        if different:
            more = f"; and {len(different) - _DIFFERENCES} more" if len(different) > _DIFFERENCES else ""
            raise CheckpointError(
                f"The folder has the state of another training. Received: {folder}: "
                f"{'; '.join(different[:_DIFFERENCES])}{more}. Choose another folder, or remove this one to begin again"
            )

    def restore(self, part: str, variables: Iterable[keras.Variable]) -> bool:
        """Assigns the values of `"model"`, `"optimizer"` or `"metrics"`; returns whether these are all of them."""
        count = 0
        for count, variable in enumerate(variables, 1):
            variable.assign(self._arrays[f"{part}/{count - 1}"])
        return f"{part}/{count}" not in self._arrays


def _skipping(model: keras.Model, loaded: _Checkpoint) -> Any:
    """Returns a train function that passes over batches without training, and then restores the one of the model.

    It takes and returns what that of the backend does: TensorFlow's the iterator of the data, JAX's also the state.
    """
    train, passed = model.train_function, 0
    # TensorFlow's trainer creates the variables of metrics for the first batch, which has not been read yet.
    metrics_exist = loaded.restore("metrics", model.metrics_variables)
    logs = model.get_metrics_result() if metrics_exist else None

    def skip(*arguments: Any) -> Any:
        nonlocal passed, logs
        *state, iterator = arguments
        batches = [next(iterator) for _ in range(model.steps_per_execution)]
        if logs is None:
            model._symbolic_build(data_batch=batches[0])
            loaded.restore("metrics", model.metrics_variables)
            logs = model.get_metrics_result()
        passed += len(batches)
        if passed >= loaded.state["batch"]:
            model.train_function = train
        return (logs, *state) if state else logs

    return skip


def _numbers(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Returns the counters and best values of a callback: its attributes that are numbers or `None`."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(callback).items()}
    return {name: value for name, value in plain.items() if value is None or isinstance(value, int | float)}


def _leaves(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Yields the values of nested dictionaries and lists by their dotted names, without the names that Keras counts."""
    if not isinstance(value, dict | list):
        yield name, value
        return
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        if key != "name":
            yield from _leaves(entry, f"{name}.{key}".lstrip("."))
