"""Values of variables as NumPy arrays, for the writers of files."""

from __future__ import annotations

import keras
import numpy as np

from kerasformer.extras import require


def value_of(variable: keras.Variable) -> np.ndarray:
    """Returns the value of a variable, which must not be modified: it is not copied.

    The value of a variable of 16 bits has the data types of `ml_dtypes` and NumPy. It is read from the checkpoint if
    the weights of the model were released, see `release_weights`.
    """
    value = variable.value
    if not isinstance(value, np.ndarray):
        value = np.asarray(require("tensorflow", "export").convert_to_tensor(value))
    return value
