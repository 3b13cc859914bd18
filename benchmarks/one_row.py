"""Time of a step of one text in Keras, by the form of its products: `python -m benchmarks.one_row CHECKPOINT`.

XLA of TensorFlow joins a product of one row with the addition of its bias, and computes both in one thread; a product
that stands alone is computed in several threads, which takes more processor time. The forms are measured in turn:

- `joined`: as `KerasStep` computes them;
- `alone`: a barrier separates each product from its bias;
- `alone, table first`: also, a tied output layer is the table times the row, without a transposition in the graph.

If elapsed and processor time are equal, one thread was used. The figures need a quiet machine. The backend is that of
`KERAS_BACKEND`, TensorFlow or JAX.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasformer import zoo
from kerasformer.layers.primitives import Primitives, lowering
from kerasformer.models.keras_engine import KerasStep


class Alone(Primitives):
    """Products that are separated from the addition of their bias.

    Args:
        table_first: Whether the product with a transposed kernel is computed as the kernel times the row.
    """

    def __init__(self, table_first: bool) -> None:
        self._table_first = table_first

    def linear(self, x: Any, kernel: Any, bias: Any = None, *, transposed: bool = False) -> Any:
        """See `Primitives.linear`."""
        if transposed and self._table_first:
            *outer, size = ops.shape(x)
            table = ops.convert_to_tensor(kernel)
            rows = ops.transpose(ops.reshape(_barrier(x), (-1, size)))
            y = ops.reshape(ops.transpose(ops.matmul(table, rows)), (*outer, table.shape[0]))
        else:
            y = super().linear(x, kernel, transposed=transposed)
        y = _barrier(y)
        return y if bias is None else ops.add(y, bias)


FORMS: dict[str, Primitives | None] = {
    "joined": None,
    "alone": Alone(table_first=False),
    "alone, table first": Alone(table_first=True),
}


def _barrier(x: Any) -> Any:
    if keras.backend.backend() == "jax":
        import jax

        return jax.lax.optimization_barrier(x)
    from tensorflow.compiler.tf2xla.python import xla  # TensorFlow has no public name for it

    return xla.optimization_barrier(x)[0]


class Measured:
    """The times of a form.

    Args:
        model: The model.
        form: How products are computed; `None` for the form of `KerasStep`.
        prompt: Token ids `(1, N)`.
        capacity: Number of slots in the cache.
    """

    def __init__(self, model: Any, form: Primitives | None, prompt: np.ndarray, capacity: int) -> None:
        model.__dict__.pop("_compiled_functions", None)  # those of another form
        self._step = KerasStep(model, capacity)
        self._functions = self._step._functions
        self._model, self._tokens = model, prompt[:, -1:]
        start = time.process_time()
        with nullcontext() if form is None else lowering(form):
            self._state = self._step.start(prompt, np.ones_like(prompt))
            self.logits, _ = self._step.step(self._tokens, self._state)
        self.compile_s = time.process_time() - start
        self.elapsed: list[float] = []
        self.processor: list[float] = []

    def run(self) -> None:
        """Measures a step."""
        self._model.__dict__["_compiled_functions"] = {self._step._key: self._functions}
        time.sleep(0.002)  # threads that wait for work of the last step stop doing so
        start, processor = time.perf_counter(), time.process_time()
        self._step.step(self._tokens, self._state)
        self.elapsed.append(1e3 * (time.perf_counter() - start))
        self.processor.append(1e3 * (time.process_time() - processor))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_row", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--capacity", type=int, default=160, help="number of slots in the cache")
    parser.add_argument("--rounds", type=int, default=100, help="number of steps of each form")
    options = parser.parse_args()
    model = zoo.load(options.checkpoint)
    prompt = np.random.default_rng(0).integers(1, model.config.vocab_size, (1, 32), "int32")
    forms = {name: Measured(model, form, prompt, options.capacity) for name, form in FORMS.items()}
    rounds: list[Callable[[], None]] = [form.run for form in forms.values()] * options.rounds
    for run in rounds:
        run()
    print(f"{keras.backend.backend()}, {options.rounds} steps: milliseconds, best (median)")
    print(f"{'':20}{'elapsed':>16}{'processor':>18}{'first calls, s of processor time':>36}{'largest difference':>22}")
    for name, form in forms.items():
        times = "".join(f"{min(v):12.1f} ({statistics.median(v):5.1f})" for v in (form.elapsed, form.processor))
        difference = float(np.abs(form.logits - forms["joined"].logits).max())
        print(f"{name:18}{times}{form.compile_s:24.1f}{difference:25.1e}")


if __name__ == "__main__":
    main()
