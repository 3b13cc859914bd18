"""Weight tables: mappings between Keras variables and tensors of checkpoints, for loading and saving.

A row maps one tensor to one Keras variable, or to several that the tensor combines (such as fused queries, keys and
values). Variables are identified by their path below the model, `backbone/encoder/layer_0/attention/query/kernel`;
`{i}` in a row is replaced by the index of a layer.
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
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras.src.backend.common import global_state

from kerasformer.errors import CheckpointError, MissingHeadError, UnsupportedConfigError
from kerasformer.layers.core import LOW_RANK
from kerasformer.layers.positions import sinusoids
from kerasformer.process import return_memory
from kerasformer.tensor_files import FLOATS, TensorFile

if TYPE_CHECKING:
    from kerasformer.models.pretrained import PretrainedModel


class Layout:
    """Arrangement of variables in a tensor of a checkpoint; by default they are concatenated along the first axis.

    Shapes and values are those of PyTorch: a variable `(in, out)` of a transposed row is `(out, in)` here.

    Attributes:
        axis: Axis of concatenation.
    """

    axis: int = 0

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Returns the shape of the tensor from the shapes of the variables."""
        total = list(shapes[0])
        total[self.axis] = sum(shape[self.axis] for shape in shapes)
        return tuple(total)

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Splits the tensor into the values of variables with these shapes."""
        ends = np.cumsum([shape[self.axis] for shape in shapes])[:-1]
        return np.split(tensor, ends, axis=self.axis)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Joins the values of the variables to the tensor."""
        return np.concatenate(values, axis=self.axis)


@dataclass(frozen=True)
class SideBySide(Layout):
    """Variables concatenated along an axis, such as fused queries, keys and values (GPT-2).

    Attributes:
        axis: Axis of concatenation.
    """

    axis: int = 0


