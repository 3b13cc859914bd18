"""Scales of int8 caches, measured on calibration texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from keras import ops

from kerasformer.basics.progress import CountProgress
from kerasformer.engines.fidelity.references import single_texts
from kerasformer.errors import ExportError
from kerasformer.export.quantization.sample_inputs import passages
from kerasformer.layers import CacheScales, GrowingCache, Visibility
from kerasformer.layers.tensor import Tensor
from kerasformer.models.compilation import compiled
from kerasformer.models.contracts import CausalLM

_LARGEST = 127
_MARGIN = 1.25
"""Ratio of the largest magnitude that a cache can hold to the largest one on the calibration texts."""
_SMALLEST_SHARE = 2.0**-10
"""Smallest range of a channel, as a share of the largest one of the layer."""


def measure_cache_scales(
    model: CausalLM, texts: Sequence[str], progress: CountProgress | None = None
) -> tuple[CacheScales | None, ...]:
    """Measures the ranges of the keys and values while a decoder reads texts and its own continuations of them.

    Args:
        model: A decoder, with any backend.
        texts: Texts of the kind that the model is used for.
        progress: Called with the number of texts read and their total.

    Returns:
        Scales of each layer; `None` for a layer without keys and values.

    Raises:
        ExportError: A key or value is not finite.
    """
    specs = model.cache_specs()
    has_keys = [spec.attends for spec in specs]

    def read(inputs: dict[str, Tensor]) -> list[list[Tensor]]:
        tokens = inputs["input_ids"]
        grows = partial(GrowingCache, causal=True)
        caches = [spec.opened([ops.zeros(shape) for shape in spec.shapes(1, 0)], grows) for spec in specs]
        _, filled = model.decode_states(tokens, Visibility.of_text(ops.shape(tokens)[1], causal=True), caches)
        of_attention = (cast(GrowingCache, cache).tensors for cache, has in zip(filled, has_keys, strict=True) if has)
        return [[ops.max(ops.abs(x), axis=(0, 2)) for x in pair] for pair in of_attention]

    run = compiled(read, model, jit_compile=False, any_length=True)
    arrays = passages(model, texts)
    largest: list[np.ndarray] = []
    for done, passage in enumerate(single_texts(arrays), start=1):
        extremes = [
            np.stack([ops.convert_to_numpy(x) for x in layer]) for layer in run({"input_ids": passage["input_ids"]})
        ]
        largest = [np.maximum(*pair) for pair in zip(largest or extremes, extremes, strict=True)]
        if progress is not None:
            progress(done, len(arrays["input_ids"]))
    if not all(np.isfinite(ranges).all() for ranges in largest):
        raise ExportError("The keys and values of a decoder must be finite. Received: infinity or NaN on the texts")
    scales = iter([CacheScales(*(_scales(half) for half in ranges)) for ranges in largest])
    return tuple(next(scales) if has else None for has in has_keys)


def _scales(largest: np.ndarray) -> np.ndarray:
    """Returns the scales `(G, 1, D)` for the largest magnitudes of all channels, `(G, D)`."""
    least = max(_SMALLEST_SHARE * float(largest.max()), float(np.finfo("float32").tiny))
    return (np.maximum(largest, least) * (_MARGIN / _LARGEST)).astype("float32")[:, None]
