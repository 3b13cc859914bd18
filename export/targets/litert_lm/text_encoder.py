"""Graphs for LiteRT-LM's embedding engine: an embedder of tokens, and an encoder of a text's embedded tokens.

The engine calls the embedder for each token and passes its vectors, `(1, N, E)`, with a mask to the signature
`encoder_N` with the smallest sufficient length; the result is the embedding of the text. Both inputs are float32.

Here, the embedder returns the id of its token as a vector of one number, and the encoder converts these numbers back to
ids. All weights are thus in the encoder, in the form that the recipe chose, and any encoder of the zoo can run. float32
represents ids up to 2^24 exactly, float16 only up to 2048. Files for LiteRT-LM therefore restrict the encoder to the
CPU, since the engine would let a GPU compute in float16.

Reference: https://github.com/google-ai-edge/LiteRT-LM, `runtime/executor/embedding_litert_compiled_model_executor.cc`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from keras import ops

from kerasformer.bundle import TensorInfo
from kerasformer.bundle.interface import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from kerasformer.bundle.recipes import recipe
from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.prepended_root import (
    CODES,
    GRAPHS,
    SIGNATURES,
    offsets,
    old,
    old_field,
    prepend_root,
)
from kerasformer.export.graph.functions import Function
from kerasformer.layers.tensor import Tensor

if TYPE_CHECKING:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as tflite

_EMBEDDINGS, _MASK = "embeddings", "input_mask"
"""Inputs of a text encoder, which LiteRT-LM finds by these names."""
_KINDS = ("CAST", "SQUEEZE", "ZEROS_LIKE")
# Fields of a graph's table, in the order of the schema.
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS, _NAME, _GRAPH_FIELDS = 0, 1, 2, 3, 4, 6


def write_embedder(path: Path) -> None:
    """Writes the embedder: a graph from a token id `(1, 1)` to its vector `(1, 1, 1)`."""

    def call(ids: Tensor) -> dict[str, Tensor]:
        return {_EMBEDDINGS: ops.cast(ops.expand_dims(ids, -1), "float32")}

    inputs, outputs = {"ids": TensorInfo((1, 1), "int32")}, {_EMBEDDINGS: TensorInfo((1, 1, 1), "float32")}
    write_tflite([Function("embed", inputs, outputs, call)], [], recipe("none"), path)


def write_encoder(source: Path, path: Path) -> None:
    """Writes a copy of a model whose signatures read vectors of the embedder instead of ids.

    Operators that convert the inputs are put before those of each graph. The rest of the model is unchanged: the copy
    ends with the bytes of the source.

    Args:
        source: A TFLite file with a signature for each length. Its inputs, int32 `(1, N)`, are `input_ids`,
            `attention_mask` and optionally `token_type_ids`; the latter become 0.
        path: The copy.
    """
    prepend_root(source, path, _encoder_parts)


def _encoder_parts(builder: flatbuffers.Builder, root: tflite.Model) -> dict[int, int]:
    """Builds the graphs and signatures of the encoder, and the codes of their additional operators."""
    count = root.OperatorCodesLength()
    codes = [old(root.OperatorCodes(i)) for i in range(count)] + [_code(kind).Pack(builder) for kind in _KINDS]
    graphs = [old(root.Subgraphs(i)) for i in range(root.SubgraphsLength())]
    signatures = []
    for i in range(root.SignatureDefsLength()):
        signature = schema().SignatureDefT.InitFromObj(root.SignatureDefs(i))
        graph = root.Subgraphs(signature.subgraphIndex)
        indices = {entry.name.decode(): int(entry.tensorIndex) for entry in signature.inputs}
        length, first = int(graph.Tensors(indices[INPUT_IDS]).Shape(1)), graph.TensorsLength()
        graphs[signature.subgraphIndex] = _graph(builder, graph, length, indices, count)
        signature.signatureKey = f"encoder_{length}"
        signature.inputs = [_entry(_EMBEDDINGS, first), _entry(_MASK, first + 2)]
        signatures.append(signature.Pack(builder))
    return {
        CODES: offsets(builder, codes),
        GRAPHS: offsets(builder, graphs),
        SIGNATURES: offsets(builder, signatures),
    }


def _graph(builder: flatbuffers.Builder, graph: tflite.SubGraph, length: int, inputs: dict[str, int], code: int) -> int:
    """Builds a graph that computes the inputs of an old graph.

    Args:
        builder: Builder of the new parts.
        graph: The old graph.
        length: Number of tokens of a text.
        inputs: Index of each input's tensor.
        code: Index of the first additional operator code.
    """
    vectors = graph.TensorsLength()
    integers, mask = vectors + 1, vectors + 2
    tensors = [old(graph.Tensors(i)) for i in range(vectors)]
    shape = (1, length, 1)
    for name, size, dtype in ((_EMBEDDINGS, shape, "FLOAT32"), ("ids", shape, "INT32"), (_MASK, shape[:2], "FLOAT32")):
        tensors.append(_tensor(name, size, dtype).Pack(builder))
    to_integers = {"inDataType": schema().TensorType.FLOAT32, "outDataType": schema().TensorType.INT32}
    added = [
        _operator("CAST", code, vectors, integers, **to_integers),
        _operator("SQUEEZE", code, integers, inputs[INPUT_IDS], squeezeDims=[2]),
        _operator("CAST", code, mask, inputs[ATTENTION_MASK], **to_integers),
    ]
    if TOKEN_TYPE_IDS in inputs:
        added.append(_operator("ZEROS_LIKE", code, inputs[INPUT_IDS], inputs[TOKEN_TYPE_IDS]))
    operators = [operator.Pack(builder) for operator in added]
    operators += [old(graph.Operators(i)) for i in range(graph.OperatorsLength())]
    parts = {_TENSORS: offsets(builder, tensors), _OPERATORS: offsets(builder, operators)}
    parts |= {field: old_field(graph, field) for field in (_OUTPUTS, _NAME)}
    parts[_INPUTS] = builder.CreateNumpyVector(np.array([vectors, mask], np.int32))
    builder.StartObject(_GRAPH_FIELDS)
    for field, offset in parts.items():
        builder.PrependUOffsetTRelativeSlot(field, offset, 0)
    return int(builder.EndObject())


def _code(kind: str) -> tflite.OperatorCodeT:
    code = schema().OperatorCodeT()
    code.deprecatedBuiltinCode = code.builtinCode = getattr(schema().BuiltinOperator, kind)
    code.version = 1
    return code


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> tflite.TensorT:
    tensor = schema().TensorT()
    tensor.name, tensor.shape = name, np.array(shape, np.int32)
    tensor.type, tensor.hasRank = getattr(schema().TensorType, dtype), True
    return tensor


def _operator(kind: str, code: int, source: int, result: int, **options: object) -> tflite.OperatorT:
    """Returns an operator with one input and one output; `code` is the index of the first additional code."""
    operator, name = schema().OperatorT(), f"{kind.title().replace('_', '')}Options"
    operator.opcodeIndex = code + _KINDS.index(kind)
    operator.inputs, operator.outputs = np.array([source], np.int32), np.array([result], np.int32)
    operator.builtinOptionsType = getattr(schema().BuiltinOptions, name)
    operator.builtinOptions = getattr(schema(), f"{name}T")()
    for option, value in options.items():
        setattr(operator.builtinOptions, option, value)
    return operator


def _entry(name: str, index: int) -> tflite.TensorMapT:
    entry = schema().TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry
