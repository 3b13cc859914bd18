"""What LiteRT's GPU delegate is known to compute wrongly, or to leave to the CPU, as rules about operators.

`look_at` applies the rules to any TFLite model. A rule is as narrow as its source: it describes a graph that was seen
to fail, or a condition in the delegate's own check. What depends on the values of activations, such as sums beyond the
range of 16-bit floats, cannot be seen in a file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasformer.bundle import GpuFinding
from kerasformer.engines.litert.flatbuffer_schema import names, schema
from kerasformer.errors import BundleError

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as tflite

_PARSERS = "LiteRT: ml_drift_delegate/tflite/model_builder.cc"
_SIGNATURES = "LiteRT: tflite/tools/versioning/gpu_compatibility.cc"
_LARGEST_HALF = 65504.0
SMALLEST_HALF = float(np.finfo(np.float16).smallest_subnormal)
"""Smallest 16-bit float above 0."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator reads or writes.

    Attributes:
        shape: Its shape.
        dtype: Its type, such as `"FLOAT32"`.
        constant: Whether the file holds its values, also if an operator first widens them from 16 bits.
        numbers: The values of a constant float32 that is not a weight; empty for others.
        dynamic: Whether its shape may change.
        blockwise: Whether its values have scales for blocks.
        is_output: Whether the graph returns it.
        readers: Kinds of the operators that read it.
        writer: Place and kind of the operator that computes it, or `None`.
    """

    shape: tuple[int, ...]
    dtype: str
    constant: bool
    numbers: np.ndarray
    dynamic: bool
    blockwise: bool
    is_output: bool
    readers: tuple[str, ...]
    writer: tuple[int, str] | None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True)
class Operator:
    """An operator of a graph.

    Attributes:
        kind: Its name, such as `"ADD"`.
        inputs: What it reads; optional operands that are absent are left out.
        outputs: What it writes.
        options: Its options of the schema, or `None`.
    """

    kind: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    options: object

    @cached_property
    def computed(self) -> tuple[Operand, ...]:
        """The operands that are not constant."""
        return tuple(operand for operand in self.inputs if not operand.constant)

    def option(self, name: str) -> object:
        """Returns an option, or `None`."""
        return getattr(self.options, name, None)


@dataclass(frozen=True)
class Rule:
    """Something that the delegate computes wrongly or does not run.

    Attributes:
        name: A short name.
        effect: See `GpuFinding`.
        what: What the delegate does.
        source: Where this is known from: an issue, or the file of LiteRT that refuses the operator.
        applies: Whether an operator is affected.
    """

    name: str
    effect: str
    what: str
    source: str
    applies: Callable[[Operator], bool]


_ELEMENTWISE = frozenset(
    (
        "ADD ATAN2 DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM "
        "MINIMUM MUL NOT_EQUAL POW SQUARED_DIFFERENCE SUB"
    ).split()
)
ORDERED = frozenset("DIV FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL POW SUB".split())
"""Operators of two operands that cannot be exchanged."""
_COMPARISONS = frozenset("EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL NOT_EQUAL".split())
_LOGICAL = frozenset("LOGICAL_AND LOGICAL_NOT LOGICAL_OR".split())
_OF_INTEGERS = _COMPARISONS | frozenset(
    (
        "ABS ADD ATAN2 BITCAST CAST CONCATENATION COS DIV DYNAMIC_UPDATE_SLICE FLOOR_DIV FLOOR_MOD GATHER MAXIMUM "
        "MINIMUM MUL NEG PACK PAD PADV2 REDUCE_MAX REDUCE_MIN REDUCE_PROD RESHAPE REVERSE_V2 RIGHT_SHIFT SELECT "
        "SELECT_V2 SIGN SIN SLICE STRIDED_SLICE SUB SUM TILE TRANSPOSE"
    ).split()
)
_READ_INTEGERS = _OF_INTEGERS | {"EMBEDDING_LOOKUP", "ONE_HOT"}
_WRITE_INTEGERS = (_OF_INTEGERS - _COMPARISONS) | {"ARG_MAX", "TOPK_V2"}
_OF_BOOLEANS = _LOGICAL | frozenset(
    (
        "BITCAST CAST CONCATENATION GATHER PACK PAD PADV2 REDUCE_ALL REDUCE_ANY RESHAPE REVERSE_V2 SELECT SELECT_V2 "
        "SLICE STRIDED_SLICE TRANSPOSE"
    ).split()
)
_SUPPORTED = (
    _ELEMENTWISE
    | _READ_INTEGERS
    | _WRITE_INTEGERS
    | _OF_BOOLEANS
    | frozenset(
        (
            "ADD_N AVERAGE_POOL_2D BATCH_MATMUL BITWISE_XOR CEIL CONV_2D CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE "
            "DEQUANTIZE ELU EXP FLOOR FULLY_CONNECTED GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC LSTM MAX_POOL_2D MEAN "
            "MIRROR_PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR ROUND RSQRT "
            "SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE TANH TRANSPOSE_CONV UNPACK"
        ).split()
    )
)
_NAMED = {"BROADCAST_TO", "GATHER_ND"}
_WEIGHTED = {"FULLY_CONNECTED", "EMBEDDING_LOOKUP"}
_NONE = np.zeros(0, "float32")
_LOOKUPS = {"GATHER": 1, "EMBEDDING_LOOKUP": 0}
"""Operators that look up rows, and the place of the ids among their operands."""
_MEASURED = frozenset("FLOAT32 FLOAT16 INT8 UINT8 INT4".split())
"""Types that every operator may have; the integers are those of quantized numbers."""


def _other_type(op: Operator) -> bool:
    def wrong(operand: Operand, integers: frozenset[str], booleans: frozenset[str]) -> bool:
        if operand.dtype in _MEASURED:
            return False
        return not (
            (operand.dtype in ("INT32", "INT16") and op.kind in integers)
            or (operand.dtype == "BOOL" and op.kind in booleans)
        )

    if op.kind not in _SUPPORTED or any(_wide(o) for o in (*op.computed, *op.outputs)):
        return False
    written = _OF_BOOLEANS | _COMPARISONS
    return any(wrong(o, _READ_INTEGERS | _LOGICAL, _OF_BOOLEANS) for o in op.computed) or any(
        wrong(o, _WRITE_INTEGERS | _LOGICAL, written) for o in op.outputs
    )


def _wide(operand: Operand) -> bool:
    return operand.dtype in ("INT64", "UINT64", "FLOAT64")


def _mixed_ranks(op: Operator) -> bool:
    return op.kind in _ELEMENTWISE and len(op.computed) == 2 and op.computed[0].rank != op.computed[1].rank


def _beyond_halves(op: Operator) -> bool:
    constants = [o.numbers for o in op.inputs if o.numbers.size]
    if not constants:
        return False
    numbers = np.concatenate(constants)
    if op.kind in ("SELECT", "SELECT_V2"):  # what is not chosen, such as NaN for indices out of range, does no harm
        numbers = numbers[~np.isnan(numbers)]
    return numbers.size > 0 and not np.abs(numbers).max() <= _LARGEST_HALF


def _below_halves(op: Operator) -> bool:
    """Whether a constant is not 0, and would be in 16-bit floats."""
    return any(o.numbers.size == 1 and 0 < abs(o.numbers.item()) < SMALLEST_HALF for o in op.inputs)


def _ids_with_axes(op: Operator) -> bool:
    return op.kind in _LOOKUPS and op.inputs[_LOOKUPS[op.kind]].rank != 1


def _dropped_axes(op: Operator) -> bool:
    return op.kind == "STRIDED_SLICE" and any(map(op.option, ("shrinkAxisMask", "newAxisMask", "ellipsisMask")))


def _computed_bounds(op: Operator) -> bool:
    return op.kind in ("SLICE", "STRIDED_SLICE") and not all(o.constant for o in op.inputs[1:])


def _broadcast_choice(op: Operator) -> bool:
    if op.kind not in ("SELECT", "SELECT_V2"):
        return False
    condition, *branches = op.inputs
    whole = (branch.shape in ((), (1,)) or branch.shape == op.outputs[0].shape for branch in branches)
    return condition.dtype not in ("BOOL", "FLOAT32", "FLOAT16") or not all(whole)


def _residual_of_rounded_product(op: Operator) -> bool:
    return (
        op.kind == "FULLY_CONNECTED"
        and op.inputs[1].dtype in ("INT8", "INT4")
        and op.inputs[0].dtype == "FLOAT32"
        and op.outputs[0].rank == 3
        and "ADD" in op.outputs[0].readers
    )


def _broadcast_product(op: Operator) -> bool:
    return (
        op.kind == "BATCH_MATMUL"
        and len(op.computed) == 2
        and op.inputs[0].rank == op.inputs[1].rank
        and op.inputs[0].shape[:-2] != op.inputs[1].shape[:-2]
    )


def _constant_below_four_axes(op: Operator) -> bool:
    return op.kind in _ELEMENTWISE and any(
        0 < constant.rank < 4 and constant.shape[0] > 1 and computed.rank == constant.rank
        for constant in op.inputs
        for computed in op.computed
        if constant.constant
    )


def _integers_with_one_axis(op: Operator) -> bool:
    return op.kind in _ELEMENTWISE and any(
        o.constant and o.dtype == "INT32" and o.rank == 1 and o.shape[0] > 1 for o in op.inputs
    )


def _exchanged_integers(op: Operator) -> bool:
    if op.kind not in ORDERED:
        return False
    first, second = op.inputs
    several = first.constant and first.dtype == "INT32" and prod(first.shape) > 1
    return several and second.shape == op.outputs[0].shape


def _sum_of_parts(op: Operator) -> bool:
    if op.kind not in ("ADD", "SUB") or len(op.computed) != 2:
        return False
    first, second = (operand.writer for operand in op.computed)
    return first is not None and first == second and first[1] in ("SPLIT", "SPLIT_V")


def _returned_sum(op: Operator) -> bool:
    return op.kind == "ADD" and len(op.computed) == 2 and op.outputs[0].is_output and bool(op.outputs[0].readers)


RULES = (
    Rule(
        "rank-3-attention",
        "reported",
        "products of two computed tensors with fewer than four axes, as in attention with the heads in the batch, "
        "gave other results on Mali and Adreno",
        "google-ai-edge/LiteRT#8619",
        lambda op: op.kind == "BATCH_MATMUL" and len(op.computed) == 2 and min(o.rank for o in op.computed) < 4,
    ),
    Rule(
        "transposed-product",
        "reported",
        "the options `adj_x` and `adj_y` of BATCH_MATMUL were ignored up to LiteRT 2.1.6",
        "google-ai-edge/LiteRT#8913",
        lambda op: op.kind == "BATCH_MATMUL" and bool(op.option("adjX") or op.option("adjY")),
    ),
    Rule(
        "mixed-rank",
        "reported",
        "two computed operands with different numbers of axes are aligned at the first axis instead of the last",
        "google-ai-edge/LiteRT#8980",
        _mixed_ranks,
    ),
    Rule(
        "constant-below-four-axes",
        "wrong",
        "the first axis of a constant with up to three axes is taken for another one of four than that of a computed "
        "tensor with as many; seen with LiteRT 2.3.0",
        _PARSERS,
        _constant_below_four_axes,
    ),
    Rule(
        "integers-with-one-axis",
        "wrong",
        "several constant integers with one axis are read wrongly where they are an operand of each entry; seen with "
        "LiteRT 2.3.0",
        _PARSERS,
        _integers_with_one_axis,
    ),
    Rule(
        "exchanged-integers",
        "wrong",
        "constant integers that come first are taken for the second operand, unless the computed ones are repeated; "
        "seen with LiteRT 2.3.0",
        _PARSERS,
        _exchanged_integers,
    ),
    Rule(
        "broadcast-product",
        "wrong",
        "a product repeats none of its operands, whose first axes must be equal; seen with LiteRT 2.3.0",
        _PARSERS,
        _broadcast_product,
    ),
    Rule(
        "sum-of-parts",
        "wrong",
        "two parts of a SPLIT are not added to or subtracted from each other; seen with LiteRT 2.3.0",
        _PARSERS,
        _sum_of_parts,
    ),
    Rule(
        "returned-sum",
        "reported",
        "a sum that the graph returns and another operator reads is returned as one of its operands",
        "google-ai-edge/LiteRT#8599",
        _returned_sum,
    ),
    Rule(
        "rank-3-padding",
        "wrong",
        "padding of a tensor with three axes shifts its rows; seen with LiteRT 2.3.0",
        "google-ai-edge/LiteRT#9272",
        lambda op: op.kind in ("PAD", "PADV2") and op.inputs[0].rank == 3 and op.inputs[0].shape[0] > 1,
    ),
    Rule(
        "beyond-16-bit-floats",
        "wrong",
        "a number beyond ±65,504 is infinite in 16-bit floats, in which the delegate computes by default, and NaN "
        "times 0; masks are such numbers",
        "google-ai-edge/LiteRT#9249",
        _beyond_halves,
    ),
    Rule(
        "below-16-bit-floats",
        "wrong",
        "a number below 6e-8 is 0 in 16-bit floats, in which the delegate computes by default; the epsilon of a "
        "normalization is one, without which a constant row becomes NaN; seen with LiteRT 2.3.0",
        _PARSERS,
        _below_halves,
    ),
    Rule(
        "angles",
        "wrong",
        "cosines and sines of angles that 16-bit floats round by up to 0.5 at position 1,000; seen with LiteRT 2.3.0",
        _PARSERS,
        lambda op: op.kind in ("COS", "SIN") and bool(op.computed),
    ),
    Rule(
        "slice-of-constant",
        "wrong",
        "a slice of constants has other values; seen with LiteRT 2.3.0",
        _PARSERS,
        lambda op: op.kind == "STRIDED_SLICE" and op.inputs[0].constant and len(op.inputs) == 4,
    ),
    Rule(
        "rounded-residual",
        "reported",
        "a product with int8 weights and three axes, followed by a sum, failed to compile on Mali up to LiteRT 2.1.5",
        "google-ai-edge/LiteRT#9277",
        _residual_of_rounded_product,
    ),
    Rule(
        "broadcast-to",
        "unsupported",
        "BROADCAST_TO has no kernel",
        "google-ai-edge/LiteRT#9191",
        lambda op: op.kind == "BROADCAST_TO",
    ),
    Rule(
        "gather-nd",
        "unsupported",
        "GATHER_ND has no kernel",
        "google-ai-edge/LiteRT#5197",
        lambda op: op.kind == "GATHER_ND",
    ),
    Rule(
        "other-operator",
        "unsupported",
        "the operator has no kernel",
        _PARSERS,
        lambda op: op.kind not in _SUPPORTED | _NAMED,
    ),
    Rule(
        "five-axes",
        "unsupported",
        "tensors have at most four axes",
        "google-ai-edge/litert-torch#1079",
        lambda op: any(o.rank > 4 for o in (*op.computed, *op.outputs)),
    ),
    Rule(
        "64-bit",
        "unsupported",
        "computed tensors of 64-bit numbers are not supported",
        _PARSERS,
        lambda op: any(_wide(o) for o in (*op.computed, *op.outputs)),
    ),
    Rule(
        "type",
        "unsupported",
        "the operator has no kernel for integers or booleans",
        _PARSERS,
        _other_type,
    ),
    Rule(
        "changing-shape",
        "unsupported",
        "all shapes must be fixed",
        "tensorflow/tensorflow#62867",
        lambda op: any(o.dynamic for o in (*op.inputs, *op.outputs)),
    ),
    Rule(
        "constant-lookup",
        "unsupported",
        "the ids of a lookup in a constant table must be computed",
        _SIGNATURES,
        lambda op: op.kind == "GATHER" and not op.computed,
    ),
    Rule(
        "constant-embedding",
        "aborts",
        "EMBEDDING_LOOKUP with constant ids ends the process; seen with LiteRT 2.3.0",
        "LiteRT: ml_drift_delegate/tflite/object_reader.cc",
        lambda op: op.kind == "EMBEDDING_LOOKUP" and not op.computed,
    ),
    Rule(
        "ids-with-axes",
        "unsupported",
        "ids of a lookup must have one axis",
        "google-ai-edge/LiteRT#9666",
        _ids_with_axes,
    ),
    Rule(
        "blockwise-weights",
        "aborts",
        "weights with a scale for each block end the process; with one for each row (`int4_channel`), they do not; "
        "seen with LiteRT 2.3.0",
        _PARSERS,
        lambda op: op.kind in ("EMBEDDING_LOOKUP", "FULLY_CONNECTED") and op.inputs[1].blockwise,
    ),
    Rule(
        "constant-input",
        "unsupported",
        "the input of a product with weights must be computed",
        _SIGNATURES,
        lambda op: op.kind == "FULLY_CONNECTED" and op.inputs[0].constant,
    ),
    Rule(
        "dropped-axes",
        "unsupported",
        "a slice cannot drop or add axes",
        _SIGNATURES,
        _dropped_axes,
    ),
    Rule(
        "computed-bounds",
        "unsupported",
        "the bounds of a slice must be constant",
        _PARSERS,
        _computed_bounds,
    ),
    Rule(
        "constant-start",
        "unsupported",
        "the start of DYNAMIC_UPDATE_SLICE must be computed",
        _PARSERS,
        lambda op: op.kind == "DYNAMIC_UPDATE_SLICE" and op.inputs[2].constant,
    ),
    Rule(
        "broadcast-choice",
        "unsupported",
        "the values that SELECT_V2 chooses from must have the shape of the result, and none is broadcast",
        _PARSERS,
        _broadcast_choice,
    ),
    Rule(
        "narrow-condition",
        "unsupported",
        "the condition of SELECT_V2 must have as many axes as the result: the file does not open; seen with LiteRT "
        "2.3.0",
        _PARSERS,
        lambda op: op.kind in ("SELECT", "SELECT_V2") and 0 < op.inputs[0].rank < op.outputs[0].rank,
    ),
    Rule(
        "same-operand",
        "unsupported",
        "two operands of an operator must be different tensors, except in sums and products",
        _PARSERS,
        lambda op: (
            op.kind in _ELEMENTWISE - {"ADD", "MUL"} and len(op.computed) == 2 and op.computed[0] is op.computed[1]
        ),
    ),
    Rule(
        "scaled-softmax",
        "unsupported",
        "SOFTMAX has no factor",
        _SIGNATURES,
        lambda op: op.kind == "SOFTMAX" and op.option("beta") not in (None, 1.0),
    ),
    Rule(
        "widened-halves",
        "unsupported",
        "16-bit floats are widened only if they are weights",
        _PARSERS,
        lambda op: op.kind == "DEQUANTIZE" and any(o.dtype == "FLOAT16" for o in op.computed),
    ),
)
"""All rules."""


def gpu_findings(path: Path) -> tuple[GpuFinding, ...]:
    """Returns the result of `look_at` for a file, whose weights are not read.

    Raises:
        BundleError: It is not a TFLite file.
    """
    try:
        with path.open("rb") as file:
            # Closing it would be refused while arrays of the model refer to it; it goes with the last of them.
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if content[4:8] != b"TFL3":
            raise ValueError("its first bytes are others")
        model = schema().ModelT.InitFromPackedBuf(content, 0)
    except (OSError, ValueError, struct.error, IndexError, TypeError) as error:
        raise BundleError(f"A TFLite file was expected. Received: {path}: {error}") from error
    return look_at(model)


def look_at(model: tflite.ModelT) -> tuple[GpuFinding, ...]:
    """Returns what the GPU delegate is known to compute wrongly or not to run, one finding for each rule that applies.

    Args:
        model: The model, a `ModelT` of TFLite's schema.
    """
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    signatures = {signature.subgraphIndex: signature.signatureKey.decode() for signature in model.signatureDefs or []}
    for index, graph in enumerate(model.subgraphs):
        for op, layer in _operators(model, graph):
            for rule in RULES:
                if rule.applies(op):
                    counts[rule.name] = counts.get(rule.name, 0) + 1
                    place = f"{op.kind} after {layer}" if layer else op.kind
                    examples.setdefault(rule.name, f"{place}, in {signatures.get(index, f'graph {index}')}")
    return tuple(
        GpuFinding(rule.name, rule.effect, rule.what, rule.source, counts[rule.name], examples[rule.name])  # type: ignore[arg-type]
        for rule in RULES
        if rule.name in counts
    )


def _operators(model: tflite.ModelT, graph: tflite.SubGraphT) -> Iterator[tuple[Operator, str]]:
    """Yields the operators of a graph, each with the name of the weight that was last used before it."""
    tflite = schema()
    kinds, types = names(tflite.BuiltinOperator), names(tflite.TensorType)
    codes = [kinds[code.builtinCode] for code in model.operatorCodes]
    outputs = {int(index) for index in graph.outputs}
    readers: dict[int, list[str]] = {}
    writers: dict[int, tuple[int, str]] = {}
    widened = set()
    for place, op in enumerate(graph.operators):
        kind = codes[op.opcodeIndex]
        writers.update((int(i), (place, kind)) for i in op.outputs)
        for i in op.inputs:
            readers.setdefault(int(i), []).append(kind)
        if kind == "DEQUANTIZE" and _has_values(model, graph.tensors[int(op.inputs[0])]):
            widened.add(int(op.outputs[0]))  # the delegate reads the weight itself
    known: dict[int, Operand] = {}

    def operand(index: int) -> Operand:
        if index not in known:
            tensor = graph.tensors[index]
            shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
            details = getattr(tensor.quantization, "details", None)
            stored, read_by = _has_values(model, tensor), tuple(readers.get(index, ()))
            weight = len(shape) == 2 and {*read_by} <= _WEIGHTED  # of which a file in float32 has hundreds of MB
            known[index] = Operand(
                shape,
                types[tensor.type],
                stored or index in widened,
                _numbers(model, tensor, shape, types[tensor.type]) if stored and not weight else _NONE,
                tensor.shapeSignature is not None and any(int(size) < 0 for size in tensor.shapeSignature),
                isinstance(details, tflite.BlockwiseQuantizationT),
                index in outputs,
                read_by,
                writers.get(index),
            )
        return known[index]

    layers: dict[int, str] = {}
    for op in graph.operators:
        read = [int(i) for i in op.inputs if i >= 0]
        weights = [_weight_name(graph, i) for i in read if _has_values(model, graph.tensors[i])]
        layer = next((name for name in weights if name), "") or next((layers[i] for i in read if layers.get(i)), "")
        layers.update((int(i), layer) for i in op.outputs)
        kind = codes[op.opcodeIndex]
        if kind == "DEQUANTIZE" and int(op.outputs[0]) in widened:
            continue
        yield (
            Operator(kind, tuple(map(operand, read)), tuple(operand(int(i)) for i in op.outputs), op.builtinOptions),
            layer,
        )


def _has_values(model: tflite.ModelT, tensor: tflite.TensorT) -> bool:
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _weight_name(graph: tflite.SubGraphT, index: int) -> str:
    name = graph.tensors[index].name
    return name.decode() if isinstance(name, bytes) else str(name or "")


def _numbers(model: tflite.ModelT, tensor: tflite.TensorT, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns the values of a float32 constant; of a weight that is not yet written, there are none."""
    data = model.buffers[tensor.buffer].data
    if dtype != "FLOAT32" or len(data) != 4 * prod(shape):
        return _NONE
    return np.frombuffer(bytes(data), "float32")
