"""Activation functions by the names that model configurations use."""

from __future__ import annotations

from collections.abc import Callable

from keras import ops

from kerasformer.errors import UnsupportedConfigError
from kerasformer.layers import primitives
from kerasformer.layers.tensor import Tensor


def silu(x: Tensor) -> Tensor:
    """Returns `x * sigmoid(x)`.

    `ops.silu` has a gradient of its own on TensorFlow, which registers a function in a table of the process for each
    traced graph. The graph, and with it the weights of the model, would then never be freed.
    """
    return x * ops.sigmoid(x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": ops.relu,
    "relu2": lambda x: ops.square(ops.relu(x)),
    "gelu": lambda x: primitives.gelu(x, approximate=False),
    "gelu_new": lambda x: primitives.gelu(x, approximate=True),
    "gelu_fast": lambda x: primitives.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: primitives.gelu(x, approximate=True),
    "quick_gelu": lambda x: x * ops.sigmoid(1.702 * x),
    "silu": silu,
    "swish": silu,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
}


def activation(name: str | None) -> Callable[[Tensor], Tensor]:
    """Returns the activation function of the given name; `None` is the identity.

    Raises:
        UnsupportedConfigError: the name is unknown.
    """
    try:
        return _ACTIVATIONS[name or "linear"]
    except KeyError:
        known = ", ".join(sorted(_ACTIVATIONS))
        raise UnsupportedConfigError(f"Unknown activation. Expected one of {known}. Received: {name!r}") from None
