"""The anatomy of a model: its blocks with shapes, parameters and multiply-adds, from its configuration alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.bundle.architectures import architectures
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.files.publishing import replacing
from kerasformer.files.reading import JsonObject

if TYPE_CHECKING:
    import keras

    from kerasformer.models import PretrainedModel
    from kerasformer.tools.interpretability.block_titles import Role
    from kerasformer.tools.interpretability.structure import Part, Section, Structure, TracedStack
    from kerasformer.tools.viz.anatomy import Column, Frame

INPUT = -1
"""In `Block.inputs`: the input of the layer, or of the model."""
RECIPES = ("none", "fp16", "int8", "int4")
"""Recipes whose bytes are computed; `none` is float32."""
_STORED = {"none": "float32", "fp16": "float16"}
"""Names of recipes as readers know them."""
FORMATS = (".svg", ".txt", ".json")


@dataclass(frozen=True)
class Block:
    """A part of a model.

    Attributes:
        title: What it is.
        details: Its sizes and settings, each a few words.
        role: Its kind.
        inputs: Indices of the blocks beside it whose output it reads, or `INPUT`.
        shape: Shape of its output, such as `(B, T, 768)`; empty if that is no tensor.
        parameters: Number of parameters of its own; those that an earlier block has count there.
        macs: Multiply-adds of products with weights: for each token, or for each text if the output has no tokens.
        attention_macs: Further ones for each token and each token that it attends to.
        reads_memory: Whether it reads the encoded text.
        is_result: Whether its output is what the next layer reads.
    """

    title: str
    details: tuple[str, ...]
    role: Role
    inputs: tuple[int, ...]
    shape: str
    parameters: int = 0
    macs: int = 0
    attention_macs: int = 0
    reads_memory: bool = False
    is_result: bool = False


@dataclass(frozen=True)
class LayerGroup:
    """Equal layers of a stack.

    Attributes:
        indices: Their positions in the stack, from 0.
        num_weights: Number of layers with weights of their own; fewer than positions where layers share weights.
        blocks: The blocks of one layer.
        parameters: Parameters of all of them together.
    """

    indices: tuple[int, ...]
    num_weights: int
    blocks: tuple[Block, ...]
    parameters: int

    @property
    def note(self) -> str:
        """Whether layers share their weights."""
        return "shared weights" if self.num_weights < len(self.indices) else ""


@dataclass(frozen=True)
class Stack:
    """An encoder or a decoder.

    Attributes:
        name: `encoder` or `decoder`.
        embeddings: Blocks before the first layer.
        layers: The layers, by kind.
        final: Blocks after the last layer.
    """

    name: str
    embeddings: tuple[Block, ...]
    layers: tuple[LayerGroup, ...]
    final: tuple[Block, ...]

    @property
    def num_layers(self) -> int:
        """Number of layers that a text passes."""
        return sum(len(group.indices) for group in self.layers)


@dataclass(frozen=True, repr=False)
class Anatomy:
    """What a model is made of and what it costs; drawn as SVG in notebooks, printed as a table.

    Attributes:
        name: Name of the source.
        architecture: Name of the architecture.
        model_type: Its name in `config.json`.
        task: Hugging Face task name of the head.
        stacks: The encoder, the decoder, or both.
        head: Blocks after the last stack.
        parameters: Number of parameters; those that layers share count once.
        unused_parameters: Those of them that the task does not use.
        bytes: Bytes of the weights by recipe, as LiteRT's files store them.
        macs: Multiply-adds of products with weights for each token; see `costs.Costs`.
        attention_macs: Further ones for each token and each token that it attends to.
        cache_bytes: Bytes of the cache for each token, in float32; 0 for a model that does not generate.
    """

    name: str
    architecture: str
    model_type: str
    task: str
    stacks: tuple[Stack, ...]
    head: tuple[Block, ...]
    parameters: int
    unused_parameters: int
    bytes: dict[str, int]
    macs: int
    attention_macs: int
    cache_bytes: int

    @cached_property
    def svg(self) -> str:
        """The drawing, with colours for light and dark pages."""
        from kerasformer.tools.viz.anatomy import anatomy_svg

        sizes = [(_STORED.get(name, name), size) for name, size in self.bytes.items()]
        return anatomy_svg(self.name, f"{self.architecture} · {self.task}", self._facts(), self._columns(), sizes)

    def rows(self) -> list[list[str]]:
        """Returns a row for each block: part of the model, block, output, parameters and multiply-adds."""
        rows = []
        for stack in self.stacks:
            rows += _rows(stack.name, stack.embeddings)
            for group in stack.layers:
                where = "" if len(stack.layers) == 1 else f", {positions(group.indices)}"
                note = f", {group.note}" if group.note else ""
                rows += _rows(f"{stack.name}, {len(group.indices)} layers{where}{note}", group.blocks)
            rows += _rows(stack.name, stack.final)
        return rows + _rows("head", self.head)

    def facts(self) -> list[tuple[str, str]]:
        """Returns the figures of the whole model with their names."""
        unused = f", of which this task does not use {self.unused_parameters:,}" if self.unused_parameters else ""
        facts = [
            ("parameters", f"{self.parameters:,}{unused}"),
            *((f"bytes in {_STORED.get(name, name)}", f"{size:,}") for name, size in self.bytes.items()),
            ("multiply-adds for each token", f"{self.macs:,}"),
            ("further ones for each token that it attends to", f"{self.attention_macs:,}"),
        ]
        return facts + ([("bytes of the cache for each token", f"{self.cache_bytes:,}")] if self.cache_bytes else [])

    def to_dict(self) -> JsonObject:
        """Returns all fields as values for JSON."""
        content: JsonObject = json.loads(json.dumps(asdict(self)))
        return content

    def save(self, path: str | Path) -> Path:
        """Writes the drawing (`.svg`), the table (`.txt`) or all values (`.json`), by the suffix of the file.

        Raises:
            InputError: another suffix, or a folder that does not exist.
        """
        path = Path(path)
        check_file(path)
        contents = {
            ".svg": lambda: self.svg,
            ".txt": lambda: f"{self}\n",
            ".json": lambda: json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n",
        }
        with replacing(path) as temporary:
            temporary.write_text(contents[path.suffix.lower()](), encoding="utf-8")
        return path

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Anatomy of {self.name}: {self.architecture}, {self.parameters:,} parameters>"

    def __str__(self) -> str:
        head = ["part", "block", "output", "parameters", "multiply-adds"]
        rows = [head, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        facts = [f"{name}: {value}" for name, value in self.facts()]
        return "\n".join([f"{self.name}: {self.architecture}, {self.task}", *lines, *facts])

    def _facts(self) -> list[tuple[str, str]]:
        """Returns the figures for the head of the drawing: a short number, and what it counts."""
        from kerasformer.tools.viz.anatomy import readable_bytes

        facts = [(short(self.parameters), "parameters"), (short(self.macs), "multiply-adds / token")]
        return facts + ([(readable_bytes(self.cache_bytes), "cache / token")] if self.cache_bytes else [])

    def _columns(self) -> list[Column]:
        """Returns the stacks as they are drawn, from bottom to top."""
        from kerasformer.tools.viz.anatomy import Column

        columns = []
        for stack in self.stacks:
            last = stack is self.stacks[-1]
            frames = [_frame("", stack.embeddings)] if stack.embeddings else []
            for group in stack.layers:
                plural = "s" if len(group.indices) > 1 else ""
                where = "" if len(stack.layers) == 1 else f"layer{plural} {positions(group.indices)}"
                frames.append(_frame(f"{len(group.indices)} × layer", group.blocks, where or group.note))
            frames += [_frame("", blocks) for blocks in (stack.final, self.head if last else ()) if blocks]
            below = "text" if stack is self.stacks[0] else "text so far"
            columns.append(Column(stack.name.capitalize(), below, "output" if last else "encoded text", tuple(frames)))
        return columns


def anatomy(source: str | Path | PretrainedModel, task: str | None = None) -> Anatomy:
    """Describes what a model is made of, without its weights.

        kf.anatomy("gpt2/config.json").save("gpt2.svg")
        print(kf.anatomy("summarizer-t5"))

    The blocks are those that are called while the model runs on symbols, so that the order of norms, parallel parts and
    residual sums are those of the code, of any architecture.

    Args:
        source: Model, checkpoint folder, GGUF file, preset or hub id; or a file `config.json`, or a folder that has it
            alone. Of a bundle, the anatomy is that of the model that was exported.
        task: Task, for a head that `config.json` does not name.

    Raises:
        SourceError: the source does not exist.
        UnsupportedConfigError: the architecture or a value of its configuration is unsupported.
        InputError: the architecture does not support the task, or a model has another one.
        MissingExtraError: Keras is not installed.
    """
    require("keras", "tensorflow")
    from kerasformer.tools.interpretability.costs import abstract_model, counted_length
    from kerasformer.tools.interpretability.structure import structure

    with abstract_model(source, task) as (model, parameter_size):
        traced = structure(model, parameter_size)
        described = _Description(counted_length(model))
        stacks = tuple(described.stack(stack) for stack in traced.stacks)
        head = described.blocks(traced.head, head=True)
        known = architectures().get(traced.costs.model_type)
        return Anatomy(
            name=_name(source),
            architecture=known.name if known else traced.costs.model_type,
            model_type=traced.costs.model_type,
            task=traced.costs.task,
            stacks=stacks,
            head=head,
            parameters=traced.costs.parameters,
            unused_parameters=traced.costs.parameters - described.parameters,
            bytes=_bytes(model, traced),
            macs=traced.costs.macs,
            attention_macs=traced.costs.attention_macs,
            cache_bytes=traced.costs.cache_bytes,
        )


def check_file(path: Path) -> None:
    """Checks that `Anatomy.save` can write a file, before a model is read.

    Raises:
        InputError: the suffix is unknown, or the folder does not exist.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"The name of an anatomy must end in one of {', '.join(FORMATS)}. Received: {path}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"The folder of an anatomy must exist. Received: {path}")


