"""Optimizers of fine-tuning: warm-up schedules, weight decay of matrices alone, layer-wise rates, frozen layers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import keras
from keras import ops

from kerasformer.basics.arguments import BOOLEAN, Kind, check, integer, number, one_of
from kerasformer.errors import InputError
from kerasformer.layers import PACKAGE, LayerConfig, Tensor
from kerasformer.models import PretrainedModel

SCHEDULES = ("linear", "cosine", "constant", "inverse_sqrt")
"""Shapes of the learning rate after the warm-up."""

_LAYER = re.compile(r"(.*)/layer_(\d+)/")
"""Path of a variable in a layer of a stack: the stack and the index of the layer."""
_ABOVE = ("pooler", "final_norm", "output_projection")
"""Parts of a backbone that read the output of the last layer."""


@keras.saving.register_keras_serializable(PACKAGE)
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to its peak and then follows a curve.

    The curves are those of `transformers.get_scheduler`: `"linear"` and `"cosine"` fall to 0 at the last step,
    `"inverse_sqrt"` falls with the square root of the step, and `"constant"` stays.

    Args:
        learning_rate: Peak.
        steps: Number of all steps.
        warmup_steps: Number of steps of the rise, which begins at 0.
        schedule: One of `SCHEDULES`.

    Call arguments:
        step: Number of finished steps.

    Raises:
        InputError: an argument is not accepted, or the warm-up is longer than the training.

    Reference: Vaswani et al. 2017, arXiv:1706.03762, section 5.3 (`inverse_sqrt`); Devlin et al. 2018,
    arXiv:1810.04805, section A.2 (`linear`); Loshchilov and Hutter 2017, arXiv:1608.03983 (`cosine`).
    """

    def __init__(
        self, learning_rate: float, steps: int, warmup_steps: int = 0, schedule: str = "linear", name: str = "warmup"
    ) -> None:
        super().__init__()
        self.learning_rate = float(check("learning_rate", learning_rate, number(above=0)))
        self.steps = check("steps", steps, integer(1))
        self.warmup_steps = check("warmup_steps", warmup_steps, integer(0, self.steps))
        self.schedule = check("schedule", schedule, one_of(*SCHEDULES))
        self.name = name

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate of the next step."""
        step = ops.cast(step, "float32")
        rising = step / max(1, self.warmup_steps)
        done = ops.clip((step - self.warmup_steps) / max(1, self.steps - self.warmup_steps), 0.0, 1.0)
        if self.schedule == "linear":
            factor = 1.0 - done
        elif self.schedule == "cosine":
            factor = 0.5 * (1.0 + ops.cos(math.pi * done))
        elif self.schedule == "inverse_sqrt":
            factor = ops.sqrt(max(1, self.warmup_steps) / ops.maximum(step, 1.0))
        else:
            factor = ops.ones_like(step)
        return self.learning_rate * ops.where(step < self.warmup_steps, rising, factor)

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        names = ("learning_rate", "steps", "warmup_steps", "schedule", "name")
        return {name: getattr(self, name) for name in names}


class _RatesByVariable(keras.optimizers.Optimizer):
    """Mixin of an optimizer whose learning rate and weight decay depend on the variable.

    Args:
        rates: Factors of the learning rate by the path of a variable below the model; 1 for others.
        no_decay: Paths of the variables without weight decay.
        weight_decay: Share of a variable that is subtracted in each step, times its learning rate.
        kwargs: Arguments of the optimizer.
    """

    def __init__(
        self,
        *args: Any,
        rates: Mapping[str, float] | None = None,
        no_decay: Collection[str] = (),
        weight_decay: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, weight_decay=weight_decay, **kwargs)
        self.rates, self.no_decay = dict(rates or {}), sorted(no_decay)

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the state, and finds the factors of each variable."""
        paths = [variable.path.partition("/")[2] for variable in variables]
        without = set(self.no_decay)
        self._factors = [
            (self.rates.get(path, 1.0), 0.0 if path in without else self.weight_decay or 0.0) for path in paths
        ]
        super().build(variables)

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        """Updates a variable; its decay precedes the step, as in `torch.optim.AdamW`."""
        rate, decay = self._factors[self._get_variable_index(variable)]
        learning_rate = ops.multiply(ops.cast(learning_rate, variable.dtype), rate)
        if decay:
            self.assign_sub(variable, ops.multiply(variable, learning_rate * decay))
        super().update_step(gradient, variable, learning_rate)

    def _apply_weight_decay(self, variables: list[keras.Variable]) -> None:
        """Does nothing: `update_step` knows the rate of the variable, by which its decay is multiplied."""

    def get_config(self) -> LayerConfig:
        """Arguments of the constructor."""
        return {**super().get_config(), "rates": self.rates, "no_decay": self.no_decay}


