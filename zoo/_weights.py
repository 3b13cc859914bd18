"""Weight tables: which Keras variable is which tensor of a checkpoint. One table loads and saves.

A row pairs one tensor with one Keras variable, or with several that the tensor holds side by side (fused queries,
keys and values). Variables are named by their path below the model, `backbone/encoder/layer_0/attention/query/kernel`;
`{i}` in a row stands for the number of a layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import keras
import numpy as np

from kerasformer.errors import CheckpointError
from kerasformer.layers.core import LOW_RANK
from kerasformer.zoo._tensors import TensorFile


@dataclass(frozen=True)
class Row:
    """One tensor and the variables that it holds.

    Attributes:
        variables: Keras paths, in the order in which the tensor holds them.
        tensor: Name in the checkpoint.
        transpose: The tensor is `(out, in)`, as `nn.Linear` keeps it, and the variable `(in, out)`.
        axis: The tensor's axis along which several variables lie side by side.
    """

    variables: tuple[str, ...]
    tensor: str
    transpose: bool = False
    axis: int = 0

    def to_keras(self, tensor: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
        """The variables' values; `sizes` are their lengths along the tensor's axis."""
        parts = np.split(tensor, np.cumsum(sizes)[:-1], axis=self.axis) if len(self.variables) > 1 else [tensor]
        return [part.T if self.transpose else part for part in parts]

    def to_hf(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """The tensor."""
        parts = [value.T if self.transpose else value for value in values]
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=self.axis))

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The tensor's shape, from those of the variables."""
        parts = [list(reversed(shape)) if self.transpose else list(shape) for shape in shapes]
        total = parts[0]
        total[self.axis] = sum(part[self.axis] for part in parts)
        return tuple(total)

    def sizes(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """Length of each variable along the tensor's axis."""
        return [(list(reversed(shape)) if self.transpose else list(shape))[self.axis] for shape in shapes]


def dense(path: str, tensor: str, *, bias: bool = True, transpose: bool = True) -> list[Row]:
    """Rows of a `Dense`; `transpose=False` for a `Conv1D`, whose weight is `(in, out)` already."""
    rows = [Row((f"{path}/kernel",), f"{tensor}.weight", transpose)]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def fused(paths: Sequence[str], tensor: str, *, bias: bool = True, transpose: bool = True) -> list[Row]:
    """Rows of several `Dense` layers that the checkpoint keeps as one."""
    kernels = tuple(f"{path}/kernel" for path in paths)
    rows = [Row(kernels, f"{tensor}.weight", transpose, axis=0 if transpose else 1)]
    return [*rows, Row(tuple(f"{path}/bias" for path in paths), f"{tensor}.bias")] if bias else rows


def norm(path: str, tensor: str, *, bias: bool = True) -> list[Row]:
    """Rows of a `LayerNormalization`, or of an `RMSNormalization` with `bias=False`."""
    rows = [Row((f"{path}/scale",), f"{tensor}.weight")]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def embedding(path: str, tensor: str) -> list[Row]:
    """The row of an `Embedding`."""
    return [Row((f"{path}/embeddings",), f"{tensor}.weight")]


def repeat(count: int, rows: Iterable[Row]) -> list[Row]:
    """The rows once for each layer, with its number in the place of `{i}`."""
    return [
        replace(
            row,
            variables=tuple(path.replace("{i}", str(i)) for path in row.variables),
            tensor=row.tensor.replace("{i}", str(i)),
        )
        for i in range(count)
        for row in rows
    ]


def nested(rows: Iterable[Row], path: str = "", prefix: str = "") -> list[Row]:
    """The rows of a part, under the part's Keras path and its tensors' prefix."""
    return [
        replace(row, variables=tuple(path + name for name in row.variables), tensor=prefix + row.tensor) for row in rows
    ]


@dataclass(frozen=True)
class Names:
    """How a checkpoint of an architecture may spell its tensors.

    Attributes:
        prefix: Of the backbone's tensors, such as `"bert."`; a checkpoint of the bare backbone lacks it.
        ignored: Regular expressions of tensors that hold no parameter of their own (tied copies, buffers), or that
            only some tasks have a use for; with or without the prefix.
        copies: Tensors that are copies of another one, and stand for it in a file that lacks it.
    """

    prefix: str = ""
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """The name as the tables spell it; `heads` are the tensors of the heads, which have no prefix."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        return name if name.startswith(self.prefix) or name in heads else self.prefix + name

    def is_ignored(self, name: str) -> bool:
        """Whether nothing is lost without the tensor."""
        bare = name.removeprefix(self.prefix)
        return bare in self.copies or any(re.fullmatch(pattern, bare) for pattern in self.ignored)


def variables_by_path(model: keras.Model) -> dict[str, Any]:
    """The model's weights under their path below the model; random-number states are not weights.

    Nor are low-rank matrices: whoever writes the weights does so within `merged_lora`.
    """
    return {
        variable.path.split("/", 1)[1]: variable
        for variable in model.variables
        if not any(name in variable.path for name in ("seed_generator", "metrics", f"/{LOW_RANK}"))
    }


def load_weights(
    model: Any,
    file: TensorFile,
    names: Names,
    heads: Collection[str] = (),
    new: str | None = None,
    rows: Sequence[Row] | None = None,
) -> list[str]:
    """Builds the model, each variable with the checkpoint's numbers from its beginning.

    Nothing is allocated or drawn at random before: the peak of memory is the model and one tensor.

    Args:
        model: A `PretrainedModel`, not built yet.
        file: The checkpoint; read one tensor at a time.
        names: How the checkpoint may spell them.
        heads: Tensors of the heads that this architecture may have; those of other tasks may be left over.
        new: Path prefix of variables that begin as in a new model: a head that the caller asked to be new.
        rows: Another weight table than the model's own, for a file that is not in Hugging Face's format.

    Returns:
        The paths of the new variables.

    Raises:
        CheckpointError: one error with *all* tensors that are missing, left over or of the wrong shape.
    """
    with file.progress() as advance, keras.StatelessScope():
        model.build()  # in this scope, variables wait for their values until it ends
        variables = variables_by_path(model)
        actual = {names.canonical(name, heads): name for name in file.names()}
        for copy, original in names.copies.items():
            if names.prefix + copy in actual:
                actual.setdefault(names.prefix + original, actual[names.prefix + copy])
        fresh = [path for path in variables if new is not None and path.startswith(new)]
        rows = model.rows() if rows is None else rows
        wanted = [row for row in rows if not set(row.variables) & set(fresh)]
        problems = [*_table_problems(variables, [*(path for row in wanted for path in row.variables), *fresh])]
        problems += _tensor_problems(variables, wanted, actual, file)
        used = {*heads, *(row.tensor for row in rows)}
        left_over = sorted(name for name in actual if name not in used and not names.is_ignored(name))
        problems += [f"not known to this architecture: {actual[name]}" for name in left_over]
        if problems:
            for variable in variables.values():
                variable._initializer = keras.initializers.Zeros()
            raise CheckpointError(
                f"{file} does not fit {type(model).__name__} ({len(problems)} problems):\n  " + "\n  ".join(problems)
            )
        for row in wanted:
            _begin_with([variables[path] for path in row.variables], row, file, actual[row.tensor], advance)
    return fresh


def _begin_with(
    variables: Sequence[Any], row: Row, file: TensorFile, name: str, advance: Callable[[int], None]
) -> None:
    """Variables that wait for their values will get those of a row, which is read when the first one asks."""
    sizes = row.sizes([variable.shape for variable in variables])
    parts: list[Any] = []

    def value(place: int, shape: Any, dtype: str) -> Any:
        if not parts:
            tensor = file.read(name)
            advance(tensor.nbytes)
            parts.extend(row.to_keras(tensor, sizes))
        part, parts[place] = parts[place], None
        return part if part.dtype.name == dtype else keras.ops.cast(part, dtype)

    for place, variable in enumerate(variables):
        variable._initializer = partial(value, place)


def _table_problems(variables: Mapping[str, Any], covered: Sequence[str]) -> Iterator[str]:
    for path in sorted(set(variables) - set(covered)):
        yield f"the weight table has no row for the variable {path}"
    for path in sorted(set(covered) - set(variables)):
        yield f"the weight table names a variable that the model does not have: {path}"
    for path, times in Counter(covered).items():
        if times > 1:
            yield f"the weight table assigns {path} {times} times"


def _tensor_problems(
    variables: Mapping[str, Any], rows: Sequence[Row], actual: Mapping[str, str], file: TensorFile
) -> Iterator[str]:
    for row in rows:
        if row.tensor not in actual:
            yield f"missing: {row.tensor}"
        elif all(path in variables for path in row.variables):
            expected = row.shape([variables[path].shape for path in row.variables])
            received = file.shape(actual[row.tensor])
            if expected != received:
                yield f"shape of {row.tensor}: expected {expected}, received {received}"


def hf_tensors(model: keras.Model, rows: Sequence[Row]) -> Iterator[tuple[str, np.ndarray]]:
    """The model's weights as the checkpoint's tensors, one at a time."""
    variables = variables_by_path(model)
    missing = set(variables) - {path for row in rows for path in row.variables}
    if missing:
        raise CheckpointError(f"The weight table has no row for: {', '.join(sorted(missing))}")
    for row in rows:
        yield row.tensor, row.to_hf([np.asarray(variables[path]) for path in row.variables])
