"""Activation functions by the names that model configurations use."""

from __future__ import annotations

import math
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


def mish(x: Tensor) -> Tensor:
    """Returns `x * tanh(softplus(x))` in powers of `exp(-|x|)`, which cannot overflow."""
    n = ops.exp(-ops.abs(x))
    positive = (1.0 + 2.0 * n) / (1.0 + 2.0 * n + 2.0 * n * n)
    negative = (n * n + 2.0 * n) / (n * n + 2.0 * n + 2.0)
    return x * ops.where(x >= 0, positive, negative)


def softplus(x: Tensor) -> Tensor:
    """Returns `log(1 + exp(x))`, in operators that all runtimes have."""
    return ops.relu(x) + ops.log(1.0 + ops.exp(-ops.abs(x)))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": ops.relu,
    "relu2": lambda x: ops.square(ops.relu(x)),
    "relu6": lambda x: ops.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x: ops.maximum(x, 0.01 * x),
    "hardswish": lambda x: x * ops.clip(x + 3.0, 0.0, 6.0) * (1.0 / 6.0),
    "laplace": lambda x: 0.5 * (1.0 + ops.erf((x - 0.707107) * (1.0 / (0.282095 * math.sqrt(2.0))))),
    "mish": mish,
    "sqrtsoftplus": lambda x: ops.sqrt(softplus(x)),
    "gelu": lambda x: primitives.gelu(x, approximate=False),
    "gelu_new": lambda x: primitives.gelu(x, approximate=True),
    "gelu_fast": lambda x: primitives.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: primitives.gelu(x, approximate=True),
    "gelu_accurate": lambda x: primitives.gelu(x, approximate=True),
    "gelu_python_tanh": lambda x: primitives.gelu(x, approximate=True),
    "gelu_python": lambda x: primitives.gelu(x, approximate=False),
    "gelu_10": lambda x: ops.clip(primitives.gelu(x, approximate=False), -10.0, 10.0),
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
