"""Weight tables: mappings between Keras variables and tensors of checkpoints, for loading and saving.

A row maps one tensor to one Keras variable, or to several that the tensor combines (such as fused queries, keys and
values). Variables are identified by their path below the model, `backbone/encoder/layer_0/attention/query/kernel`;
`{i}` in a row is replaced by the index of a layer.

Called by `weights`; architectures declare the rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerasformer.files.tensors import SplitTensors, TensorFile
from kerasformer.models.layouts import Convolution, Interleaved, Layout, Offset, SideBySide, SinusoidTable

HEAD = "head/"
"""Path of the head below the model."""


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
        tied: Whether the tensor is an output matrix, instead of which tied models use the table of token embeddings.
        preferred: Name of a tensor that is read instead, if the checkpoint has it.
    """

    variables: tuple[str, ...]
    tensor: str
    transpose: bool = False
    layout: Layout = SideBySide()  # noqa: RUF009  (frozen)
    optional: bool = False
    copy: bool = False
    tied: bool = False
    preferred: str | None = None

    def source(self, located: Container[str]) -> str:
        """Returns the name of the tensor to read from a checkpoint with tensors of these names."""
        return self.preferred if self.preferred is not None and self.preferred in located else self.tensor

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


def output_matrix(tensor: str, path: str = "kernel") -> Row:
    """Returns the row of an output matrix `(V, E)`, instead of which tied models use the table of token embeddings."""
    return Row((path,), tensor, transpose=True, tied=True)


def head_tensors(rows: Iterable[Row]) -> set[str]:
    """Returns the names of the tensors of heads, which have no prefix."""
    return {name for row in rows for name in (row.tensor, row.preferred) if name is not None}


def output_rows(rows: Iterable[Row], tied: bool) -> list[Row]:
    """Returns the rows of a head: without the output matrix for a tied one.

    An untied model of `transformers` may have two biases, of which it uses the `preferred` one, so that both are saved.
    """
    rows = list(rows)
    if tied:
        return [row for row in rows if not row.tied]
    return rows + [replace(row, tensor=row.preferred, copy=True) for row in rows if row.preferred is not None]


@dataclass(frozen=True)
class Names:
    """Naming of the tensors in checkpoints of an architecture.

    Attributes:
        prefix: Prefix of the backbone's tensors, such as `"bert."`; checkpoints of the bare backbone lack it.
        ignored: Regular expressions of tensors without parameters (buffers), or that only some tasks use; they match
            names without the prefix.
        copies: Names of tables that equal another one in models that share it, with the name of that one, both without
            the prefix; see `ties.py`.
        tokens: Name of the token embeddings, without the prefix, for models whose output may be tied to them.
        other_prefixes: Prefixes that the backbone's tensors have in checkpoints of some tasks, see
            `PretrainedModel.prefix`.
        renamed: Names in weight tables of tensors whose names another version of `transformers` changed.
        published: Parts of names in files, and those of the modules of the reference, which weight tables have. Several
            modules are equal parts of one tensor. `transformers` converts both when it loads and when it saves.
    """

    prefix: str = ""
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    tokens: str = ""
    other_prefixes: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def by_modules(self, file: TensorFile) -> TensorFile:
        """Returns the tensors of a file by the names of modules, see `published`."""
        if not self.published:
            return file
        located, parts = {name: name for name in file}, {}
        for old, modules in self.published.items():
            for name in [name for name in located if old in name]:
                source, count = located[name], len(modules)
                if count > 1 and file.shape(source)[0] % count:
                    continue  # an error names it later
                del located[name]
                names = [name.replace(old, module) for module in modules]
                located.update(dict.fromkeys(names, source))
                if count > 1:
                    parts.update({part: (index, count) for index, part in enumerate(names)})
        return SplitTensors(file, located, parts)

    def in_files(self, rows: Iterable[Row]) -> list[Row]:
        """Returns rows of a weight table for saving, with the names in files, see `published`."""
        if not self.published:
            return list(rows)
        parts: dict[str, dict[int, Row]] = {}
        for row in rows:
            name, part = row.tensor, 0
            for new, modules in self.published.items():
                for index, module in enumerate(modules):
                    if module in name:
                        name, part = name.replace(module, new), max(index, part)
            parts.setdefault(name, {})[part] = row
        return [
            replace(found[min(found)], tensor=name, variables=sum((found[i].variables for i in sorted(found)), ()))
            for name, found in parts.items()
        ]

    def canonical(self, name: str, heads: Collection[str]) -> str:
        """Converts a name to the one in weight tables; `heads` are the tensors of heads, which have no prefix."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", self.renamed.get(name, name)))
        if name in heads:
            return name
        prefixes = [prefix for prefix in (self.prefix, *self.other_prefixes) if name.startswith(prefix)]
        return self.prefix + name.removeprefix(max(prefixes, key=len, default=""))

    def located(self, tensors: Iterable[str], heads: Collection[str]) -> dict[str, str]:
        """Returns the names of tensors by their names in weight tables."""
        return {self.canonical(name, heads): name for name in tensors}

    def is_ignored(self, name: str) -> bool:
        """Whether a tensor need not be loaded."""
        bare = name.removeprefix(self.prefix)
        return bare in self.copies or any(re.fullmatch(pattern, bare) for pattern in self.ignored)