def positions(indices: Sequence[int]) -> str:
    """Writes indices of layers: `0–3`, `1, 3, …, 11` for a regular series, or all of them."""
    numbers = list(indices)
    if len(numbers) == 1:
        return str(numbers[0])
    steps = {after - before for before, after in zip(numbers, numbers[1:], strict=False)}
    if steps == {1}:
        return f"{numbers[0]}–{numbers[-1]}"
    if len(steps) == 1 and len(numbers) > 4:
        return f"{numbers[0]}, {numbers[1]}, …, {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def short(number: float) -> str:
    """Writes a number with three digits and a unit: `124 M`, `1.56 B` (10^9, as parameters are counted)."""
    number = float(f"{number:.3g}")
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            scaled = number / unit
            return f"{scaled:.{max(0, 2 - int(math.log10(scaled)))}f} {name}"
    return f"{number:,.0f}"


def _name(source: object) -> str:
    if not isinstance(source, str | Path):
        return str(getattr(source, "name", source))
    path = Path(source)
    if path.is_file():
        return path.absolute().parent.name if path.name == "config.json" else path.stem
    return path.absolute().name if path.exists() else str(source)


def _rows(part: str, blocks: Sequence[Block]) -> list[list[str]]:
    """Returns a row for each block but the sums, which the drawing alone shows."""
    return [
        [
            part,
            ", ".join([block.title, *block.details]),
            block.shape,
            f"{block.parameters:,}",
            f"{block.macs:,}" + (f" + {block.attention_macs:,} × tokens" if block.attention_macs else ""),
        ]
        for block in blocks
        if block.role != "sum"
    ]


