"""Names of weights in exported files: the variable's path in the model, without the model's own name.

Keras numbers the model's name (`gpt2_causal_lm_1`), so that with it the same model would be exported differently each
time.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras


def below_model(path: str) -> str:
    """Removes the model's own name from a variable's path."""
    return path.split("/", 1)[-1]


def by_path(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    """Returns variables by their path below the model, made unique."""
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        path = below_model(variable.path)
        name, count = path, 1
        while name in named:
            name, count = f"{path}_{count}", count + 1
        named[name] = variable
    return named
