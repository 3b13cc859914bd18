"""What artifacts call their weights: the path in the model, without the model's own name.

Keras numbers that name (`gpt2_causal_lm_1`), so that the same model would otherwise give another file each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras


def below_model(path: str) -> str:
    """A variable's path after the model's own name, which comes first."""
    return path.split("/", 1)[-1]


def by_path(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    """Variables by their path below the model, made unique."""
    found: dict[str, keras.Variable] = {}
    for variable in variables:
        path = below_model(variable.path)
        name, count = path, 1
        while name in found:
            name, count = f"{path}_{count}", count + 1
        found[name] = variable
    return found