def _frame(label: str, blocks: Sequence[Block], note: str = "") -> Frame:
    from kerasformer.tools.viz.anatomy import Box, Frame

    boxes = []
    blocks, result = joined_sums(blocks)
    for block in blocks:
        counted = f"{short(block.parameters)} parameters" if block.parameters else ""
        lines = (*block.details, *([counted] if counted else []))
        boxes.append(Box(block.title, lines, block.role, block.inputs, block.reads_memory))
    return Frame(label, note, tuple(boxes), result, blocks[result].shape)


def joined_sums(blocks: Sequence[Block]) -> tuple[list[Block], int]:
    """Returns the blocks with each sum that only another sum reads as a part of that one, and the index of the result.

    A layer that computes attention and feed-forward network in parallel adds both to its input.
    """
    readers = {index: [block for block in blocks if index in block.inputs] for index in range(len(blocks))}
    joined = {
        index
        for index, block in enumerate(blocks)
        if block.role == "sum" and [reader.role for reader in readers[index]] == ["sum"]
    }
    kept = [index for index in range(len(blocks)) if index not in joined]
    place = {INPUT: INPUT, **{index: number for number, index in enumerate(kept)}}

    def inputs(block: Block) -> Iterable[int]:
        for index in block.inputs:
            yield from inputs(blocks[index]) if index in joined else (place[index],)

    joined_blocks = [replace(blocks[index], inputs=tuple(dict.fromkeys(inputs(blocks[index])))) for index in kept]
    return joined_blocks, place[next((i for i, block in enumerate(blocks) if block.is_result), len(blocks) - 1)]


