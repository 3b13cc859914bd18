"""Weight tables: which Keras variable is which tensor of a checkpoint. One table loads and saves.

A row pairs one tensor with one Keras variable, or with several that the tensor holds side by side (fused queries,
keys and values). Variables are named by their path below the model, `backbone/encoder/layer_0/attention/query/kernel`;
`{i}` in a row stands for the number of a layer.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import global_state

from kerasformer.errors import CheckpointError, UnsupportedConfigError
from kerasformer.layers.core import LOW_RANK
from kerasformer.models.tensor_files import FLOATS, TensorFile


class Layout:
    """How one tensor of a checkpoint holds several variables, here side by side along its first axis.

    Shapes and values are those of PyTorch: a variable `(in, out)` of a transposed row is `(out, in)` here.
    """

    axis: int = 0

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Shape of the tensor, from those of the variables."""
        total = list(shapes[0])
        total[self.axis] = sum(shape[self.axis] for shape in shapes)
        return tuple(total)

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The values of the variables with these shapes."""
        ends = np.cumsum([shape[self.axis] for shape in shapes])[:-1]
        return np.split(tensor, ends, axis=self.axis)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """The tensor."""
        return np.concatenate(values, axis=self.axis)


@dataclass(frozen=True)
class SideBySide(Layout):
    """Variables that lie side by side along an axis: fused queries, keys and values (GPT-2).

    Attributes:
        axis: The axis of the tensor.
    """

    axis: int = 0


@dataclass(frozen=True)
class Interleaved(Layout):
    """Variables whose heads lie in turn along the first axis: of `(H, 3, D)` for queries, keys and values of BLOOM.

    Attributes:
        groups: Number of heads, or of groups of heads: each holds an equal share of every variable.
    """

    groups: int

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        grouped = tensor.reshape(self.groups, -1, *tensor.shape[1:])
        ends = np.cumsum([shape[0] // self.groups for shape in shapes])[:-1]
        return [
            part.reshape(shape) for part, shape in zip(np.split(grouped, ends, axis=1), map(tuple, shapes), strict=True)
        ]

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        grouped = [value.reshape(self.groups, -1, *value.shape[1:]) for value in values]
        return np.concatenate(grouped, axis=1).reshape(-1, *values[0].shape[1:])


@dataclass(frozen=True)
class Stacked(Layout):
    """Variables of one shape that are stacked along a new first axis; a single one has a first axis of 1."""

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        return (len(shapes), *shapes[0])

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return list(tensor)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return np.stack(values)


@dataclass(frozen=True)
class Offset(Layout):
    """One variable that is the tensor plus a constant: norms that multiply by `1 + w` (Gemma).

    Attributes:
        offset: The constant.
    """

    offset: float = 1.0

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return [tensor + tensor.dtype.type(self.offset)]

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return values[0] - values[0].dtype.type(self.offset)


@dataclass(frozen=True)
class Convolution(Layout):
    """The kernel of a convolution over tokens: `(out, in, size)` in the tensor, `(size * in, out)` in the variable.

    Attributes:
        size: Number of tokens that the convolution sees.
    """

    size: int = 1

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        rows, columns = shapes[0]
        return columns, rows // self.size, self.size

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return [tensor.transpose(2, 1, 0).reshape(-1, tensor.shape[0])]

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return values[0].reshape(self.size, -1, values[0].shape[1]).transpose(2, 1, 0)


@dataclass(frozen=True)
class Row:
    """One tensor and the variables that it holds.

    Attributes:
        variables: Keras paths, in the order in which the tensor holds them.
        tensor: Name in the checkpoint.
        transpose: The tensor is `(out, in)`, as `nn.Linear` keeps it, and the variable `(in, out)`.
        layout: How the tensor holds the variables, where it is not a single one as it is.
        optional: A checkpoint may lack the tensor; the variables then keep their initial values.
        copy: The tensor is written for readers that expect it, and not read: another row has the same variables.
    """

    variables: tuple[str, ...]
    tensor: str
    transpose: bool = False
    layout: Layout = SideBySide()  # noqa: RUF009  (frozen)
    optional: bool = False
    copy: bool = False

    def to_keras(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The variables' values; `shapes` are theirs."""
        parts = self.layout.split(tensor, self._turned(shapes))
        return [part.T if self.transpose else part for part in parts]

    def to_hf(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """The tensor."""
        return np.ascontiguousarray(self.layout.joined([value.T if self.transpose else value for value in values]))

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The tensor's shape, from those of the variables."""
        return self.layout.shape(self._turned(shapes))

    def _turned(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Shapes of the variables as PyTorch keeps them."""
        return [tuple(reversed(shape) if self.transpose else shape) for shape in shapes]


def dense(path: str, tensor: str, *, bias: bool = True, transpose: bool = True) -> list[Row]:
    """Rows of a `Dense`; `transpose=False` for a `Conv1D`, whose weight is `(in, out)` already."""
    rows = [Row((f"{path}/kernel",), f"{tensor}.weight", transpose)]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def fused(
    paths: Sequence[str], tensor: str, *, bias: bool = True, transpose: bool = True, groups: int | None = None
) -> list[Row]:
    """Rows of several `Dense` layers that the checkpoint keeps as one.

    Args:
        paths: Keras paths of the layers.
        tensor: Name of the one layer in the checkpoint.
        bias: The layers have a bias.
        transpose: As in `dense`.
        groups: Number of heads, or of groups of heads, if those of the layers lie in turn; see `Interleaved`.
    """
    kernels, biases = (tuple(f"{path}/{name}" for path in paths) for name in ("kernel", "bias"))
    layout: Layout = SideBySide(0 if transpose else 1) if groups is None else Interleaved(groups)
    rows = [Row(kernels, f"{tensor}.weight", transpose, layout)]
    return [*rows, Row(biases, f"{tensor}.bias", layout=SideBySide() if groups is None else layout)] if bias else rows


def norm(path: str, tensor: str, *, bias: bool = True, offset: float = 0.0) -> list[Row]:
    """Rows of a `LayerNormalization`, or of an `RMSNormalization` with `bias=False`.

    With `offset=1.0` the layer multiplies by `1 + w`, of which the checkpoint has `w`.
    """
    rows = [Row((f"{path}/scale",), f"{tensor}.weight", layout=Offset(offset) if offset else SideBySide())]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def embedding(path: str, tensor: str) -> list[Row]:
    """The row of an `Embedding`."""
    return [Row((f"{path}/embeddings",), f"{tensor}.weight")]


def convolution(path: str, tensor: str, size: int) -> list[Row]:
    """Rows of a `Dense` over the vectors of `size` neighbouring tokens, which the checkpoint keeps as a `Conv1d`."""
    return [
        Row((f"{path}/kernel",), f"{tensor}.weight", layout=Convolution(size=size)),
        Row((f"{path}/bias",), f"{tensor}.bias"),
    ]


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
        copies: Tensors that are copies of another one: each stands for the other in a file that lacks it.
        mark: A tensor, without prefix, by which checkpoints of the architecture are recognized.
        tokens: The tensor of the token embeddings, without prefix, for models whose output may be tied to it.
    """

    prefix: str = ""
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None
    tokens: str = ""

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """The name as the tables spell it; `heads` are the tensors of the heads, which have no prefix."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        return name if name.startswith(self.prefix) or name in heads else self.prefix + name

    def located(self, tensors: Iterable[str], heads: Collection[str]) -> dict[str, str]:
        """The tensors by the names that the tables use, copies under the name of their original too."""
        found = {self.canonical(name, heads): name for name in tensors}
        for copy, original in self.copies.items():
            if self.prefix + copy in found:
                found.setdefault(self.prefix + original, found[self.prefix + copy])
        for copy, original in self.copies.items():
            if self.prefix + original in found:
                found.setdefault(self.prefix + copy, found[self.prefix + original])
        return found

    def recognized(self, tensors: Iterable[str]) -> bool:
        """Whether tensors of these names are a checkpoint of the architecture, with or without head."""
        return self.mark is not None and any(self.canonical(name, ()) == self.prefix + self.mark for name in tensors)

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


HEAD = "head/"
"""Path below the model under which the variables of a task's head lie."""
_FOR_HEADS = "backbone/pooler/"
"""Path of the part of a backbone that only heads use, and that checkpoints of other tasks lack."""


class NewHead(Enum):
    """Whether a head starts with random numbers instead of the checkpoint's."""

    NEVER = "never"
    WHERE_NONE_FITS = "where the checkpoint has none of these shapes"
    ALWAYS = "always"


def load_weights(
    model: Any,
    file: TensorFile,
    names: Names,
    heads: Collection[str] = (),
    new: NewHead = NewHead.NEVER,
    rows: Sequence[Row] | None = None,
) -> list[str]:
    """Builds the model, each variable with the checkpoint's numbers from its beginning.

    Nothing is allocated or drawn at random before: the peak of memory is the model and one tensor.

    Args:
        model: A `PretrainedModel`, not built yet.
        file: The checkpoint; read one tensor at a time.
        names: How the checkpoint may spell them.
        heads: Tensors of the heads that this architecture may have; those of other tasks may be left over.
        new: Whether the head starts as in a new model; a pooler that the checkpoint lacks then does, too.
        rows: Another weight table than the model's own, for a file that is not in Hugging Face's format.

    Returns:
        The paths of the new variables.

    Raises:
        CheckpointError: one error with *all* tensors that are missing, left over, of the wrong shape or type; or with
            all that hold NaN or infinity.
    """
    flaws: list[str] = []
    with file.progress() as advance, waiting_variables():
        model.build()
        variables = variables_by_path(model)
        actual = names.located(file.names(), heads)
        rows = model.rows() if rows is None else rows
        absent = [row for row in rows if row.optional and row.tensor not in actual]
        rows = [row for row in rows if row not in absent and not row.copy]
        misfits = {row: found for row in rows if (found := _misfit(row, variables, actual, file))}
        fresh = _fresh(variables, misfits, new)
        wanted = [row for row in rows if not set(row.variables) & set(fresh)]
        unchanged = {path for row in absent for path in row.variables} - set(fresh)
        covered = [*(path for row in wanted for path in row.variables), *fresh, *unchanged]
        problems = [*_table_problems(variables, covered)]
        problems += [misfits[row] for row in wanted if row in misfits]
        problems += [found for row in wanted if (found := _of_wrong_kind(row, actual, file))]
        used = {*heads, *(row.tensor for row in rows)}
        left_over = sorted(name for name in actual if name not in used and not names.is_ignored(name))
        problems += [f"not known to this architecture: {actual[name]}" for name in left_over]
        if problems:
            unfit_head = any(row.variables[0].startswith(HEAD) for row in misfits)
            advice = "\nTo start with a new, untrained head, pass new_head=True." if unfit_head else ""
            raise CheckpointError(_listed(f"{file} does not fit {type(model).__name__}", problems) + advice)
        for row in wanted:
            read = partial(_read, file, actual[row.tensor], advance, flaws)
            _begin_with([variables[path] for path in row.variables], row, read)
    if flaws:
        raise CheckpointError(_listed(f"{file} holds tensors that cannot be used", flaws))
    return fresh


@contextmanager
def waiting_variables() -> Iterator[None]:
    """Variables made in this block wait for memory and values until it ends; if it raises, they get none."""
    before = list(global_state.get_global_attribute("uninitialized_variables") or [])

    def forget() -> None:
        # Keras fills what waits whenever a scope ends: what was left here would be made by somebody else's.
        global_state.set_global_attribute("uninitialized_variables", before)

    try:
        with keras.StatelessScope():
            try:
                yield
            except BaseException:
                forget()
                raise
    except BaseException:
        forget()
        raise


def build_within_memory(model: Any) -> None:
    """Creates a model's variables, if this machine has the memory for them.

    Raises:
        UnsupportedConfigError: it has not.
    """
    with waiting_variables():
        model.build()
        sizes = [math.prod(variable.shape) * _bytes(variable.dtype) for variable in variables_by_path(model).values()]
        limit = _memory()
        if sum(sizes) > limit:
            raise UnsupportedConfigError(
                f"{type(model).__name__} of this configuration is larger than the memory of this machine. "
                f"Expected at most {limit / 2**30:.1f} GiB of weights. Received: {sum(sizes) / 2**30:.1f} GiB"
            )


def _bytes(dtype: str) -> int:
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1


def _memory() -> float:
    """Bytes of this machine's memory; infinity where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # Windows
        return math.inf


def _fresh(variables: Mapping[str, Any], misfits: Mapping[Row, str], new: NewHead) -> list[str]:
    """Paths of the variables that start as in a new model."""
    unfit = {path for row in misfits for path in row.variables}
    head = {path for path, variable in variables.items() if path.startswith(HEAD) and variable.trainable}
    if new is NewHead.NEVER or (new is NewHead.WHERE_NONE_FITS and not head & unfit):
        return []
    return [path for path in variables if path in head or (path in unfit and path.startswith(_FOR_HEADS))]


def _read(file: TensorFile, name: str, advance: Callable[[int], None], flaws: list[str], dtype: str) -> np.ndarray:
    """A tensor as a variable of this type takes it; what is wrong with it is noted, so that all is told at once."""
    try:
        tensor = file.read(name)
        if tensor.dtype == np.float64:
            with np.errstate(over="ignore"):
                tensor = tensor.astype("float32")
        flaws += _flaws(name, tensor, dtype)
    except Exception as error:
        flaws.append(f"{name} cannot be read: {error}")
        tensor = np.zeros(file.shape(name), "float32")
    advance(tensor.nbytes)
    return tensor


def _flaws(name: str, tensor: np.ndarray, dtype: str) -> Iterator[str]:
    """NaN and infinity. One sum tells of both, and needs no memory: it is finite if all numbers are."""
    with np.errstate(all="ignore"):
        if not np.isfinite(tensor.sum(dtype="float32")):
            count = tensor.size - np.count_nonzero(np.isfinite(tensor))
            if count:
                yield f"{name} holds NaN or infinity, in {count} of {tensor.size} numbers"
                return
    if dtype == "float16" and tensor.size and max(-tensor.min(), tensor.max()) > np.finfo(dtype).max:
        yield f"{name} holds numbers beyond the range of float16, in which the model was to be loaded"


def _begin_with(variables: Sequence[Any], row: Row, read: Callable[[str], np.ndarray]) -> None:
    """Variables that wait for their values will get those of a row, which is read when the first one asks."""
    shapes = [variable.shape for variable in variables]
    parts: list[Any] = []

    def value(place: int, shape: Any, dtype: str) -> Any:
        if not parts:
            parts.extend(row.to_keras(read(dtype), shapes))
        part, parts[place] = parts[place], None
        return part if part.dtype.name == dtype else keras.ops.cast(part, dtype)

    for place, variable in enumerate(variables):
        variable._initializer = partial(value, place)


def _listed(what: str, problems: Sequence[str]) -> str:
    return f"{what} ({len(problems)} problems):\n  " + "\n  ".join(problems)


def _table_problems(variables: Mapping[str, Any], covered: Sequence[str]) -> Iterator[str]:
    for path in sorted(set(variables) - set(covered)):
        yield f"the weight table has no row for the variable {path}"
    for path in sorted(set(covered) - set(variables)):
        yield f"the weight table names a variable that the model does not have: {path}"
    for path, times in Counter(covered).items():
        if times > 1:
            yield f"the weight table assigns {path} {times} times"


def _misfit(row: Row, variables: Mapping[str, Any], actual: Mapping[str, str], file: TensorFile) -> str | None:
    """That a tensor is missing, or of another shape."""
    if row.tensor not in actual:
        return f"missing: {row.tensor}"
    if all(path in variables for path in row.variables):
        expected = row.shape([variables[path].shape for path in row.variables])
        received = file.shape(actual[row.tensor])
        if expected != received:
            return f"shape of {row.tensor}: expected {expected}, received {received}"
    return None


def _of_wrong_kind(row: Row, actual: Mapping[str, str], file: TensorFile) -> str | None:
    """That a tensor does not hold floating-point numbers."""
    problem = file.problem(actual[row.tensor]) if row.tensor in actual else None
    return problem and f"type of {row.tensor}: expected {FLOATS}, received a tensor {problem}"


def hf_tensors(model: keras.Model, rows: Sequence[Row]) -> Iterator[tuple[str, np.ndarray]]:
    """The model's weights as the checkpoint's tensors, one at a time."""
    variables = variables_by_path(model)
    missing = set(variables) - {path for row in rows for path in row.variables}
    if missing:
        raise CheckpointError(f"The weight table has no row for: {', '.join(sorted(missing))}")
    for row in rows:
        yield row.tensor, row.to_hf([np.asarray(variables[path]) for path in row.variables])
