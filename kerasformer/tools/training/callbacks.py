"""Callbacks of `fit`: metrics of a task, the best checkpoint, a stop at a loss that is not a number, a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import keras
import numpy as np

from kerasformer.basics.arguments import check, one_of
from kerasformer.basics.command_options import EvaluationOptions
from kerasformer.basics.options import checked
from kerasformer.errors import CheckpointError, InputError, TrainingError
from kerasformer.files.reading import local_path
from kerasformer.pipelines import pipeline
from kerasformer.tools import evaluation
from kerasformer.tools.training.objectives.wrapped import WrappedModel
from kerasformer.tools.viz import check_picture, draw_training_curve

Logs = dict[str, Any]
"""Figures of a batch or an epoch by name; Keras passes the same dictionary to one callback after another."""

_LOWER_IS_BETTER = ("loss", "perplexity", "error", "bits_per_byte")
"""Ends of the names of figures of which the lowest is the best."""
_SHOWN = 5
"""Maximum number of variables that an error names."""


class Evaluate(keras.callbacks.Callback):
    """Runs the model's pipeline on labelled texts after each epoch, with the metrics of its task.

    The figures are those of `kerasformer.evaluate`: accuracy and F1, F1 of entities, exact match, ROUGE, BLEU,
    perplexity. They are added to the logs of the epoch, where the callbacks that follow in the list, such as
    `EarlyStopping`, `CSVLogger` and `SavePretrained`, and the history find them.

        callbacks = [Evaluate("dev.tsv"), keras.callbacks.EarlyStopping("val_f1", mode="max")]

    Args:
        data: File of labelled texts, texts or `Example`s, as for `kerasformer.evaluate`.
        labels: Label of each text, unless `data` contains them.
        prefix: Put before the name of each figure.
        options: See `kerasformer.basics.command_options.EvaluationOptions`, such as `limit=500` or `batch_size=32`.

    Raises:
        InputError: the texts cannot be read; or, when the training begins, the task of the model has no metric, or
            labels are missing or unknown to the model.
        MissingExtraError: `rouge-score` or `sacrebleu` is needed and not installed.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | Sequence[Any],
        labels: Sequence[Any] | None = None,
        *,
        prefix: str = "val_",
        **options: Unpack[EvaluationOptions],
    ) -> None:
        super().__init__()
        self.prefix, self.options = prefix, options
        chosen = checked(EvaluationOptions, options, "an evaluation")
        self.examples = evaluation.read_data(data, labels, chosen)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Checks the texts, before time is spent on an epoch."""
        self._pipe = pipeline(_kept(self.model), self.options.get("task"))
        evaluation.refuse_ignored(self._pipe.task, self.options)
        evaluation.check(self._pipe.task, self.examples, self.options)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Adds the figures to the logs."""
        _ = self.model  # with JAX, this writes the state of the training to the variables
        figures = evaluation.evaluate(self._pipe, self.examples, **self.options)
        if logs is not None:
            logs.update({self.prefix + name: value for name, value in figures.items()})