@keras.saving.register_keras_serializable(PACKAGE)
class AdamW(_RatesByVariable, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` with a factor of the learning rate for each variable, see `optimizer`.

    Args:
        rates: Factors of the learning rate by the path of a variable below the model; 1 for others.
        no_decay: Paths of the variables without weight decay.
        kwargs: Arguments of `keras.optimizers.AdamW`.

    Reference: Loshchilov and Hutter 2019, arXiv:1711.05101.
    """


@keras.saving.register_keras_serializable(PACKAGE)
class Adafactor(_RatesByVariable, keras.optimizers.Adafactor):
    """`keras.optimizers.Adafactor` with a factor of the learning rate for each variable, see `optimizer`.

    Args:
        rates: Factors of the learning rate by the path of a variable below the model; 1 for others.
        no_decay: Paths of the variables without weight decay.
        kwargs: Arguments of `keras.optimizers.Adafactor`.

    Reference: Shazeer and Stern 2018, arXiv:1804.04235.
    """


_OPTIMIZERS: dict[str, tuple[type[_RatesByVariable], dict[str, Any]]] = {
    "adamw": (AdamW, {"epsilon": 1e-8}),  # the epsilon of PyTorch, with which the published rates were found
    "adafactor": (Adafactor, {"relative_step": False}),  # the schedule determines the rate
}


def optimizer(
    model: PretrainedModel,
    learning_rate: float,
    *,
    steps: int,
    warmup: float | int = 0.1,
    schedule: str = "linear",
    weight_decay: float = 0.01,
    layer_decay: float = 1.0,
    clip_norm: float | None = 1.0,
    name: str = "adamw",
    **options: Any,
) -> keras.optimizers.Optimizer:
    """Creates the optimizer of a fine-tuning, as the papers of BERT and ELECTRA describe it.

        model.compile(kf.training.optimizer(model, 5e-5, steps=epochs * len(data), layer_decay=0.8), loss)

    Biases and norms have no weight decay. With `layer_decay` below 1, lower layers learn more slowly: the rate of the
    head is `learning_rate`, that of a pooler or a final norm is multiplied by `layer_decay`, that of the last layer by
    its square, and so on down to the embeddings. The encoder and the decoder of a model that has both are counted from
    their own last layers.

    Args:
        model: Model to train. Its layers may be frozen before or after the call, see `freeze`.
        learning_rate: Peak of the learning rate.
        steps: Number of all steps: epochs times batches.
        warmup: Share of the steps in which the rate rises, from 0 to 1; or their number, an integer.
        schedule: Curve after the warm-up: `"linear"`, `"cosine"`, `"constant"` or `"inverse_sqrt"`.
        weight_decay: Share of a matrix that is subtracted in each step, times its rate.
        layer_decay: Factor of the rate from a layer to the one below it.
        clip_norm: Maximum norm of all gradients together; `None` for no limit.
        name: `"adamw"` or `"adafactor"`.
        options: Further arguments of the Keras optimizer, such as `beta_2=0.98` or `gradient_accumulation_steps=4`.

    Raises:
        InputError: an argument is not accepted.

    Reference: Devlin et al. 2018, arXiv:1810.04805, section A.2; Clark et al. 2020, arXiv:2003.10555, section A.
    """
    steps = check("steps", steps, integer(1))
    warmup = check("warmup", warmup, _WARMUP)
    rise = warmup if isinstance(warmup, int) else round(warmup * steps)
    kind, defaults = _OPTIMIZERS[check("name", name, one_of(*_OPTIMIZERS))]
    layer_decay = check("layer_decay", layer_decay, number(0, 1))
    return kind(
        WarmupSchedule(learning_rate, steps, rise, schedule),
        weight_decay=float(check("weight_decay", weight_decay, number(0))),
        global_clipnorm=None if clip_norm is None else check("clip_norm", clip_norm, number(above=0)),
        rates={path: layer_decay**depth for path, depth in layer_depths(model).items() if depth and layer_decay < 1},
        no_decay=[path for path, variable in _weights(model).items() if not _decays(path, variable)],
        **{**defaults, **options},
    )


_WARMUP = Kind(
    "a share of the steps from 0 to 1, or a number of steps",
    lambda value: integer(0).convert(value) if isinstance(value, int) else number(0, 1).convert(value),
)


def layer_depths(model: PretrainedModel) -> dict[str, int]:
    """Returns how far each variable is below the head, by its path below the model.

    0 is the head, 1 what reads the last layer, 2 the last layer, and `num_layers + 2` the embeddings, as in ELECTRA.
    """
    places = {path: _LAYER.match(path) for path in _weights(model)}
    counts: dict[str, int] = {}
    for place in filter(None, places.values()):
        counts[place[1]] = max(counts.get(place[1], 0), int(place[2]) + 1)

    def depth(path: str) -> int:
        if place := places[path]:
            return counts[place[1]] + 1 - int(place[2])
        if not path.startswith("backbone/"):
            return 0
        return 1 if set(_ABOVE) & set(path.split("/")) else max(counts.values(), default=0) + 2

    return {path: depth(path) for path in places}


def freeze(model: PretrainedModel, num_layers: int, *, embeddings: bool = True) -> None:
    """Excludes the lower layers of a model from training; call it before `compile`.

    Args:
        model: The model; its variables change their `trainable`.
        num_layers: Number of layers from below, of the encoder and of the decoder of a model that has both.
        embeddings: Whether to exclude the embeddings, too: all that comes before the first layer. An output that is
            tied to the table of tokens is then not trained either.

    Raises:
        InputError: the model has fewer layers.
    """
    variables = _weights(model)
    places = {path: _LAYER.match(path) for path in variables}
    most = 1 + max((int(place[2]) for place in places.values() if place), default=-1)
    num_layers = check("num_layers", num_layers, integer(0))
    if num_layers > most:
        raise InputError(f"The model has {most} layers. Expected: at most this number. Received: {num_layers=}")
    lowest = most + 2
    embeddings = check("embeddings", embeddings, BOOLEAN)
    for path, depth in layer_depths(model).items():
        place = places[path]
        if int(place[2]) < num_layers if place else embeddings and depth == lowest:
            variables[path].trainable = False


def _weights(model: PretrainedModel) -> dict[str, keras.Variable]:
    """Returns the variables of a model by their path below it, without the states of random number generators."""
    paths = {variable.path.partition("/")[2]: variable for variable in model.variables}
    return {path: variable for path, variable in paths.items() if not path.startswith("seed_generator")}


def _decays(path: str, variable: keras.Variable) -> bool:
    """Whether a variable has weight decay: matrices and tables, but for those of norms and of biases of attention."""
    return len(variable.shape) > 1 and not any(part.endswith(("norm", "bias")) for part in path.split("/"))
