"""Keras functions to a SavedModel with a signature each, which read one set of variables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasformer.errors import ExportError, ExportMismatchError, argument, require
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.saving import save_module
from kerasformer.export.graph.tracing import trace
from kerasformer.zoo import PretrainedModel

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
            f"Export it without {argument('tokenizer', 'in-graph')}: the bundle then has tokenizer.json"
        )


def write_saved_model(functions: Sequence[Function], variables: Sequence[keras.Variable], folder: Path) -> None:
    """Writes functions and weights as a SavedModel.

    Args:
        functions: One signature each.
        variables: All that the functions read. Those that none of them reads are not saved.
        folder: Where to; other files may be there.
    Raises:
        ExportError: a function computes in another type than float32, or TensorFlow cannot save it.
    """
    tf = require("tensorflow", "export")
    graphs = {function.name: trace(function) for function in functions}
    read = {id(tensor) for graph in graphs.values() for tensor in graph.captured_inputs}
    module = tf.Module()
    # Tracked by the module, so that saving finds what the graphs read.
    module.weights = [variable.value for variable in variables if id(variable.value.handle) in read]
    try:
        save_module(module, folder, graphs)
    except Exception as error:
        raise ExportError(f"TensorFlow cannot save this model: {error}") from error


def check_texts(model: PretrainedModel, folder: Path, signature: str) -> None:
    """Compares a signature that reads texts with tokenizer and model.

    Raises:
        ExportMismatchError: it answers otherwise.
    """
    tf = require("tensorflow", "export")
    loaded = tf.saved_model.load(str(folder))
    tokenizer: Any = model.tokenizer
    texts = [text for text in tf_text.SAMPLE if len(tokenizer.encode(text)) <= (model.max_length or 10**9)]
    inputs = tokenizer(texts).inputs
    received = loaded.signatures[signature](text=tf.constant(texts))
    answers = model.named(model({name: inputs[name] for name in model.input_names}, training=False))
    for name, value in answers.items():
        expected = keras.ops.convert_to_numpy(value)
        error = float(np.abs(received[name].numpy() - expected).max() / np.abs(expected).max())
        if not error <= _TOLERANCE:
            raise ExportMismatchError(
                f"The SavedModel answers texts otherwise than the Keras model. Expected {name} within {_TOLERANCE} of "
                f"the largest. Received: {error:.1e}. This is a defect of the export: please report it"
            )
