"""An encoder as a SavedModel that reads texts: for TensorFlow Serving, or any process with TensorFlow and TF Text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer import bundle
from kerasformer.errors import ExportError, ExportMismatchError, require
from kerasformer.export.to_saved_model import tf_text
from kerasformer.zoo import PretrainedModel

IN_GRAPH = "in-graph"
# Of the largest score: float32 sums in another order.
_TOLERANCE = 1e-4


def check_in_graph(model: PretrainedModel) -> None:
    """Refuses models whose texts a tokenizer in the graph cannot prepare.

    Raises:
        ExportError: it is one.
    """
    reasons = {
        "question-answering": "reads two texts and gives places in them",
        "fill-mask": "looks for the mask token in a text, and TF Text's operators know no special tokens there",
    }
    reason = "writes token after token" if model.generates else reasons.get(model.task)
    if reason is not None:
        raise ExportError(
            f"A tokenizer in the graph is for encoders that read one text, and {model.task} {reason}. "
            "Export it without tokenizer='in-graph': the bundle then has tokenizer.json"
        )
    if keras.backend.backend() != "tensorflow":
        raise ExportError(
            "A tokenizer in the graph needs the TensorFlow backend of Keras. Received: "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow"
        )


def export_saved_model(model: PretrainedModel, destination: str | Path) -> Path:
    """Writes a SavedModel with two signatures, once it answers as the model does.

    `serving_default` takes `text`, string `(B,)`; `tokens` takes the model's own inputs, int32 `(B, T)`. Both give what
    the model gives, such as `logits`.

    Args:
        model: An encoder with a tokenizer.
        destination: The folder; written aside and moved into place.

    Raises:
        BundleError: something is there already.
        ExportError: the model generates, or a part of its tokenizer has no operator.
        ExportMismatchError: the SavedModel answers otherwise.
        MissingExtraError: TF Text is not installed.
    """
    tf = require("tensorflow", "export")
    check_in_graph(model)
    given = tf_text.parts(model.tokenizer, model.input_names)
    bundle.check_destination(destination)
    module = tf.Module()
    # Tracked by the module, so that saving finds what the graphs read.
    module.weights = [variable.value for variable in model.variables]

    def read(**inputs: Any) -> dict[str, Any]:
        return dict(model.named(model(inputs, training=False)))

    text = tf.TensorSpec((None,), tf.string, name="text")
    tokens = {name: tf.TensorSpec((None, None), tf.int32, name=name) for name in model.input_names}
    module.read_text = tf.function(
        lambda text: read(**tf_text.encode(given, text, model.max_length)), input_signature=[text], autograph=False
    )
    module.read_tokens = tf.function(read, autograph=False).get_concrete_function(**tokens)
    with bundle.staging(destination) as folder:
        signatures = {"serving_default": module.read_text, "tokens": module.read_tokens}
        tf.saved_model.save(module, str(folder), signatures=signatures)
        _verify(model, folder)
        return bundle.publish(folder, destination)


def _verify(model: PretrainedModel, folder: Path) -> None:
    tf = require("tensorflow", "export")
    run = tf.saved_model.load(str(folder)).signatures["serving_default"]
    limit = {} if model.max_length is None else {"max_length": model.max_length, "truncation": True}
    texts = [text for text in tf_text.SAMPLE if len(model.tokenizer.encode(text)) <= (model.max_length or 10**9)]
    inputs = model.tokenizer(texts, **limit).inputs
    inputs = {name: inputs[name] for name in model.input_names}
    received = run(text=tf.constant(texts))
    for name, value in model.named(model(inputs, training=False)).items():
        expected = keras.ops.convert_to_numpy(value)
        error = float(np.abs(received[name].numpy() - expected).max() / np.abs(expected).max())
        if not error <= _TOLERANCE:
            raise ExportMismatchError(
                f"The SavedModel answers otherwise than the Keras model. Expected {name} within {_TOLERANCE} of the "
                f"largest. Received: {error:.1e}"
            )
