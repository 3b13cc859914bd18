"""Export of Keras functions as a SavedModel with a signature for each and shared variables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from kerasformer.errors import ExportError, ExportMismatchError
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.saving import save_module
from kerasformer.export.graph.tracing import trace
from kerasformer.extras import require
from kerasformer.models.pretrained import PretrainedModel
from kerasformer.tokenization import Tokenizer

# Share of the largest score; float32 sums may be computed in a different order.
_TOLERANCE = 1e-4


def check_in_graph(model: PretrainedModel) -> None:
    """Refuses models that cannot have a tokenizer in the graph.

    Raises:
        ExportError: The model generates text, or its task needs more than one plain text.
    """
    reasons = {
        "question-answering": "needs two texts and returns positions in them",
        "fill-mask": "needs the mask token, but TF Text does not recognize special tokens in a text",
    }
    reason = "generates text" if model.generates else reasons.get(model.task)
    if reason is not None:
        raise ExportError(
            f"A tokenizer in the graph is only for encoders that read a single text. Received: {model.task}, which "
            f"{reason}. Export it without tokenizer='in-graph': the bundle then has tokenizer.json"
        )


def write_saved_model(functions: Sequence[Function], variables: Sequence[keras.Variable], folder: Path) -> None:
    """Writes functions and weights as a SavedModel.

    Args:
        functions: The functions, one for each signature.
        variables: All variables that the functions read. Unused variables are not saved.
        folder: Folder to write to; it may contain other files.

    Raises:
        ExportError: A function does not compute in float32, or TensorFlow cannot save it.
    """
    tf = require("tensorflow", "export")
    graphs = {function.name: trace(function) for function in functions}
    read = {id(tensor) for graph in graphs.values() for tensor in graph.captured_inputs}
    module = tf.Module()
    # The module tracks the variables, so that they are saved with the graphs.
    module.weights = [variable.value for variable in variables if id(variable.value.handle) in read]
    try:
        save_module(module, folder, graphs)
    except Exception as error:
        raise ExportError(f"TensorFlow cannot save this model: {error}") from error


def check_texts(model: PretrainedModel, folder: Path, signature: str) -> None:
    """Compares a signature that takes texts with the tokenizer and the model.

    Raises:
        ExportMismatchError: Their answers differ.
    """
    tf = require("tensorflow", "export")
    loaded = tf.saved_model.load(str(folder))
    tokenizer: Tokenizer = model.tokenizer
    texts = [text for text in tf_text.SAMPLE if len(tokenizer.encode(text)) <= (model.max_length or 10**9)]
    inputs = tokenizer(texts).inputs
    received = loaded.signatures[signature](text=tf.constant(texts))
    answers = model.named(model({name: inputs[name] for name in model.input_names}, training=False))
    for name, value in answers.items():
        expected = keras.ops.convert_to_numpy(value)
        error = float(np.abs(received[name].numpy() - expected).max() / np.abs(expected).max())
        if not error <= _TOLERANCE:
            raise ExportMismatchError(
                "The answers of the SavedModel to texts differ from those of the Keras model. Expected: an error of "
                f"{name} of at most {_TOLERANCE} of the largest value. Received: {error:.1e}. This is a defect of the "
                "export: please report it"
            )
