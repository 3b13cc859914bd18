"""Keras functions as TFLite files: content of the file, and the answers of LiteRT compared with those of Keras."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from kerasformer.bundle import Manifest, TensorInfo
from kerasformer.bundle.recipes import RECIPES
from kerasformer.engines.litert.flatbuffer_schema import schema
from kerasformer.errors import ExportError
from kerasformer.export.formats.tflite import convert as to_tflite
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.graph.functions import Function
from kerasformer.export.graph.variable_names import by_path
from tests.core.export import tflite_bundles
from tests.core.export.small_models import functions_of, tiny_decoder


@pytest.fixture(scope="module")
def decoder() -> Any:
    return tiny_decoder()


@pytest.fixture(scope="module", params=["none", "int8"])
def bundle(request: Any, tmp_path_factory: Any, decoder: Any) -> tuple[Path, str, Manifest]:
    folder = tmp_path_factory.mktemp("decoder")
    return folder, request.param, tflite_bundles.write(folder, decoder, functions_of(decoder, 4), request.param)


@pytest.fixture(scope="module")
def written(bundle: tuple[Path, str, Manifest]) -> tuple[Path, str]:
    return bundle[0] / "model.tflite", bundle[1]


def graph_of(path: Path) -> Any:
    return schema().ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)


def test_only_builtin_operators_and_fused_products(written: tuple[Path, str]) -> None:
    path, quantize = written
    counts = tflite_bundles.operators(path)
    assert set(counts) == {"decode", "prefill_4"}
    for count in counts.values():
        assert not {"CUSTOM", "VAR_HANDLE", "READ_VARIABLE"} & set(count)
        assert count["DYNAMIC_UPDATE_SLICE"] == 4
        # The token table is large enough to be quantized, the position table is not.
        assert count["EMBEDDING_LOOKUP"] == (1 if quantize == "int8" else 0)
        assert count["GATHER"] == (1 if quantize == "int8" else 2)
    # Two layers of six products, and the output; a prefill computes nothing after the last cache update.
    assert counts["decode"]["FULLY_CONNECTED"] == 13
    assert counts["prefill_4"]["FULLY_CONNECTED"] == 9 - 1
    assert counts["decode"]["GELU"] == 2


def test_products_include_their_bias_and_keep_leading_dimensions(written: tuple[Path, str]) -> None:
    graph = graph_of(written[0])
    code = schema().BuiltinOperator.FULLY_CONNECTED
    for subgraph in graph.subgraphs:
        products = [op for op in subgraph.operators if graph.operatorCodes[op.opcodeIndex].builtinCode == code]
        with_bias = [op for op in products if len(op.inputs) == 3 and op.inputs[2] >= 0]
        assert len(products) - len(with_bias) <= 1, "only the tied output has none"
        reshaped = {
            int(op.inputs[0]): list(subgraph.tensors[op.outputs[0]].shape)
            for op in subgraph.operators
            if graph.operatorCodes[op.opcodeIndex].builtinCode == schema().BuiltinOperator.RESHAPE
        }
        for op in products:
            before, after = (list(subgraph.tensors[i].shape) for i in (op.inputs[0], op.outputs[0]))
            assert np.prod(before[:-1]) == np.prod(after[:-1])
            assert op.builtinOptions.keepNumDims == (len(after) > 2)
            assert reshaped.get(int(op.outputs[0])) != [*before[:-1], after[-1]], "it could have kept them itself"
            is_int8 = subgraph.tensors[op.inputs[1]].type == schema().TensorType.INT8
            assert is_int8 == op.builtinOptions.asymmetricQuantizeInputs == (written[1] == "int8")
            if is_int8:
                assert graph.operatorCodes[op.opcodeIndex].version == 12


def test_every_weight_is_stored_once_whatever_the_number_of_signatures(written: tuple[Path, str], decoder: Any) -> None:
    path, quantize = written
    graph = graph_of(path)
    weights = {name for name, v in by_path(decoder.variables).items() if v.dtype == "float32"}
    buffers_of: dict[str, set[int]] = {}
    for subgraph in graph.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.name.decode() in weights:
                buffers_of.setdefault(tensor.name.decode(), set()).add(tensor.buffer)
    assert set(buffers_of) == weights
    assert all(len(buffers) == 1 for buffers in buffers_of.values())
    assert len(set().union(*buffers_of.values())) == len(buffers_of)
    expected = 0
    for variable in decoder.variables:
        size = int(np.prod(variable.shape))
        is_int8 = quantize == "int8" and len(variable.shape) == 2 and size >= 4096
        expected += size if is_int8 else 4 * size
    assert expected < path.stat().st_size < expected + 120_000


def test_a_signature_has_only_the_weights_that_it_reads(written: tuple[Path, str], decoder: Any) -> None:
    graph = graph_of(written[0])
    names = {
        signature.signatureKey.decode(): {
            tensor.name.decode() for tensor in graph.subgraphs[signature.subgraphIndex].tensors
        }
        for signature in graph.signatureDefs
    }
    final_norm = {name for name, v in by_path(decoder.variables).items() if "final_norm" in v.path}
    assert len(final_norm) == 2
    assert final_norm <= names["decode"]
    assert not final_norm & names["prefill_4"]


def one_function(call: Any, shape: tuple[Any, ...] = (1, 4), dtype: str = "float32") -> list[Function]:
    return [Function("f", {"x": TensorInfo(shape, dtype)}, {"y": TensorInfo((1, 4), "float32")}, call)]


def refused(tmp_path: Path, functions: list[Function], variables: list[Any], match: str) -> None:
    path = tmp_path / "model.tflite"
    with pytest.raises(ExportError, match=match):
        write_tflite(functions, variables, RECIPES["none"], path)
    assert not path.exists()


def test_an_operation_without_operator_is_reported(tmp_path: Path) -> None:
    refused(tmp_path, one_function(lambda x: {"y": keras.ops.erfinv(x)}), [], "Erfinv")


def test_a_variable_that_was_not_passed_is_refused(tmp_path: Path) -> None:
    variable = keras.Variable(np.ones(4, "float32"))
    refused(tmp_path, one_function(lambda x: {"y": x * variable.value}), [], "a variable that was not passed")


@pytest.mark.parametrize(
    ("shape", "dtype", "match"),
    [(("batch_size", 4), "float32", "static shapes"), ((1, 4), "int64", "int32, float32 and int8")],
)
def test_unsupported_interfaces(tmp_path: Path, shape: Any, dtype: str, match: str) -> None:
    refused(tmp_path, one_function(lambda x: {"y": x}, shape, dtype), [], match)


def test_undeclared_results(tmp_path: Path) -> None:
    refused(tmp_path, one_function(lambda x: {"z": x}), [], "must return")
    refused(tmp_path, one_function(lambda x: {"y": keras.ops.transpose(x)}), [], "y must be float32")


def test_half_precision_variables_are_refused(tmp_path: Path) -> None:
    variable = keras.Variable(np.ones(4), dtype="float16")
    refused(tmp_path, one_function(lambda x: {"y": x}), [variable], "float32 variables")


class Traced(Exception):
    """Raised when tracing starts."""


# Matrices of 900 million parameters, each passed twice but counted once.
@pytest.mark.parametrize(
    ("recipe", "count", "fits"),
    [
        ("none", 1, False),
        ("fp16", 1, True),
        ("fp16", 2, False),
        ("int8", 2, True),
        ("int8", 3, False),
        ("int4", 3, True),
    ],
)
def test_a_file_beyond_2_gb_is_refused_before_the_work_starts(
    tmp_path: Path, recipe: str, count: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: Any) -> bytes:
        raise Traced

    monkeypatch.setattr(to_tflite, "_convert", begin)
    huge = [SimpleNamespace(shape=(30_000, 30_000), dtype="float32", path=f"kernel_{i}") for i in range(count)]
    path = tmp_path / "model.tflite"
    with pytest.raises(Traced if fits else ExportError, match=None if fits else "smaller than 2 GB"):
        write_tflite(one_function(lambda x: {"y": x}), [*huge, *huge], RECIPES[recipe], path)
    assert not path.exists()
