"""Callbacks, on models of one layer, by the logs that other callbacks find and the files that remain."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext

import keras
import numpy as np
import pytest
from matplotlib import image

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import CheckpointError, InputError, TrainingError
from kerasformer.tools.training.callbacks import Curve, Evaluate, SavePretrained, StopOnNaN, with_epoch
from tests import tiny_text

TEXTS = ["The museum is closed.", "What a waste!", "It made me laugh.", "Slow, loud."]
SIZES = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2}


def tiny(model_type="bert", task="text-classification", tokenizer=None, **settings):
    keras.utils.set_random_seed(0)
    tokenizer = tokenizer or tiny_text.wordpiece()
    model = zoo.build(model_type, task, vocab_size=tokenizer.vocab_size, **{**SIZES, **settings})
    model.set_tokenizer(tokenizer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    model.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)
    return model


def fit(model, labels, *callbacks, texts=TEXTS, epochs=2):
    inputs = model.tokenizer(texts, padding_side="right")
    inputs = {name: inputs[name] for name in model.input_names if name in inputs}
    return model.fit(inputs, np.asarray(labels), epochs=epochs, verbose=0, callbacks=list(callbacks)).history


WORDS = [text.split() for text in TEXTS]
TAGS = [["B-PER", "I-PER", "O", "O"], ["B-PER", "O", "O"], ["O"] * 4, ["O", "B-PER"]]
QUESTIONS = [{"question": "Which one?", "context": text} for text in TEXTS]
MASKED = ["The [MASK] is closed.", "What a [MASK]!", "It [MASK] me laugh."]
_CASES = {
    "text-classification": (TEXTS, ["O", "B-PER", "O", "I-PER"], {"accuracy", "f1", "matthews"}),
    "token-classification": (WORDS, TAGS, {"accuracy", "f1"}),
    "question-answering": (QUESTIONS, ["museum", "", "me", "loud"], {"exact_match", "f1"}),
    "fill-mask": (MASKED, ["museum", "waste", "made"], {"accuracy"}),
}


@pytest.mark.jax_release
@pytest.mark.parametrize("task", _CASES)
def test_metrics_of_a_task_are_added_to_the_logs(task):
    texts, labels, names = _CASES[task]
    model, logs = tiny(task=task, id2label=dict(enumerate(["O", "B-PER", "I-PER"]))), {"loss": 1.0}
    callback = Evaluate(texts, labels, prefix="dev_", limit=3)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_end(0, logs)
    assert set(logs) == {"loss", *(f"dev_{name}" for name in names)}
    for name, value in kf.evaluate(kf.pipeline(model), texts[:3], labels[:3]).items():
        assert logs[f"dev_{name}"] == pytest.approx(value)


@pytest.mark.jax_release
def test_the_figures_are_those_of_the_new_weights_and_other_callbacks_see_them():
    model, seen = tiny("gpt2", "text-generation", tiny_text.byte_pairs()), []
    after = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["val_perplexity"]))
    ids = model.tokenizer(TEXTS, padding_side="right")["input_ids"]
    callbacks = [Evaluate(TEXTS), after]
    history = model.fit({"input_ids": ids[:, :-1]}, ids[:, 1:], epochs=2, verbose=0, callbacks=callbacks).history
    assert history["val_perplexity"] == seen and seen[1] < seen[0]
    assert kf.evaluate(kf.pipeline(model), TEXTS)["perplexity"] == pytest.approx(seen[1])


def test_scores_are_labels_of_a_model_from_text_to_text():
    """As in T5's form, where labels need not be references."""
    rows = [{"text": "Rain.", "pair": "Sun.", "label": 3.8}]
    for callback, refused in [(Evaluate(rows, glue="stsb"), False), (Evaluate(rows), True)]:
        callback.set_model(tiny("t5", "text2text-generation"))
        with pytest.raises(InputError, match="Each text needs a reference") if refused else nullcontext():
            callback.on_train_begin()


