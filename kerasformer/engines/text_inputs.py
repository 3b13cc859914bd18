"""Inputs of bundles that describe texts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kerasformer.bundle.interface import ADAPTERS, Signature
from kerasformer.engines.arrays import text_arrays


def text_inputs(
    inputs: Mapping[str, np.ndarray], signature: Signature, counts: Mapping[str, int | None], dtype: str = "int32"
) -> dict[str, np.ndarray]:
    """Returns all arrays `(B, T)` of a signature that describe texts, with defaults for those that were left out.

    Args:
        inputs: Integer arrays `(B, T)` by name.
        signature: Signature with these inputs, and perhaps matrices of an adapter.
        counts: Number of allowed values of the inputs that the signature does not describe; see `ModelInfo.counts`.
        dtype: Data type of the results.
    Raises:
        InputError: an unknown input, missing `input_ids`, or an invalid array.
    """
    infos = {name: info for name, info in signature.inputs.items() if info.kind not in ADAPTERS}
    described = {name: info.count for name, info in infos.items() if info.count is not None}
    defaults = {name: info.default for name, info in infos.items() if info.default is not None}
    return text_arrays(inputs, infos, {**counts, **described}, defaults, dtype)
