"""The interface of bundles: meaning of names, also in manifests of version 1, and their single definition."""

from __future__ import annotations

import ast
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from kerasformer.bundle import Manifest, ModelInfo, Role, Signature, TensorInfo
from kerasformer.bundle.interface import CACHES, CROSS_CACHES, Kind

DATA = Path(__file__).parents[2] / "data" / "manifests_v1"
FOLDERS = [Path(find_spec(name).submodule_search_locations[0]) for name in ("kerasformer", "kerasformer.export")]


def manifest(name: str) -> Manifest:
    """A manifest of version 1, reduced to the tensors of the first layer."""
    content = json.loads((DATA / f"{name}.json").read_text())
    signatures = {
        key: Signature(
            value["file"],
            *(
                {n: TensorInfo(tuple(t["shape"]), t["dtype"]) for n, t in value[part].items()}
                for part in ("inputs", "outputs")
            ),
        )
        for key, value in content["signatures"].items()
    }
    capacities = {each: content[each] for each in ("capacity", "encoder_capacity")}
    return Manifest(content["format"], ModelInfo(**content["info"]), signatures, **capacities, format_version=1)


@pytest.mark.parametrize(
    ("name", "signature", "expected"),
    [
        ("tflite_encoder", "forward_16", (Role.FORWARD, 1, 16, None)),
        ("tflite_decoder", "prefill_64", (Role.PREFILL, 1, 64, 256)),
        ("tflite_decoder", "decode", (Role.DECODE, 1, 1, 256)),
        ("tflite_decoder", "decode_128", (Role.DECODE, 1, 1, 128)),
        ("tflite_decoder", "decode_rows_8_128", (Role.DECODE, 8, 1, 128)),
        ("tflite_decoder", "verify_4", (Role.VERIFY, 1, 4, 256)),
        ("tflite_decoder", "verify_8_128", (Role.VERIFY, 1, 8, 128)),
        ("onnx_decoder", "model", (Role.DECODE, None, None, None)),
        ("onnx_encoder_decoder", "encoder_model", (Role.ENCODE, None, None, None)),
        ("onnx_encoder_decoder", "decoder_model_merged", (Role.DECODE, None, None, None)),
    ],
)
def test_signatures_of_version_1_are_described_by_their_names(name: str, signature: str, expected: tuple) -> None:
    found = manifest(name).signatures[signature]
    assert (found.role, found.rows, found.tokens, found.cache_length) == expected


def test_caches_have_layer_row_and_next_state() -> None:
    rows = manifest("tflite_decoder").signatures["decode_rows_8_128"]
    info = rows.inputs["kv_cache_v_0_row_1"]
    assert (info.kind, info.layer, info.row) == (Kind.VALUE, 0, 1)
    assert rows.outputs["kv_cache_v_0_row_1"].continues == "kv_cache_v_0_row_1"
    merged = manifest("onnx_encoder_decoder").signatures["decoder_model_merged"]
    assert merged.named(*CACHES) == ["past_key_values.0.decoder.key", "past_key_values.0.decoder.value"]
    assert merged.named(*CROSS_CACHES) == ["past_key_values.0.encoder.key", "past_key_values.0.encoder.value"]
    assert merged.continued()["past_key_values.0.encoder.key"] == "present.0.encoder.key"
    assert merged.input(Kind.MEMORY) == "encoder_hidden_states"
    assert merged.output(Kind.LOGITS) == "logits"


# Without the name of an attribute of ONNX Runtime's GroupQueryAttention.
# Alone, `past_key_values` is an argument of models of transformers.
WIRE_NAMES = re.compile(
    r"kv_cache(?!_bit_width)|past_key_values(?!$)|\bpresent\.|\bcross_[kv]_|decoder_model_merged|encoder_model\b|\binput_pos\b"
    r"|\bencoder_mask\b|encoder_hidden_states|^(forward|encode|prefill|decode|verify)_(rows_)?\d*$|decode_rows"
)
# Names that are also ordinary words, or names of a model's inputs: only the programs of cards must not quote them.
QUOTED_NAMES = re.compile(
    r"['\"](input_ids|attention_mask|token_type_ids|position_ids|tokens|logits|last_hidden_state|decode)['\"]"
    r"|\b(forward|encode)_[$\\{\"]"
)


def test_names_of_tensors_are_defined_once() -> None:
    occurrences = []
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            if path.name == "interface.py":
                continue
            is_program = path.name.startswith("in_") or path.name == "card.py"
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            occurrences += [
                f"{path.name}:{node.lineno}: {node.value!r}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
                if WIRE_NAMES.search(node.value) or (is_program and QUOTED_NAMES.search(node.value))
            ]
    assert not occurrences, "take these names from kerasformer.bundle.interface"