@dataclass(frozen=True)
class Interleaved(Layout):
    """Variables interleaved by heads along the first axis, such as `(H, 3, D)` for queries, keys and values of BLOOM.

    Attributes:
        groups: Number of heads, or of groups of heads, each with an equal share of every variable.
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
    """Variables of equal shape stacked along a new first axis, which has size 1 for a single variable."""

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
    """Variable that is the tensor plus a constant, such as the scale of norms that multiply by `1 + w` (Gemma).

    Attributes:
        offset: The constant.
    """

    offset: float = 1.0

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `Layout.split`."""
        return [tensor.astype("float32") + np.float32(self.offset)]  # 1 + w has more digits than a w of 16 bits

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.joined`."""
        return (values[0].astype("float32") - np.float32(self.offset)).astype(values[0].dtype)


@dataclass(frozen=True)
class Convolution(Layout):
    """Kernel of a convolution over tokens: `(out, in, size)` in the tensor, `(size * in, out)` in the variable.

    Attributes:
        size: Number of tokens in the kernel.
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
class SinusoidTable(Layout):
    """Tensor of a row without variables: a table of sinusoids, all sines before all cosines, which layers compute.

    Attributes:
        max_length: Number of positions.
        hidden_dim: Size of a vector.
    """

    max_length: int
    hidden_dim: int

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """See `Layout.shape`."""
        return self.max_length, self.hidden_dim

    def split(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Checks the values, within the precision of bfloat16.

        Raises:
            ValueError: other values.
        """
        error = np.abs(tensor.astype("float32") - self.joined(())).max()
        if not error < 2**-8:
            raise ValueError(f"expected a table of sinusoids, received values that differ by up to {error:.2g}")
        return []

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the table."""
        return sinusoids(self.max_length, self.hidden_dim, interleaved=False)


@dataclass(frozen=True)
class Row:
    """A tensor and the variables that it contains.

    Attributes:
        variables: Keras paths, in their order in the tensor; empty for a constant tensor that layers compute.
        tensor: Name of the tensor in the checkpoint.
        transpose: Whether the tensor is `(out, in)`, as in `nn.Linear`, and the variable `(in, out)`.
        layout: Arrangement of the variables in the tensor.
        optional: Whether checkpoints may lack the tensor; the variables then keep their initial values.
        copy: Whether the tensor is only saved, for programs that expect it; another row loads the same variables.
    """

    variables: tuple[str, ...]
    tensor: str
    transpose: bool = False
    layout: Layout = SideBySide()  # noqa: RUF009  (frozen)
    optional: bool = False
    copy: bool = False

    def to_keras(self, tensor: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Converts the tensor to the values of the variables, which have these shapes."""
        parts = self.layout.split(tensor, self._torch_shapes(shapes))
        return [part.T if self.transpose else part for part in parts]

    def to_hf(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Converts the values of the variables to the tensor."""
        return np.ascontiguousarray(self.layout.joined([value.T if self.transpose else value for value in values]))

    def shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Returns the shape of the tensor from the shapes of the variables."""
        return self.layout.shape(self._torch_shapes(shapes))

    def _torch_shapes(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Returns the shapes of the variables in PyTorch."""
        return [tuple(reversed(shape) if self.transpose else shape) for shape in shapes]


def dense(path: str, tensor: str, *, bias: bool = True, transpose: bool = True) -> list[Row]:
    """Returns the rows of a `Dense`; `transpose=False` for a weight `(in, out)`, as in `Conv1D` of `transformers`."""
    rows = [Row((f"{path}/kernel",), f"{tensor}.weight", transpose)]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def fused(
    paths: Sequence[str], tensor: str, *, bias: bool = True, transpose: bool = True, groups: int | None = None
) -> list[Row]:
    """Returns the rows of several `Dense` layers that are a single layer in the checkpoint.

    Args:
        paths: Keras paths of the layers.
        tensor: Name of the layer in the checkpoint.
        bias: Whether the layers have a bias.
        transpose: As in `dense`.
        groups: Number of heads, or of groups of heads, by which the layers are interleaved, see `Interleaved`; `None`
            if they are concatenated.
    """
    kernels, biases = (tuple(f"{path}/{name}" for path in paths) for name in ("kernel", "bias"))
    layout: Layout = SideBySide(0 if transpose else 1) if groups is None else Interleaved(groups)
    rows = [Row(kernels, f"{tensor}.weight", transpose, layout)]
    return [*rows, Row(biases, f"{tensor}.bias", layout=SideBySide() if groups is None else layout)] if bias else rows


def norm(path: str, tensor: str, *, bias: bool = True, offset: float = 0.0) -> list[Row]:
    """Returns the rows of a `LayerNormalization`, or of an `RMSNormalization` with `bias=False`.

    With `offset=1.0` the layer multiplies by `1 + w`, where `w` is the tensor of the checkpoint.
    """
    rows = [Row((f"{path}/scale",), f"{tensor}.weight", layout=Offset(offset) if offset else SideBySide())]
    return [*rows, Row((f"{path}/bias",), f"{tensor}.bias")] if bias else rows


def embedding(path: str, tensor: str) -> list[Row]:
    """Returns the row of an `Embedding`."""
    return [Row((f"{path}/embeddings",), f"{tensor}.weight")]


def convolution(path: str, tensor: str, size: int) -> list[Row]:
    """Returns the rows of a `Dense` over `size` neighbouring tokens, which is a `Conv1d` in the checkpoint."""
    return [
        Row((f"{path}/kernel",), f"{tensor}.weight", layout=Convolution(size=size)),
        Row((f"{path}/bias",), f"{tensor}.bias"),
    ]


def sinusoid_table(tensor: str, max_length: int, hidden_dim: int) -> Row:
    """Returns the row of a table of sinusoids, which checkpoints may have, for layers that compute them."""
    return Row((), tensor, layout=SinusoidTable(max_length, hidden_dim), optional=True)


def repeat(count: int, rows: Iterable[Row]) -> list[Row]:
    """Repeats the rows for each layer, with its index instead of `{i}`."""
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
    """Prefixes the Keras paths and the tensor names of rows."""
    return [
        replace(row, variables=tuple(path + name for name in row.variables), tensor=prefix + row.tensor) for row in rows
    ]


@dataclass(frozen=True)
class Names:
    """Naming of the tensors in checkpoints of an architecture.

    Attributes:
        prefix: Prefix of the backbone's tensors, such as `"bert."`; checkpoints of the bare backbone lack it.
        ignored: Regular expressions of tensors without separate parameters (tied copies, buffers), or that only some
            tasks use; they match names without the prefix.
        copies: Names of tensors that are copies, with the name of the original; a file may contain either.
        tokens: Name of the token embeddings, without the prefix, for models whose output may be tied to them.
        other_prefixes: Prefixes that the backbone's tensors have in checkpoints of some tasks, see
            `PretrainedModel.prefix`.
    """

    prefix: str = ""
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    tokens: str = ""
    other_prefixes: tuple[str, ...] = ()

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """Converts a name to the one in weight tables; `heads` are the tensors of heads, which have no prefix."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if name in heads or (self.prefix and name.startswith(self.prefix)):
            return name
        other = next((prefix for prefix in self.other_prefixes if name.startswith(prefix)), "")
        return self.prefix + name.removeprefix(other)

    def located(self, tensors: Iterable[str], heads: Collection[str]) -> dict[str, str]:
        """Returns the names of tensors by their names in weight tables; copies also by the name of the original."""
        located = {self.canonical(name, heads): name for name in tensors}
        for copy, original in self.copies.items():
            if self.prefix + copy in located:
                located.setdefault(self.prefix + original, located[self.prefix + copy])
        for copy, original in self.copies.items():
            if self.prefix + original in located:
                located.setdefault(self.prefix + copy, located[self.prefix + original])
        return located

    def is_ignored(self, name: str) -> bool:
        """Whether a tensor need not be loaded."""
        bare = name.removeprefix(self.prefix)
        return bare in self.copies or any(re.fullmatch(pattern, bare) for pattern in self.ignored)


def variables_by_path(model: keras.Model) -> dict[str, Any]:
    """Returns the weights of a model by their path below the model, without states of random number generators.

    Low-rank matrices are not included: weights must be saved within `merged_lora`.
    """
    return {
        variable.path.split("/", 1)[1]: variable
        for variable in model.variables
        if not any(name in variable.path for name in ("seed_generator", "metrics", f"/{LOW_RANK}"))
    }


HEAD = "head/"
"""Path of the head below the model."""
_LARGE_MATRIX = 2**16
"""Number of values from which matrices may keep 16 bits; smaller tables, such as those of position biases, do not."""
_FOR_HEADS = "backbone/pooler/"
"""Path of the pooler, which is initialized together with a new head if a checkpoint lacks it."""


STORED = "_kerasformer_stored"
"""Attribute of a variable: an initializer that reads its value from the checkpoint, as often as it is called."""


class NewHead(Enum):
    """Condition under which the head of a model is initialized randomly instead of from the checkpoint."""

    NEVER = "never"
    WHERE_NONE_FITS = "where the checkpoint has none of these shapes"
    ALWAYS = "always"


def load_weights(
    model: PretrainedModel,
    file: TensorFile,
    names: Names,
    heads: Collection[str] = (),
    new: NewHead = NewHead.NEVER,
    rows: Sequence[Row] | None = None,
    keep_dtype: bool = False,
) -> list[str]:
    """Builds a model with the weights of a checkpoint as the initial values of its variables.

    No variable is allocated or initialized randomly before, so that the peak of memory is the model and one tensor.

    Args:
        model: A `PretrainedModel` that is not built yet.
        file: The checkpoint, which is read one tensor at a time.
        names: Naming of the tensors in the checkpoint.
        heads: Names of the tensors of all heads of the architecture; those of other tasks are ignored.
        new: Condition under which the head is initialized randomly, and with it a pooler that the checkpoint lacks.
        rows: Weight table for files in another format than that of Hugging Face; that of the model by default.
        keep_dtype: Whether large float32 matrices keep 16 bits, if the file has no more. Layers convert a matrix where
            they use it.

    Returns:
        The paths of the variables that were initialized randomly.

    Raises:
        CheckpointError: tensors are missing, unknown, of the wrong shape or type, or contain NaN or infinity; one error
            lists all of them.
    """
    flaws: list[str] = []
    with file.progress() as advance, deferred_variables():
        model.build()
        variables = variables_by_path(model)
        actual = names.located(file.names(), heads)
        rows = model.rows() if rows is None else rows
        absent = [row for row in rows if row.optional and row.tensor not in actual]
        rows = [row for row in rows if row not in absent and not row.copy]
        mismatches = {row: problem for row in rows if (problem := _mismatch(row, variables, actual, file))}
        fresh = _fresh(variables, mismatches, new)
        loaded = [row for row in rows if not set(row.variables) & set(fresh)]
        unchanged = {path for row in absent for path in row.variables} - set(fresh)
        covered = [*(path for row in loaded for path in row.variables), *fresh, *unchanged]
        problems = [*_table_problems(variables, covered)]
        problems += [mismatches[row] for row in loaded if row in mismatches]
        problems += [problem for row in loaded if (problem := _wrong_type(row, actual, file))]
        used = {*heads, *(row.tensor for row in rows)}
        unknown = sorted(name for name in actual if name not in used and not names.is_ignored(name))
        problems += [f"unknown to this architecture: {actual[name]}" for name in unknown]
        if problems:
            raise _mismatch_error(model, file, problems, [row for row in rows if row in mismatches], actual)
        for row in loaded:
            read = partial(_read, file, actual[row.tensor], advance, flaws)
            if keep_dtype:
                _keep_dtype([variables[path] for path in row.variables], file.dtype(actual[row.tensor]))
            if not row.variables:
                flaws += _wrong_constant(row, file, actual[row.tensor], advance)
                continue
            _initialize_with([variables[path] for path in row.variables], row, read)
            if file.on_disk:
                _remember([variables[path] for path in row.variables], row, partial(_floats, file, actual[row.tensor]))
    if flaws:
        raise CheckpointError(_listed(f"{file} contains tensors that cannot be used", flaws))
    return fresh


def release_weights(model: PretrainedModel) -> None:
    """Frees the memory of the weights of a loaded model; from then on, each is read from its file where it is used.

    This is for an export, which uses one weight after the other. The model still computes the same, but slowly, and
    changes of its weights are lost. Weights stay in memory if the files did not contain them, or if the files are not
    safetensors.
    """
    for variable in model.variables:
        initializer = getattr(variable, STORED, None)
        if initializer is not None and variable._value is not None:
            _free(variable._value)
            # The state of a variable whose initialization is deferred: its value is what the initializer returns.
            variable._value, variable._initializer = None, initializer
    model.__dict__.pop("_compiled_functions", None)  # they read the variables
    return_memory()


def _free(value: Any) -> None:
    """Frees the memory of a variable of the backend, which compiled functions may still refer to."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.raw_ops.AssignVariableOp(resource=value.handle, value=tf.zeros((0,), value.dtype))


@contextmanager
def deferred_variables() -> Iterator[None]:
    """Context that defers the allocation and initialization of new variables to its end; an error discards them."""
    previous = list(global_state.get_global_attribute("uninitialized_variables") or [])

    def discard() -> None:
        # Keras initializes all deferred variables when any scope ends, which would include those of this model.
        global_state.set_global_attribute("uninitialized_variables", previous)

    try:
        with keras.StatelessScope():
            try:
                yield
            except BaseException:
                discard()
                raise
    except BaseException:
        discard()
        raise


def build_within_memory(model: PretrainedModel) -> None:
    """Creates the variables of a model, if they fit into the memory of this machine.

    Raises:
        UnsupportedConfigError: the model is larger than the memory.
    """
    with deferred_variables():
        model.build()
        sizes = [math.prod(variable.shape) * _bytes(variable.dtype) for variable in variables_by_path(model).values()]
        limit = _memory()
        if sum(sizes) > limit:
            raise UnsupportedConfigError(
                f"{type(model).__name__} with this configuration is larger than the memory of this machine. "
                f"Expected at most {limit / 2**30:.1f} GiB of weights. Received: {sum(sizes) / 2**30:.1f} GiB"
            )


def _bytes(dtype: str) -> int:
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1


def _memory() -> float:
    """Returns the memory of this machine in bytes; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # Windows
        return math.inf


def _fresh(variables: Mapping[str, Any], mismatches: Mapping[Row, str], new: NewHead) -> list[str]:
    """Returns the paths of the variables to initialize randomly."""
    mismatched = {path for row in mismatches for path in row.variables}
    head = {path for path, variable in variables.items() if path.startswith(HEAD) and variable.trainable}
    if new is NewHead.NEVER or (new is NewHead.WHERE_NONE_FITS and not head & mismatched):
        return []
    return [path for path in variables if path in head or (path in mismatched and path.startswith(_FOR_HEADS))]


def _read(file: TensorFile, name: str, advance: Callable[[int], None], flaws: list[str], dtype: str) -> np.ndarray:
    """Reads a tensor for a variable of this type; adds problems to `flaws`, so that one error lists them all."""
    try:
        tensor = _floats(file, name)
        flaws += _flaws(name, tensor, dtype)
    except Exception as error:
        flaws.append(f"{name} cannot be read: {error}")
        tensor = np.zeros(file.shape(name), "float32")
    advance(tensor.nbytes)
    return tensor


def _floats(file: TensorFile, name: str) -> np.ndarray:
    """Reads a tensor of at most 32 bits."""
    tensor = file.read(name)
    if tensor.dtype != np.float64:
        return tensor
    with np.errstate(over="ignore"):
        return tensor.astype("float32")


def _wrong_constant(row: Row, file: TensorFile, name: str, advance: Callable[[int], None]) -> list[str]:
    """Returns the problem of a tensor that the layers compute, if it has other values."""
    flaws: list[str] = []
    tensor = _read(file, name, advance, flaws, "float32")
    try:
        row.to_keras(tensor, [])
    except ValueError as error:
        flaws = flaws or [f"{name}: {error}"]
    return flaws


def _flaws(name: str, tensor: np.ndarray, dtype: str) -> Iterator[str]:
    """Yields problems with the values of a tensor.

    NaN and infinity are detected by a sum, which needs no memory: it is finite only if all values are.
    """
    with np.errstate(all="ignore"):
        if not np.isfinite(tensor.sum(dtype="float32")):
            count = tensor.size - np.count_nonzero(np.isfinite(tensor))
            if count:
                yield f"{name} contains NaN or infinity, in {count} of {tensor.size} values"
                return
    if dtype == "float16" and tensor.size and max(-tensor.min(), tensor.max()) > np.finfo(dtype).max:
        yield f"{name} contains values beyond the range of float16, the data type of the model"


def _keep_dtype(variables: Iterable[Any], dtype: str) -> None:
    """Gives deferred float32 variables that are large matrices the data type of their tensor, if it has 16 bits."""
    for variable in variables:
        is_large = len(variable.shape) == 2 and math.prod(variable.shape) >= _LARGE_MATRIX
        if dtype in ("bfloat16", "float16") and variable.dtype == "float32" and is_large:
            variable._dtype = dtype


def _initialize_with(variables: Sequence[Any], row: Row, read: Callable[[str], np.ndarray]) -> None:
    """Makes a row the initial value of deferred variables; its tensor is read for the first of them."""
    shapes = [variable.shape for variable in variables]
    parts: list[Any] = []

    def value(index: int, shape: Any, dtype: str) -> Any:
        if not parts:
            parts.extend(row.to_keras(read(dtype), shapes))
        part, parts[index] = parts[index], None
        return _in_dtype(part, dtype)

    for index, variable in enumerate(variables):
        variable._initializer = partial(value, index)


def _remember(variables: Sequence[Any], row: Row, read: Callable[[], np.ndarray]) -> None:
    """Gives variables a further initializer, for `release_weights`, which reads the tensor of a row each time."""
    shapes = [variable.shape for variable in variables]

    def value(index: int, shape: Any, dtype: str) -> Any:
        return _in_dtype(row.to_keras(read(), shapes)[index], dtype)

    for index, variable in enumerate(variables):
        setattr(variable, STORED, partial(value, index))


def _in_dtype(value: np.ndarray, dtype: str) -> Any:
    return value if value.dtype.name == dtype else keras.ops.cast(value, dtype)


def _mismatch_error(
    model: PretrainedModel, file: TensorFile, problems: Sequence[str], rows: Sequence[Row], actual: Collection[str]
) -> CheckpointError:
    """Returns the error for a checkpoint that does not match a model.

    Args:
        model: The model.
        file: The checkpoint.
        problems: Everything that does not match.
        rows: Rows of tensors that are missing or have another shape.
        actual: Names of the tensors in the checkpoint.
    """
    listed = _listed(f"{file} does not match {type(model).__name__}", problems)
    of_head = [row for row in rows if any(path.startswith(HEAD) for path in row.variables)]
    if not of_head:
        return CheckpointError(listed)
    advice = "To create a new, untrained head, pass new_head=True to kerasformer.zoo.load."
    if len(of_head) == len(problems) and not any(row.tensor in actual for row in model.head_rows()):
        return MissingHeadError(f"There is no head for {model.task} in this checkpoint. {listed}\n{advice}")
    return CheckpointError(f"{listed}\n{advice}")


def _listed(summary: str, problems: Sequence[str]) -> str:
    return f"{summary} ({len(problems)} problems):\n  " + "\n  ".join(problems)


def _table_problems(variables: Mapping[str, Any], covered: Sequence[str]) -> Iterator[str]:
    for path in sorted(set(variables) - set(covered)):
        yield f"the weight table has no row for the variable {path}"
    for path in sorted(set(covered) - set(variables)):
        yield f"the weight table names a variable that the model does not have: {path}"
    for path, times in Counter(covered).items():
        if times > 1:
            yield f"the weight table assigns {path} {times} times"


def _mismatch(row: Row, variables: Mapping[str, Any], actual: Mapping[str, str], file: TensorFile) -> str | None:
    """Returns a message if a tensor is missing or has another shape."""
    if row.tensor not in actual:
        return f"missing: {row.tensor}"
    if all(path in variables for path in row.variables):
        expected = row.shape([variables[path].shape for path in row.variables])
        received = file.shape(actual[row.tensor])
        if expected != received:
            return f"shape of {row.tensor}: expected {expected}, received {received}"
    return None


def _wrong_type(row: Row, actual: Mapping[str, str], file: TensorFile) -> str | None:
    """Returns a message if a tensor does not contain floating-point numbers."""
    problem = file.problem(actual[row.tensor]) if row.tensor in actual else None
    return problem and f"type of {row.tensor}: expected {FLOATS}, received a tensor {problem}"


def hf_tensors(model: keras.Model, rows: Sequence[Row]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the names and values of the tensors of a checkpoint, from the weights of the model."""
    variables = variables_by_path(model)
    missing = set(variables) - {path for row in rows for path in row.variables}
    if missing:
        raise CheckpointError(f"The weight table has no row for: {', '.join(sorted(missing))}")
    for row in rows:
        yield row.tensor, row.to_hf([np.asarray(variables[path]) for path in row.variables])
