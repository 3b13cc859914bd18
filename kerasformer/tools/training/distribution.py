"""Training on several devices: batches divided among them (data parallel), and matrices (model parallel)."""

from __future__ import annotations

from typing import Any

import keras

from kerasformer.basics.arguments import check, integer, optional
from kerasformer.errors import InputError
from kerasformer.extras import require

BATCH = "batch"
"""Axis of the devices among which a batch is divided."""
MODEL = "model"
"""Axis of the devices among which matrices are divided."""

# Keras matches whole paths. The columns of the first matrix of a block and the rows of the second one are divided, so
# that only the output of the block is summed over the devices.
_COLUMNS = r".*/(query|key|value|relative_query|relative_key)(_global)?|.*/(intermediate|gate|up)"
_ROWS = r".*attention/output|.*(feed_forward|inner_\d+)/output"
LAYOUT = {
    rf"({_COLUMNS})/kernel": (None, MODEL),
    rf"({_COLUMNS})/bias": (MODEL,),
    rf"({_ROWS})/kernel": (MODEL, None),
    r".*tokens/embeddings": (MODEL, None),
    r".*/head/kernel": (None, MODEL),
}
"""Axis of the devices for each axis of a variable, by a regular expression for its path; others are on every device."""


class ModelParallel(keras.distribution.ModelParallel):
    """`keras.distribution.ModelParallel` for every architecture of the zoo.

    Attention heads, the inner dimension of the feed-forward layers and the vocabulary are divided among the devices; an
    axis whose size is not a multiple of their number is not divided.

    Args:
        layout_map: Layouts by path, `LAYOUT` on the mesh.
        kwargs: Arguments of `keras.distribution.ModelParallel`.

    Reference: Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3.
    """

    def get_variable_layout(self, variable: keras.Variable) -> keras.distribution.TensorLayout:
        """Returns the layout of a variable."""
        layout = super().get_variable_layout(variable)
        parts = dict(zip(self.device_mesh.axis_names, self.device_mesh.shape, strict=True))
        if all(size % parts.get(axis, 1) == 0 for size, axis in zip(variable.shape, layout.axes, strict=True)):
            return layout
        return keras.distribution.TensorLayout([None] * len(variable.shape), self.device_mesh)


def distribute(data: int | None = None, model: int = 1) -> Any:
    """Returns how a model is trained on several devices, on the backend of Keras.

        with kf.training.distribute().scope():
            net = kf.load("sentiment-bert", labels=names)
            net.compile(kf.training.optimizer(net, 5e-5, steps=steps), loss)
            net.fit(data)

    The model is created, compiled and trained within the scope. A batch is divided among the devices, so that its size
    is that of all of them together and must be a multiple of `data`. The result is that of one device, but for rounding
    and for the random numbers of dropout. Losses that ignore positions are averaged over devices on TensorFlow, and
    over all positions on JAX. Of several processes that `keras.distribution.initialize` has joined, each passes its own
    part of every batch, of the same shape.

    Args:
        data: Number of devices, or groups of devices, among which a batch is divided; by default, all that there are.
        model: Number of devices of a group, among which the matrices are divided, for models that are too large for
            one device. Only on JAX.

    Returns:
        On JAX a `keras.distribution.Distribution`, on TensorFlow a `tf.distribute.MirroredStrategy`; both have
        `scope()`.

    Raises:
        InputError: an argument is not accepted, there are fewer devices, or the backend does not support it.

    Reference: Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053.
    """
    data, model = check("data", data, optional(integer(1))), check("model", model, integer(1))
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow") or (model > 1 and backend != "jax"):
        needed = "the backend JAX" if model > 1 else "one of the backends JAX and TensorFlow"
        raise InputError(
            f"Training on several devices needs {needed}. Received: {backend}, model={model}. Set KERAS_BACKEND"
        )
    devices = _devices(backend)
    groups = data or max(1, len(devices) // model)
    if groups * model > len(devices):
        raise InputError(
            f"There are {len(devices)} devices. Expected: data times model of at most these. Received: data={groups}, "
            f"model={model}"
        )
    used = devices[: groups * model]
    if backend == "tensorflow":
        return require("tensorflow", "tensorflow").distribute.MirroredStrategy(used)
    if model == 1:
        return keras.distribution.DataParallel(devices=used, auto_shard_dataset=False)
    layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((groups, model), [BATCH, MODEL], used))
    for path, axes in LAYOUT.items():
        layouts[path] = axes
    return ModelParallel(layout_map=layouts, batch_dim_name=BATCH, auto_shard_dataset=False)


def _devices(backend: str) -> list[str]:
    """Returns the names of the accelerators of this process, or of its CPU devices if it has none."""
    if backend == "jax":
        return list(keras.distribution.list_devices())
    tensorflow = require("tensorflow", "tensorflow")
    accelerators = tensorflow.config.list_logical_devices("GPU")
    return [device.name for device in accelerators or tensorflow.config.list_logical_devices("CPU")]
