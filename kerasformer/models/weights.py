"""Weights of a model: from the tensors of a checkpoint, and to them.

Called by `loading`, and by `pretrained` when a model is saved.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import keras
import numpy as np

from kerasformer.errors import CheckpointError, MissingHeadError, UnsupportedConfigError
from kerasformer.files.tensors import FLOATS, TensorFile
from kerasformer.layers.tensor import Shape, Tensor
from kerasformer.models.variables import deferred_variables, initialize_with, read_again_with, variables_by_path
from kerasformer.models.weight_table import HEAD, Names, Row

_LARGE_MATRIX = 2**16
"""Number of values from which matrices may keep 16 bits; smaller tables, such as those of position biases, do not."""
_FOR_HEADS = "backbone/pooler/"
"""Path of the pooler, which is initialized together with a new head if a checkpoint lacks it."""


class NewHead(Enum):
    """Condition under which the head of a model is initialized randomly instead of from the checkpoint."""

    NEVER = "never"
    WHERE_NONE_FITS = "where the checkpoint has none of these shapes"
    ALWAYS = "always"


def load_weights(
    model: keras.Model,
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
        match = _match(model.rows() if rows is None else rows, variables_by_path(model), file, names, heads)
        fresh = _fresh(match.variables, match.mismatches, new)
        loaded = [row for row in match.rows if not set(row.variables) & set(fresh)]
        used = {*heads, *match.copies, *(row.tensor for row in match.rows)}
        if problems := _problems(match, file, loaded, fresh, lambda name: name in used or names.is_ignored(name)):
            raise _mismatch_error(model, file, problems, match)
        for row in loaded:
            _fill(row, match, file, advance, flaws, keep_dtype)
    if flaws:
        raise CheckpointError(_listed(f"{file} contains tensors that cannot be used", flaws))
    return fresh


@dataclass(frozen=True)
class _Match:
    """The rows of a weight table beside the variables of a model and the tensors of a file.

    Attributes:
        variables: Variables by their paths.
        names: Names of the tensors in the file by those in weight tables.
        rows: Rows whose tensors the file has, or should have.
        absent: Optional rows without a tensor, whose variables keep their initial values.
        copies: Tensors that repeat others.
        mismatches: What is wrong with rows whose tensors are missing or have another shape.
    """

    variables: Mapping[str, keras.Variable]
    names: Mapping[str, str]
    rows: list[Row]
    absent: list[Row]
    copies: list[str]
    mismatches: dict[Row, str]


def _match(
    rows: Sequence[Row],
    variables: Mapping[str, keras.Variable],
    file: TensorFile,
    names: Names,
    heads: Collection[str],
) -> _Match:
    """Finds the tensor of each row."""
    actual = names.located(file.names(), heads)
    rows = [replace(row, tensor=row.source(actual)) for row in rows]
    absent = [row for row in rows if row.optional and row.tensor not in actual]
    copies = [row.tensor for row in rows if row.copy]
    rows = [row for row in rows if row not in absent and not row.copy]
    mismatches = {row: problem for row in rows if (problem := _mismatch(row, variables, actual, file))}
    return _Match(variables, actual, rows, absent, copies, mismatches)


def _problems(
    match: _Match, file: TensorFile, loaded: Sequence[Row], fresh: Sequence[str], is_known: Callable[[str], bool]
) -> list[str]:
    """Returns everything that does not match: of the table, of the tensors of its rows, and tensors without a row."""
    unchanged = {path for row in match.absent for path in row.variables} - set(fresh)
    covered = [*(path for row in loaded for path in row.variables), *fresh, *unchanged]
    problems = [*_table_problems(match.variables, covered)]
    problems += [match.mismatches[row] for row in loaded if row in match.mismatches]
    problems += [problem for row in loaded if (problem := _wrong_type(row, match.names, file))]
    unknown = sorted(name for name in match.names if not is_known(name))
    return problems + [f"unknown to this architecture: {match.names[name]}" for name in unknown]


def _fill(
    row: Row,
    match: _Match,
    file: TensorFile,
    advance: Callable[[int], None],
    flaws: list[str],
    keep_dtype: bool,
) -> None:
    """Makes the tensor of a row the initial value of its variables; adds what is wrong with its values to `flaws`."""
    name = match.names[row.tensor]
    if not row.variables:
        flaws += _wrong_constant(row, file, name, advance)
        return
    targets = [match.variables[path] for path in row.variables]
    dtype = file.dtype(name) if keep_dtype else None
    _initialize(targets, row, partial(_read, file, name, advance, flaws), dtype)
    if file.on_disk:
        _read_again(targets, row, partial(_floats, file, name))


def build_within_memory(model: keras.Model) -> None:
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


def _fresh(variables: Mapping[str, keras.Variable], mismatches: Mapping[Row, str], new: NewHead) -> list[str]:
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


def _initialize(
    variables: Sequence[keras.Variable], row: Row, read: Callable[[str], np.ndarray], dtype: str | None
) -> None:
    """Makes a row the initial value of deferred variables; its tensor is read for the first of them.

    Args:
        variables: The variables.
        row: The row.
        read: Reads the tensor for a variable of a data type.
        dtype: Data type of the tensor, which large float32 matrices keep if it has 16 bits; `None` if they do not.
    """
    shapes = [variable.shape for variable in variables]
    parts: list[Any] = []

    def value(index: int, shape: Shape, dtype: str) -> Tensor:
        if not parts:
            parts.extend(row.to_keras(read(dtype), shapes))
        part, parts[index] = parts[index], None
        return _in_dtype(part, dtype)

    for index, variable in enumerate(variables):
        is_large = len(variable.shape) == 2 and math.prod(variable.shape) >= _LARGE_MATRIX
        keeps = dtype in ("bfloat16", "float16") and variable.dtype == "float32" and is_large
        initialize_with(variable, partial(value, index), dtype if keeps else None)


def _read_again(variables: Sequence[keras.Variable], row: Row, read: Callable[[], np.ndarray]) -> None:
    """Makes released variables read the tensor of a row, each time that they are used."""
    shapes = [variable.shape for variable in variables]

    def value(index: int, shape: Shape, dtype: str) -> Tensor:
        return _in_dtype(row.to_keras(read(), shapes)[index], dtype)

    for index, variable in enumerate(variables):
        read_again_with(variable, partial(value, index))


def _in_dtype(value: np.ndarray, dtype: str) -> Tensor:
    return value if value.dtype.name == dtype else keras.ops.cast(value, dtype)


def _mismatch_error(model: keras.Model, file: TensorFile, problems: Sequence[str], match: _Match) -> CheckpointError:
    """Returns the error for a checkpoint that does not match a model."""
    listed = _listed(f"{file} does not match {type(model).__name__}", problems)
    of_head = [row for row in match.mismatches if any(path.startswith(HEAD) for path in row.variables)]
    if not of_head:
        return CheckpointError(listed)
    advice = "To create a new, untrained head, pass new_head=True to kerasformer.zoo.load."
    if len(of_head) == len(problems) and not any(row.tensor in match.names for row in model.head_rows()):
        return MissingHeadError(f"There is no head for {model.task} in this checkpoint. {listed}\n{advice}")
    return CheckpointError(f"{listed}\n{advice}")


def _listed(summary: str, problems: Sequence[str]) -> str:
    return f"{summary} ({len(problems)} problems):\n  " + "\n  ".join(problems)


def _table_problems(variables: Mapping[str, keras.Variable], covered: Sequence[str]) -> Iterator[str]:
    for path in sorted(set(variables) - set(covered)):
        yield f"the weight table has no row for the variable {path}"
    for path in sorted(set(covered) - set(variables)):
        yield f"the weight table names a variable that the model does not have: {path}"
    for path, times in Counter(covered).items():
        if times > 1:
            yield f"the weight table assigns {path} {times} times"


def _mismatch(
    row: Row, variables: Mapping[str, keras.Variable], actual: Mapping[str, str], file: TensorFile
) -> str | None:
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
