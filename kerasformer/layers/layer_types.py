"""Types of the arguments and results of layers."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

import keras

Initializer: TypeAlias = "str | dict[str, Any] | keras.initializers.Initializer"
"""A Keras initializer: its name, its serialized form, or the object."""

LayerConfig = dict[str, Any]
"""Arguments of a layer's constructor by name, as Keras saves them in JSON."""

LayerArguments = dict[str, Any]
"""Further arguments of a layer's constructor or call by name."""

Outputs = dict[str, Any]
"""Results of a layer by name: `output` and, on request, tuples of tensors or of caches."""


class LayerOptions(TypedDict, total=False):
    """Arguments of `keras.layers.Layer`."""

    name: str | None
    dtype: str | LayerConfig | keras.DTypePolicy | None
    trainable: bool
    autocast: bool


class LowRankOptions(LayerOptions, total=False):
    """Arguments of `kerasformer.layers.core.LowRank`."""

    lora_rank: int | None
    lora_alpha: float | None