@pytest.mark.parametrize(
    "name, values, best",
    [
        ("val_loss", (0.5, 0.3, 0.4), 1),
        ("val_perplexity", (5.0, 7.0, float("nan")), 0),
        ("val_f1", (0.5, 0.7, 0.6), 1),
        ("val_f1", (float("nan"), 0.7, 0.7), 1),
    ],
)
def test_the_best_model_is_saved(tmp_path, name, values, best):
    model, callback = tiny(), SavePretrained(tmp_path / "best", name)
    callback.set_model(model)
    for epoch, value in enumerate(values):
        model.head.output_dense.bias.assign([epoch, 0.0])
        callback.on_epoch_end(epoch, {name: value})
    assert callback.best == values[best]
    np.testing.assert_array_equal(kf.load(tmp_path / "best").head.output_dense.bias, [best, 0.0])


def test_a_mode_and_a_data_type(tmp_path):
    model, callback = tiny(), SavePretrained(tmp_path / "best", "val_f1", "min", dtype="float16")
    callback.set_model(model)
    callback.on_epoch_end(0, {"val_f1": 0.5})
    callback.on_epoch_end(0, {"val_f1": 0.4})
    assert callback.best == 0.4
    assert '"dtype": "float16"' in (tmp_path / "best" / "config.json").read_text()


def test_a_full_disk_leaves_the_previous_model(tmp_path, monkeypatch):
    model = tiny()
    model.save_pretrained(tmp_path / "best")
    before = {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()}

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kerasformer.models.saving.save_tensors", full)
    with pytest.raises(CheckpointError, match=r"No space left.*Nothing was changed there"):
        callback = SavePretrained(tmp_path / "best", "loss")
        callback.set_model(model)
        callback.on_epoch_end(0, {"loss": 1.0})
    assert {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()} == before
    assert os.listdir(tmp_path) == ["best"]


class Spoil(keras.callbacks.Callback):
    """Sets a weight to NaN after the first epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.head.output_dense.bias.assign([np.nan, 0.0])


def test_a_loss_that_is_not_a_number_stops_the_training(tmp_path):
    model, best = tiny(), SavePretrained(tmp_path / "best", "loss")
    with pytest.raises(
        TrainingError, match=r"nan in epoch 2, batch 1 .*bert.*/head/output/kernel|embeddings.* and \d+ more"
    ):
        fit(model, [0, 1, 0, 1], Spoil(), StopOnNaN(), best, epochs=3)
    best.on_epoch_end(1, {"loss": 0.0})  # the weights are not finite now
    again = kf.load(tmp_path / "best")
    assert all(np.isfinite(np.asarray(weight)).all() for weight in again.weights)


def test_a_loss_that_is_not_a_number_although_the_weights_are(tmp_path):
    with pytest.raises(TrainingError, match="the inputs and labels of this batch are the cause"):
        callback = StopOnNaN()
        callback.set_model(tiny())
        callback.on_epoch_begin(0)
        callback.on_train_batch_end(0, {"loss": float("inf")})


def test_the_curve_is_drawn(tmp_path):
    model, callback = tiny(), Curve(tmp_path / "curve.png", "Sentiment")
    model.history, pictures = keras.callbacks.History(), []
    callback.set_model(model)
    for epoch, loss in enumerate([0.9, 0.5]):
        logs = {"loss": loss, "val_loss": loss + 0.1, "val_f1": 1 - loss}
        callback.on_epoch_end(epoch, logs)
        pictures.append(image.imread(tmp_path / "curve.png"))
        model.history.history = with_epoch(model.history.history, logs)
    assert model.history.history == {"loss": [0.9, 0.5], "val_loss": [1.0, 0.6], "val_f1": [1 - 0.9, 0.5]}
    assert pictures[0].shape == pictures[1].shape and np.abs(pictures[0] - pictures[1]).max() > 0.5
    with pytest.raises(InputError, match="must end in .png or .svg"):
        Curve(tmp_path / "curve.pdf")