class _Description:
    """Turns what was traced into blocks, and counts each parameter once.

    Args:
        length: Number of tokens of the traced text.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.parameters = 0
        self._counted: set[int] = set()

    def stack(self, traced: TracedStack) -> Stack:
        """Describes a stack."""
        embeddings = self.blocks(traced.embeddings)
        layers = tuple(self._groups(traced))
        return Stack(traced.stack.name, embeddings, layers, self.blocks(traced.final))

    def _groups(self, traced: TracedStack) -> list[LayerGroup]:
        """Returns the layers by kind; kinds that look the same, such as those with other random blocks, are one."""
        groups: list[LayerGroup] = []
        for kind, section in enumerate(traced.kinds):
            members = [(index, layer) for index, (layer, number) in enumerate(traced.layers) if number == kind]
            blocks = self.blocks(section)
            own = {id(layer): layer for _, layer in members}
            parameters = sum(block.parameters for block in blocks) + sum(map(self._new, own.values()))
            group = LayerGroup(tuple(index for index, _ in members), len(own), blocks, parameters)
            same = [number for number, other in enumerate(groups) if _same(other.blocks, blocks)]
            if same:
                other = groups[same[0]]
                groups[same[0]] = LayerGroup(
                    tuple(sorted((*other.indices, *group.indices))),
                    other.num_weights + group.num_weights,
                    other.blocks,
                    other.parameters + group.parameters,
                )
            else:
                groups.append(group)
        return groups

    def blocks(self, section: Section, head: bool = False) -> tuple[Block, ...]:
        """Describes the parts of a section."""
        blocks = [self._block(part, head) for part in section.parts]
        return tuple(replace(block, is_result=index == section.result) for index, block in enumerate(blocks))

    def _block(self, part: Part, head: bool) -> Block:
        from kerasformer.tools.interpretability.block_titles import description

        shape = "" if part.shape is None else self._shape(part.shape)
        if part.layer is None:
            return Block("Sum", (), "sum", part.inputs, shape)
        title, details, role = description(part)
        shared = _size(part.layer) > 0
        parameters = self._new(part.layer)
        if shared and not parameters:
            details = (*details, "shared weights")
        tokens = self.length if part.shape is not None and len(part.shape) > 2 else 1
        return Block(
            title,
            details,
            "head" if head and role == "matrix" else role,
            part.inputs,
            shape,
            parameters,
            round(part.macs / tokens),
            round(part.attention_macs / self.length**2),
            part.reads_memory,
        )

    def _shape(self, shape: tuple[int, ...]) -> str:
        sizes = ["T" if size == self.length else f"{size}" for size in shape[1:]]
        if sizes and len(shape) == 3:  # the length, even if another size is equal
            sizes = ["T" if shape[1] == self.length else f"{shape[1]}", f"{shape[2]}"]
        return f"({', '.join(['B', *sizes])})"

    def _new(self, layer: keras.layers.Layer) -> int:
        """Returns the number of parameters of a layer that were not counted before."""
        new = [variable for variable in _variables(layer) if id(variable) not in self._counted]
        self._counted |= {id(variable) for variable in new}
        count = sum(math.prod(variable.shape) for variable in new)
        self.parameters += count
        return count


def _same(blocks: Sequence[Block], others: Sequence[Block]) -> bool:
    plain = [[replace(block, parameters=0, macs=0, attention_macs=0) for block in some] for some in (blocks, others)]
    return plain[0] == plain[1]


def _variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    return [variable for variable in layer.variables if "seed_generator" not in variable.path]


def _size(layer: keras.layers.Layer) -> int:
    return sum(math.prod(variable.shape) for variable in _variables(layer))


def _bytes(model: PretrainedModel, traced: Structure) -> dict[str, int]:
    """Returns the bytes of all weights by recipe: matrices as LiteRT's files store them, the rest in float32."""
    from kerasformer.bundle.recipes import MIN_QUANTIZED, recipe
    from kerasformer.export import ModelMatrix, TfliteLayout
    from kerasformer.models import variables_by_path

    layout, sizes = TfliteLayout(), dict.fromkeys(RECIPES, 0)
    for variable in variables_by_path(model).values():
        size = math.prod(variable.shape)
        product, table = id(variable) in traced.products, id(variable) in traced.tables
        output_first = table or traced.products.get(id(variable), False)
        stored = (product or table) and size >= MIN_QUANTIZED
        matrix = ModelMatrix(variable, product, table, output_first, model.generates) if stored else None
        for name in RECIPES:
            sizes[name] += 4 * size if matrix is None else layout.num_bytes(matrix, recipe(name))
    return sizes
