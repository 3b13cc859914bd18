"""Loads saved models in a separate process, in which only kerasformer.zoo was imported before.

Its argument is a folder of pairs: `<name>.keras` and `<name>.npz`, the inputs and, under `_expected`, the outputs. It
prints one JSON object: for each name the largest difference, or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import kerasformer.zoo  # noqa: F401  # registers the classes


@keras.saving.register_keras_serializable("kerasformer_tests")
class Subclassed(keras.Model):
    """A model that begins with a layer, written as a class without a `build` of its own.

    Keras runs it to make its weights; what comes after a layer that fails has none, and gets none from the file.

    Args:
        layer: Its first layer.
        names: Of the layer's arguments, in order.
        kwargs: `keras.Model` arguments.
    """

    def __init__(self, layer: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer, self.names = layer, list(names)
        self.last = keras.layers.Dense(3)

    def call(self, inputs: dict[str, Any]) -> Any:
        """Applies both layers to the inputs."""
        first, *rest = self.names
        return self.last(keras.tree.flatten(self.layer(inputs[first], **{name: inputs[name] for name in rest}))[0])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        layer = keras.saving.serialize_keras_object(self.layer)
        del layer["build_config"]  # as for a class that creates its layers itself
        return {**super().get_config(), "layer": layer, "names": self.names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Subclassed:
        """Creates a model from the result of `get_config`."""
        return cls(**{**config, "layer": keras.saving.deserialize_keras_object(config["layer"])})


def flat(outputs: Any) -> np.ndarray:
    """Returns all numbers of one or several tensors."""
    arrays = [keras.ops.convert_to_numpy(x).astype("float32").ravel() for x in keras.tree.flatten(outputs)]
    return np.concatenate(arrays)


def difference(path: Path) -> Any:
    """Returns the difference of the model's outputs from the saved ones, and its tokens and settings, if it has any."""
    inputs = dict(np.load(path.with_suffix(".npz")))
    expected = inputs.pop("_expected")
    try:
        model = keras.models.load_model(path)
        found = float(np.abs(flat(model(inputs)) - expected).max())
        if getattr(model, "tokenizer", None) is None:
            return found
        return [found, model.generation_config.to_dict(), model.tokenizer("Hello, world").input_ids.tolist()]
    except Exception as error:  # noqa: BLE001  # reported for each file by the test
        return f"{type(error).__name__}: {str(error)[:500]}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    results = {path.stem: difference(path) for path in sorted(folder.glob("*.keras"))}
    if len(sys.argv) > 2:  # classes of the tests, like those of a user's program
        sys.path.insert(0, sys.argv[2])
        from tests.core.layers import composites  # noqa: F401

        results |= {path.stem: difference(path) for path in sorted(folder.glob("own/*.keras"))}
    print(json.dumps(results))
