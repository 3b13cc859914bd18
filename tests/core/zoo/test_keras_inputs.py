"""What Keras accepts as inputs of models: the encodings of a tokenizer, everywhere; and models in other models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer import zoo
from kerasformer.errors import InputError
from tests import tiny_text
from tests.grids import on_jax

pytestmark = pytest.mark.grid

SIZES = {"vocab_size": 203, "hidden_dim": 12, "num_layers": 1, "num_heads": 3}
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
labels = np.array([0, 1, 1])
encoding = tiny_text.wordpiece()(["Hello, world", "Hello", "world"])


def model_of(model_type: str = "bert", task: str = "text-classification", **sizes: float) -> Any:
    return zoo.build(model_type, task, **{**SIZES, "max_length": 16, **sizes})


class Batches(keras.utils.PyDataset):
    """Two batches."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return encoding, labels


def generator() -> Iterator[Any]:
    for _ in range(2):
        yield encoding, labels


def tf_dataset() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((encoding, labels)).batch(2)


CALLS: dict[str, Callable[[Any], Any]] = {
    "call": lambda model: model(encoding),
    "fit": lambda model: model.fit(encoding, labels, verbose=0).history["loss"],
    "validation_data": lambda model: model.fit(encoding, labels, validation_data=(encoding, labels), verbose=0).history[
        "val_loss"
    ],
    "evaluate": lambda model: model.evaluate(encoding, labels, verbose=0),
    "predict": lambda model: model.predict(encoding, verbose=0),
    "train_on_batch": lambda model: model.train_on_batch(encoding, labels),
    "test_on_batch": lambda model: model.test_on_batch(encoding, labels),
    "predict_on_batch": lambda model: model.predict_on_batch(encoding),
    "PyDataset": lambda model: model.fit(Batches(), validation_data=Batches(), verbose=0).history["val_loss"],
    "PyDataset of workers": lambda model: model.fit(Batches(workers=2), verbose=0).history["loss"],
    "generator": lambda model: model.fit(generator(), steps_per_epoch=2, shuffle=False, verbose=0).history["loss"],
    "tf.data": lambda model: model.fit(tf_dataset(), shuffle=False, verbose=0).history["loss"],
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    inner = model_of(**NO_DROPOUT)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in encoding}
    models = {"zoo": inner, "functional": keras.Model(inputs, inner(inputs))}
    for model in models.values():
        model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return models


# A functional model notes that an encoding is no dict.
@pytest.mark.filterwarnings("ignore:The structure of `inputs` doesn't match the expected structure:UserWarning")
@pytest.mark.parametrize(
    ("call", "kind"),
    on_jax(
        CALLS,
        ["zoo", "functional"],
        chosen=[("fit", "zoo"), ("predict", "zoo")],
    ),
)
def test_an_encoding_is_accepted_wherever_keras_takes_inputs(models, call, kind):
    logits = keras.ops.convert_to_numpy(models[kind](dict(encoding)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    expected = logits if "predict" in call or call == "call" else float(loss)
    received = keras.ops.convert_to_numpy(CALLS[call](models[kind]))
    if call != "tf.data":  # batches of different sizes
        np.testing.assert_allclose(received, np.broadcast_to(expected, received.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.jax_release
@pytest.mark.parametrize(
    ("model_type", "sizes"),
    [("bert", {}), ("gpt2", {}), ("bart", {"intermediate_dim": 20})],
    ids=["bert", "gpt2", "bart"],
)
def test_a_backbone_accepts_an_encoding(model_type, sizes):
    model = model_of(model_type, "feature-extraction", **sizes)
    if model_type == "bart":
        arrays: Any = {"input_ids": encoding["input_ids"], "attention_mask": encoding["attention_mask"]}
        expected = model.backbone(arrays["input_ids"], attention_mask=arrays["attention_mask"])
    else:
        arrays = {name: encoding[name] for name in encoding if name in model.input_names}
        expected = model(arrays)
    np.testing.assert_allclose(model.backbone(arrays), expected, atol=1e-6)
    with pytest.raises(InputError, match="expects input_ids, attention_mask.* Received: input_ids, labels"):
        model.backbone({"input_ids": encoding["input_ids"], "labels": encoding["input_ids"]})


def test_no_attribute_hides_one_of_keras():
    """Keras reads `inputs` and `outputs` of functional models."""
    inputs = keras.Input((3,))
    attributes = {*dir(keras.Model(inputs, keras.layers.Dense(2)(inputs)))} - {*dir(keras.Model)}
    for model in (model_of(), model_of("gpt2", "text-generation"), zoo.build("t5", **SIZES)):
        for part in [model, model.backbone]:
            assert not attributes & {*dir(type(part))}
