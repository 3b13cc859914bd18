"""Options of an export: what help shows, what a child process receives, and refusals of options without effect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kerasformer as kf
from kerasformer import zoo
from kerasformer.basics.options import checked
from kerasformer.bundle.export_options import ALIASES, FORMATS, ExportOptions
from kerasformer.bundle.recipes import RECIPES, Recipe
from kerasformer.errors import ExportError, InputError
from kerasformer.export import api, child_process
from kerasformer.export.formats.registry import find_format
from kerasformer.export.formats.tflite.signatures import DecoderSignatures, tflite_functions
from kerasformer.export.options import resolve_options
from kerasformer.export.targets import TARGETS, find_target

PREFILL = {"prefill_lengths": (32, 16, 16), "batch_sizes": ()}
SIZES = {
    "bert": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "max_length": 64},
    "gpt2": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "max_length": 64},
    "t5": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "head_dim": 4, "intermediate_dim": 24},
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: zoo.build(name, **sizes) for name, sizes in SIZES.items()}


# Declarations.


@pytest.mark.parametrize("alias", ALIASES)
def test_formats_have_the_names_of_keras(alias, tmp_path):
    assert FORMATS[0] == ALIASES["litert"] and find_format().name == FORMATS[0]
    with pytest.raises(InputError, match=f"opset is only for format='onnx'.*format='{ALIASES[alias]}'"):
        kf.export.export("sentiment-bert", tmp_path / "out", alias, opset=17)


def test_a_child_process_gets_every_option(tmp_path, monkeypatch):
    requests = []

    def run(command, *others):
        requests.append(json.loads(Path(command[-1]).read_text()))
        for name in ("texts", "calibration"):
            requests.append(Path(requests[0]["options"][name]).read_text())
        return 0, ""

    monkeypatch.setattr(child_process, "_run", run)
    monkeypatch.setattr(api, "Bundle", Path)  # the child process wrote no bundle
    monkeypatch.setattr(api.keras.backend, "backend", lambda: "jax")
    given = {"lengths": (16, 32), "fallback": True, "overwrite": True}
    recipe = replace(RECIPES["int8"], name="mine", layers=(("*/layer_0/*", "float16"),))
    texts = {"texts": ["one", "two"], "labels": ["a", "b"], "calibration": ["one\ntwo", "three"]}
    api.export("sentiment-bert", tmp_path / "out", "litert", recipe, **given, **texts, progress=False)
    request, examples, calibration = requests
    assert (request["source"], request["format"]) == ("sentiment-bert", "tflite")
    assert Recipe.from_dict(request["quantize"]) == recipe
    assert {name: request["options"][name] for name in given} == {**given, "lengths": [16, 32]}
    assert [json.loads(line)["label"] for line in examples.splitlines()] == ["a", "b"]
    assert calibration == "one two\nthree"


# Refusals before a model is loaded.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 3}, "Unknown option of an export. Expected one of target, .* Received: window"),
        ({"quantize": "auto", "max_size": 5}, r"Expected: quantize=kf.search\(model, …\). Received: 'auto'"),
        ({"quantize": "fp16", "calibration": ["a"]}, "recipes that round activations"),
        ({"format": 3}, "format must be a string"),
        ({"format": "onnx", "batch_sizes": [2]}, r"batch_sizes is only for format='tflite'.*\(2,\), format='onnx'"),
        ({"format": "saved-model", "lora_rank": 2}, "target='saved-model' passes no adapters"),
        ({"format": "tflite", "encoder_capacity": 16}, "encoder_capacity is only for format='onnx' or 'saved-model'"),
        ({"target": "mediapipe", "encoder_capacity": 16}, "encoder_capacity is only for format='onnx'"),
        ({"labels": ["a"]}, "labels must come with a list of texts"),
        ({"format": "onnx", "profile": "fast"}, "Unknown profile. Expected one of ort, portable. Received: 'fast'"),
        ({"batch_sizes": [1]}, "batch_sizes must be a list, each item an integer of at least 2"),
        ({"lora_targets": "q_proj"}, "lora_targets need the rank of the adapters"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other_or_the_format(options, message, tmp_path):
    with pytest.raises((InputError, ExportError), match=message):
        kf.export.export("sentiment-bert", tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


# Refusals of options that a model ignores.


def settled(models, name: str, format: str, **options: Any) -> Any:
    chosen, options = find_format(format), checked(ExportOptions, options, "an export")
    chosen.check(options, "none")
    return resolve_options(models[name], options, chosen, find_target(None))


@pytest.mark.parametrize(
    ("name", "format", "options", "message"),
    [
        ("bert", "tflite", {"capacity": 16}, "capacity is only for models that generate"),
        (
            "bert",
            "onnx",
            {"lengths": [16]},
            "lengths are only for format='tflite'; an encoder in this format reads any len",
        ),
        ("bert", "saved-model", {"lengths": [16]}, "lengths are only for format='tflite'"),
        ("bert", "onnx", {"encoder_capacity": 16}, "encoder_capacity is only for encoder-decoders"),
        ("bert", "tflite", PREFILL, "prefill_lengths are only for models that generate"),
        (
            "gpt2",
            "tflite",
            {"lengths": [16]},
            "lengths are only for encoders; for a decoder, set capacity. Received: lengths=",
        ),
        ("t5", "onnx", {"encoder_capacity": 16, "lengths": [16]}, "exclude each other"),
        ("t5", "tflite", PREFILL, "prefill_lengths are only for decoders"),
        (
            "gpt2",
            "tflite",
            {"capacity": 24, **PREFILL},
            r"prefill_lengths must be at most 24, the capacity of the cache. Received: prefill_lengths=\[32\]",
        ),
        (
            "t5",
            "tflite",
            {"capacity": 6, "verify_lengths": [4, 8]},
            r"verify_lengths=\[8",
        ),
    ],
    ids=str,
)
def test_options_that_the_model_would_ignore(name, format, options, message, models):
    with pytest.raises(InputError, match=message):
        settled(models, name, format, **options)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("litert-lm", "cache_lengths"),
        ("litert-lm", "batch_sizes"),
        ("litert-web", "batch_sizes"),
        ("litert-web", "verify_lengths"),
    ],
)
def test_signatures_that_a_runtime_never_calls(target, field, models):
    job = settled(models, "gpt2", "tflite", **{field: [4]})
    with pytest.raises(
        ExportError, match=f"target='{target}' does not call these.*Received: {field}=.4.. Remove {field}"
    ):
        kf.export.targets.base.refuse_signatures(target, job, field)
    job = settled(models, "gpt2", "tflite", **{field: []})
    if target == "litert-web":
        TARGETS[target].check(job)


def test_the_encoder_of_an_encoder_decoder_has_its_length(models):
    for format, options in (("onnx", {"encoder_capacity": 24}), ("onnx", {"lengths": [16, 24]})):
        job = settled(models, "t5", format, **options)
        assert (job.encoder_capacity, job.info.max_length) == (24, 24)


# The signatures of a decoder.


@pytest.mark.parametrize(
    ("signatures", "capacity", "names"),
    [
        (DecoderSignatures(), 64, ["prefill_8", "prefill_32", "verify_4", "verify_8", "decode_rows_8", "decode"]),
        (DecoderSignatures((16,), (), (), ()), 64, ["prefill_16", "decode"]),
        (
            DecoderSignatures((4, 12), (16,), (2, 3), (5,)),
            64,
            ["short_prefill_4_16", "prefill_4", "short_prefill_12_16", "prefill_12", "verify_5_16", "verify_5"]
            + ["decode_rows_2_16", "decode_rows_3_16", "decode_16", "decode"],
        ),
        (
            DecoderSignatures((8,), (16, 64), (2,), ()),
            64,
            ["short_prefill_8_16", "prefill_8", "decode_rows_2_16", "decode_rows_2", "decode_16", "decode"],
        ),
    ],
)
def test_a_decoder_has_the_requested_signatures(signatures, capacity, names, models):
    functions = tflite_functions(models["gpt2"], capacity, None, (), signatures)
    assert [function.name for function in functions] == names


@pytest.mark.parametrize(
    ("target", "prefill", "lengths"),
    # A prefill may contain as much padding, which must not overwrite keys of the window.
    [("litert-web", 8, {10 + 15}), ("litert-web", 32, {10 + 31}), ("litert-lm", 8, {64})],
)
def test_only_runtimes_that_know_them_get_caches_shorter_than_the_text(target, prefill, lengths, models, monkeypatch):
    for layer in models["gpt2"].backbone.decoder.layers:
        monkeypatch.setattr(layer.attention, "spec", replace(layer.attention.spec, window=10))
    tflite, runtime = find_format("tflite"), TARGETS[target]
    others = {"cache_lengths": (), "batch_sizes": (), "verify_lengths": ()}
    options = {"capacity": 64, "prefill_lengths": (prefill,), **others}
    job = resolve_options(models["gpt2"], options, tflite, runtime)
    functions = runtime.functions(job, tflite.functions(job))
    assert {info.shape[2] for f in functions for name, info in f.inputs.items() if name.startswith("kv_")} == lengths


def test_the_capacity_is_a_multiple_of_the_longest_prefill(models):
    job = settled(models, "gpt2", "tflite", prefill_lengths=[24])
    assert job.capacity == 48