class SavePretrained(keras.callbacks.Callback):
    """Saves the best model so far in Hugging Face's format, after each epoch that improved it.

    The files are written beside the folder and then moved, so that a full disk or a kill leaves the previous model. A
    model with a variable that is not finite is never saved.

    Args:
        folder: Destination, as of `model.save_pretrained`.
        monitor: Name of the figure in the logs, such as `"val_loss"` or, with `Evaluate`, `"val_f1"`.
        mode: `"min"`, `"max"`, or `"auto"`: lower is better for losses, perplexities, errors and bits per byte.
        options: Arguments of `model.save_pretrained`, such as `dtype="float16"`.

    Attributes:
        best: The best value so far; `None` at first.

    Raises:
        InputError: an argument is not accepted, or the logs lack the figure.
        CheckpointError: the folder cannot be written or holds another model; nothing was changed there, and the weights
            in memory are those of the epoch that ended.
    """

    def __init__(
        self, folder: str | os.PathLike[str], monitor: str = "val_loss", mode: str = "auto", **options: Any
    ) -> None:
        super().__init__()
        self.folder = local_path(folder, CheckpointError)
        self.monitor, self.options = monitor, options
        mode = check("mode", mode, one_of("auto", "min", "max"))
        self.mode = mode if mode != "auto" else "min" if monitor.endswith(_LOWER_IS_BETTER) else "max"
        self.best: float | None = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Saves the model if it is the best one."""
        value = monitored(logs or {}, self.monitor)
        if not math.isfinite(value) or (self.best is not None and not self._better(value, self.best)):
            return
        if not non_finite(self.model):
            _kept(self.model).save_pretrained(self.folder, **self.options)
            self.best = value

    def _better(self, value: float, best: float) -> bool:
        return value < best if self.mode == "min" else value > best


class StopOnNaN(keras.callbacks.Callback):
    """Stops the training at the first loss that is not a finite number, with an error that says where.

    `SavePretrained` and `Resume` save no variables that are not finite, so that their folders keep the last good
    weights. `keras.callbacks.TerminateOnNaN` stops, too, but calls the callbacks that save.

    Raises:
        TrainingError: the loss of a batch is not finite.
    """

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Remembers the epoch for the error."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Checks the loss."""
        loss = (logs or {}).get("loss", 0.0)
        if math.isfinite(loss):
            return
        names = non_finite(self.model)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        state = (
            f"Variables that are not finite: {', '.join(names[:_SHOWN])}{more}"
            if names
            else "All variables are finite, so that the inputs and labels of this batch are the cause"
        )
        raise TrainingError(
            f"The loss is not a finite number. Received: {loss} in epoch {self._epoch + 1}, batch {batch + 1} (the "
            f"first is 1). {state}. Checkpoints of SavePretrained and Resume are those of the last finite weights. Use "
            "a lower learning rate, a longer warm-up, clip_norm, or float32"
        )


class Curve(keras.callbacks.Callback):
    """Draws the losses and metrics of all epochs so far into a picture, after each epoch.

    Args:
        path: Output file, ending in `.png` or `.svg`.
        title: Title of the figure.
        dark: Use colours for dark pages.

    Raises:
        InputError: `path` has another suffix, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], title: str = "", dark: bool = False) -> None:
        super().__init__()
        self.path, self.title, self.dark = Path(path), title, dark
        check_picture(self.path)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Draws the picture."""
        draw_training_curve(with_epoch(self.model.history.history, logs or {}), self.path, self.title, self.dark)


def _kept(model: Any) -> Any:
    """Returns the model of the zoo that is trained, which another model may be around."""
    return model.kept if isinstance(model, WrappedModel) else model


def with_epoch(history: Mapping[str, Sequence[float]], logs: Mapping[str, float]) -> dict[str, list[float]]:
    """Returns a history with the logs of the epoch that ends, which Keras adds after all callbacks."""
    return {name: [*history.get(name, ()), *([logs[name]] if name in logs else [])] for name in {**history, **logs}}


def monitored(logs: Mapping[str, float], name: str) -> float:
    """Returns a figure of the logs.

    Raises:
        InputError: there is none of this name.
    """
    if name not in logs:
        raise InputError(
            f"The logs have no figure of this name. Expected one of {', '.join(logs)}. Received: monitor={name!r}. "
            "Pass validation_data to fit, or put Evaluate before this callback"
        )
    return float(logs[name])


def non_finite(model: keras.Model) -> list[str]:
    """Returns the paths of the weights that contain NaN or infinity."""
    return [
        variable.path
        for variable in model.weights
        if keras.backend.is_float_dtype(variable.dtype)
        and not np.isfinite(keras.ops.convert_to_numpy(variable).astype("float32")).all()
    ]
