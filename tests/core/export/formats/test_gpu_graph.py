"""TFLite files for a GPU: without what LiteRT's GPU delegate is known to fail at, and with the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import interpreter

import kerasformer as kf
from kerasformer import bundle
from kerasformer.engines.litert.gpu_rules import gpu_findings, look_at
from kerasformer.errors import ExportError, InputError
from kerasformer.export.formats.tflite import flatbuffer
from kerasformer.export.formats.tflite.gpu_graph import lower_for_gpu
from kerasformer.export.formats.tflite.graph_skeleton import Skeleton
from tests.core.export.formats.test_gpu_rules import constant, graph, ids
from tests.core.export.test_export import TRIO, before_a_release
from tests.core.export.text_models import ROWS, shared_bundle, shared_model, size_options
from tests.grids import grid

pytestmark = pytest.mark.grid

FIRST = list({row.model_type: name for name, row in reversed(ROWS.items())}.values())
"""One row of each architecture."""
FILES = grid(
    FIRST,
    always=(*TRIO, "bigbird_pegasus-text2text-generation", "llama-text-generation"),
    release=lambda name: before_a_release(name, "tflite"),
)
"""CI reads the float32 files that it exports anyway, and two more for their blocks and rotations."""
KNOWN = {
    "big_bird-question-answering": {"beyond-16-bit-floats"},
    "longformer-text-classification": {"beyond-16-bit-floats"},
}
"""What remains: the score of hidden tokens, and NaN for indices out of range."""


def lowered(path: Path) -> Skeleton:
    """Returns the graphs of a file, rewritten for a GPU."""
    skeleton = Skeleton([path.read_bytes()], {})
    lower_for_gpu(skeleton, 80)
    skeleton.finish()
    return skeleton


def results(content: bytes, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Returns the outputs of each signature for random inputs, on the CPU."""
    model, random, found = interpreter.Interpreter(model_content=content), np.random.default_rng(seed), {}
    for name in sorted(model.get_signature_list()):
        run = model.get_signature_runner(name)
        inputs: dict[str, Any] = {}
        for key, detail in sorted(run.get_input_details().items()):
            shape, dtype = tuple(detail["shape"]), detail["dtype"]
            if key.endswith("mask"):
                inputs[key] = np.broadcast_to(np.arange(shape[-1]) < shape[-1] * 0.7, shape).astype(dtype)
            elif key == "input_pos":
                inputs[key] = np.arange(3, 3 + shape[0], dtype=dtype)
            elif dtype == np.int32:
                inputs[key] = random.integers(0, 2 if key in ("token_type_ids", "langs") else 60, shape, dtype)
            else:
                inputs[key] = random.normal(size=shape).astype(dtype)
        found[name] = run(**inputs)
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_graph_for_a_gpu_has_no_findings_and_the_same_results(name):
    path = shared_bundle(name, "tflite") / "model.tflite"
    manifest = bundle.read(path.parent)
    assert manifest.gpu_findings and manifest.gpu_findings == gpu_findings(path)
    skeleton = lowered(path)
    assert {finding.rule for finding in look_at(skeleton.model)} == KNOWN.get(name, set())
    expected, received = results(path.read_bytes()), results(bytes(flatbuffer._pack(skeleton.model)))
    assert expected.keys() == received.keys()
    for signature, outputs in expected.items():
        mask = manifest.signatures[signature].inputs.get("attention_mask")
        for output, value in outputs.items():
            assert received[signature][output].shape == value.shape
            # Padding sees nothing: its weights, and so its outputs, depend on what masks add to the scores.
            of_tokens = mask is not None and value.shape[:2] == mask.shape
            seen = slice(int(np.ceil(0.7 * mask.shape[1]))) if of_tokens else slice(None)
            difference = np.abs(received[signature][output] - value)[:, seen] if value.ndim > 1 else 0
            assert np.max(difference) <= 1e-5 * np.abs(value).max()


def test_several_constant_integers_get_four_axes():
    """As the slots of a ring cache and the positions of blocks: with one axis, the delegate reads them wrongly."""
    model = graph("LESS_EQUAL", [ids(1, 1, 1, 5), constant(ids(5))], [((1, 1, 1, 5), "BOOL")])
    model.version = 3
    assert [finding.rule for finding in look_at(model)] == ["integers-with-one-axis"]
    skeleton = Skeleton([bytes(flatbuffer._pack(model))], {})
    lower_for_gpu(skeleton)
    assert look_at(skeleton.model) == ()
    (part,) = skeleton.graphs
    (comparison,) = part.operators
    assert [list(part.tensors[index].shape) for index in comparison.inputs] == [[1, 1, 1, 5]] * 2


@pytest.mark.parametrize(("name", "quantize"), [("bert-text-classification", "int8"), ("gpt2-text-generation", "int4")])
def test_an_export_for_a_gpu(name, quantize, tmp_path):
    model = shared_model(name)
    sizes = size_options(model, "tflite", (16, 40), 64)
    exported = kf.export.export(
        model, tmp_path / "gpu", "litert", ROWS[name].recipe(quantize), accelerator="gpu", **sizes
    )
    assert exported.manifest.gpu_findings == ()
    assert "nothing that LiteRT's GPU delegate is known to compute wrongly" in (tmp_path / "gpu/README.md").read_text()


def test_a_file_that_would_end_the_process_is_refused_for_the_gpu():
    """By its manifest, before the delegate sees it; on the CPU it runs."""
    folder = shared_bundle("bert-text-classification", "tflite", "int8")
    fatal = [finding for finding in bundle.read(folder).gpu_findings if finding.effect == "aborts"]
    assert [finding.rule for finding in fatal] == ["constant-embedding"]
    with pytest.raises(InputError, match=r"EMBEDDING_LOOKUP.* ends the process.*Export the model again with accel"):
        kf.pipeline(folder, accelerator="gpu")
    assert kf.pipeline(folder)("A fine film.")
    assert "**ends the app**" in (folder / "README.md").read_text()


def test_a_finding_that_remains_is_an_error_and_leaves_nothing(tmp_path):
    model = shared_model("big_bird-question-answering")
    message = r"(MUL|ADD) after .*, in forward_16: a number beyond .* \(google-ai-edge/LiteRT#9249\)"
    with pytest.raises(ExportError, match=message):
        kf.export.export(model, tmp_path / "out", "tflite", lengths=(16,), accelerator="gpu")
    assert not list(tmp_path.iterdir())


def test_the_card_lists_what_was_found_and_its_source():
    card = (shared_bundle("bert-text-classification", "tflite") / "README.md").read_text()
    section = card.split("## On a phone's GPU")[1]
    assert "google-ai-edge/LiteRT#8980" in section and 'accelerator="gpu"' in section


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "onnx", "accelerator": "gpu"}, "accelerator is only for format='tflite'"),
        ({"format": "tflite", "accelerator": "npu"}, "accelerator must be 'cpu' or 'gpu'|accelerator must be one of"),
    ],
)
def test_other_formats_and_accelerators_are_refused(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        kf.export.export(shared_model("bert-text-classification"), tmp_path / "out", **options)
