"""Digest of the weights of a model, by which engines notice that training or an assignment changed them."""

from __future__ import annotations

import hashlib
import weakref
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from kerasformer.layers.core import layers_with_lora
from kerasformer.layers.tensor import Tensor

_LARGE = 2**24  # bytes of weights for which several threads are worth starting


class _Read(NamedTuple):
    """A weight whose checksum is known.

    Attributes:
        variable: The variable; kept, so that its `id` is not used again.
        unchanged: Function from the variable's memory and value to whether they are those that were read.
        checksum: Checksum of the value.
    """

    variable: keras.Variable
    unchanged: Callable[[np.ndarray, Tensor], bool]
    checksum: int


class WeightsDigest:
    """Digest of all weights of a model, for which only those are read that may have changed since the last time.

    TensorFlow writes to the memory of a variable only if nothing else refers to it, and otherwise to new memory. A view
    of the memory that was read is therefore kept: a variable that still has this memory has not changed. If it was
    changed, its former memory is freed at the next digest, or with this object. JAX never changes an array; references
    to those that were read do not keep them alive. Tensors of PyTorch are changed in place, so that all are read each
    time, as are weights that are not in the memory of the processor.

    Args:
        model: The model.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._read: dict[int, _Read] = {}

    def __call__(self) -> str:
        """Returns the digest, which depends on the values, shapes and data types, and on the scales of adapters."""
        known, read, changed = self._read, {}, []
        for variable in self._model.weights:
            array, entry = host_array(variable.value), known.get(id(variable))
            if entry is not None and entry.unchanged(array, variable.value):
                read[id(variable)] = entry
            else:
                changed.append((variable, array))
        checksums = _checksums([array for _, array in changed])
        for (variable, array), checksum in zip(changed, checksums, strict=True):
            read[id(variable)] = _Read(variable, _comparison(array, variable.value), checksum)
        self._read = read
        parts = [(weight.shape, weight.dtype, read[id(weight)].checksum) for weight in self._model.weights]
        # The scale of a low-rank product is not a weight.
        scales = [layer.lora_alpha for layer in layers_with_lora(self._model)]
        return hashlib.sha256(repr((parts, scales)).encode()).hexdigest()


def host_array(tensor: Tensor) -> np.ndarray:
    """Returns the content of a tensor or a variable, without a copy if the backend supports it."""
    try:
        return np.from_dlpack(ops.stop_gradient(tensor))
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):  # on a device, or bfloat16
        return np.asarray(ops.convert_to_numpy(tensor))


def _comparison(array: np.ndarray, value: Tensor) -> Callable[[np.ndarray, Tensor], bool]:
    """Returns a function that tells whether a variable still has the memory and value that were read."""
    backend = keras.backend.backend()
    if backend == "jax":
        reference = weakref.ref(value)
        return lambda _, other: other is reference()
    if backend == "tensorflow" and not array.flags.owndata:  # a view of the variable's memory, and not a copy
        return lambda other, _: other.ctypes.data == array.ctypes.data
    return lambda _, __: False


def _checksums(arrays: list[np.ndarray]) -> list[int]:
    """Returns the checksum of each array, in several threads if that is worth starting them."""
    if sum(array.nbytes for array in arrays) < _LARGE:
        return list(map(_checksum, arrays))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_checksum, arrays))


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
