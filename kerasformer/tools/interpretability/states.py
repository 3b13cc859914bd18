"""Hidden states of all layers of a Keras model."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import Opened
from kerasformer.tools.interpretability.reading import ReadText, keras_model, opened


def states_source(model: Any, purpose: str) -> Opened:
    """Opens a model whose hidden states are computed, and checks it.

    Args:
        model: A Keras model, a pipeline, or a checkpoint, preset or hub id.
        purpose: What needs the states, for the error message.

    Raises:
        InputError: the source is a bundle, or a model that writes texts from texts.
        TokenizerError: the source has no tokenizer.
    """
    source = opened(model)
    if keras_model(source, purpose).is_encoder_decoder:
        raise InputError(
            f"{purpose} needs an encoder or a decoder. Load the encoder by kerasformer.load(source, "
            f"'feature-extraction'). Received: {source.info.name}"
        )
    return source


def states_of(source: Opened, read: ReadText) -> np.ndarray:
    """Returns the hidden states after the embeddings and after each layer, `(L + 1, T, E)` float32."""
    keras = require("keras", "tensorflow")
    outputs = keras_model(source, "A hidden state")(read.inputs, training=False, return_hidden_states=True)
    states = [keras.ops.convert_to_numpy(state)[0].astype(np.float32) for state in outputs["hidden_states"]]
    if not all(np.isfinite(state).all() for state in states):
        raise InputError("Finite hidden states were expected. Received: NaN or infinity")
    return np.stack(states)
