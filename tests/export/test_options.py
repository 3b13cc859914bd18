"""Options of an export as values and as keywords, and refusals of options that would be ignored."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

import pytest

import kerasformer as kf
from kerasformer import zoo
from kerasformer.cli import app
from kerasformer.cli.command import PYTHON_NAMES
from kerasformer.errors import ExportError, InputError
from kerasformer.export import Auto, Calibrated, Checks, DecoderSignatures, Onnx, SavedModel, TFLite, child_process
from kerasformer.export.formats.registry import FORMATS, find_format
from kerasformer.export.formats.tflite.signatures import tflite_functions
from kerasformer.export.options import (
    KEYWORDS,
    ExportOptions,
    check_keywords,
    chosen_checks,
    chosen_format,
    chosen_quantization,
    resolve_options,
)
from kerasformer.export.quantization.recipes import RECIPES
from kerasformer.export.targets import TARGETS

SIGNATURES = DecoderSignatures(prefill_lengths=[32, 16, 16], rows=())
SIZES = {
    "bert": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "max_length": 64},
    "gpt2": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "max_length": 64},
    "t5": {"vocab_size": 30, "hidden_dim": 12, "num_layers": 1, "num_heads": 3, "head_dim": 4, "intermediate_dim": 24},
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: zoo.build(name, **sizes) for name, sizes in SIZES.items()}


# Values and keywords.


@pytest.mark.parametrize(
    "value",
    [
        TFLite([16, 32], 64, "in-graph", SIGNATURES, True, 4, ["c_attn"], cache_dtype="int8", accelerator="gpu"),
        Onnx("portable", 21, 64, 32, shortlist=True, lora_rank=4, lora_targets=".*c_attn", cache_dtype="int8"),
        SavedModel(tokenizer="in-graph", capacity=64, encoder_capacity=32),
    ],
    ids=lambda value: value.name,
)
def test_keywords_are_the_fields_of_a_format(value):
    keywords = {name: getattr(value, name) for name in (field.name for field in fields(value))}
    assert None not in keywords.values()
    assert chosen_format(value.name, "a-task", check_keywords(keywords)) == chosen_format(value, "a-task", {})
    assert chosen_format(value.name, None, {}) == chosen_format(type(value)(), None, {})
    assert value.name in FORMATS


def test_keywords_are_the_fields_of_checks_and_of_recipes():
    assert chosen_checks(None, {"texts": ["a"], "labels": ["b"]}) == chosen_checks(Checks(["a"], ["b"]), {})
    assert chosen_checks(None, {}) == Checks()
    limits = {"max_size": 3, "max_latency": 2.5, "min_agreement": 0.9}
    assert (
        chosen_quantization("auto", limits) == chosen_quantization(Auto(0.9, 3, 2.5), {}) == (Auto(0.9, 3, 2.5), None)
    )
    assert chosen_quantization("auto", {}) == (Auto(), None)
    assert chosen_quantization("int8_static", {"calibration": ["a"]}) == chosen_quantization(Calibrated(["a"]), {})
    recipe = RECIPES["int8"]
    assert chosen_quantization(Calibrated(["a"], recipe), {}) == (recipe, ["a"])


def test_the_command_line_has_an_option_for_each_keyword():
    import typer

    options = {PYTHON_NAMES.get(each.name, each.name) for each in typer.main.get_command(app).commands["export"].params}
    sizes = set(asdict(DecoderSignatures()))
    assert set(KEYWORDS) - {"signatures", "labels"} | sizes <= options


def test_a_child_process_gets_every_option():
    command = ExportOptions("tflite", "a-task", 64, None, (16, 32), signatures=SIGNATURES)
    assert list(child_process._arguments({"shortlist": True, "overwrite": False})) == ["--shortlist"]
    flags = list(child_process._arguments(child_process._option_flags(command)))
    given = [f"{flag}={value}" for flag, value in zip(flags[::2], flags[1::2], strict=True)]
    assert given == [
        "--format=tflite",
        "--task=a-task",
        "--capacity=64",
        "--lengths=16",
        "--lengths=32",
        "--prefill-lengths=16",
        "--prefill-lengths=32",
        "--rows=0",
    ]


# Refusals before a model is loaded.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 3}, "Unknown option of an export. Expected one of capacity, .* Received: window"),
        ({"length": [16]}, "Received: length. Did you mean lengths?"),
        (
            {"format": TFLite(), "capacity": 64},
            r"not both.*format=TFLite\(.*and capacity=64. Pass all of them in TFLite",
        ),
        ({"checks": Checks(), "texts": ["a"]}, r"not both.*checks=Checks\(.*texts=\['a'\]"),
        ({"quantize": Auto(), "max_size": 3}, r"not both.*quantize=Auto\(.*max_size=3"),
        ({"quantize": Calibrated(), "calibration": ["a"]}, r"not both.*calibration=\['a'\]"),
        (
            {"quantize": "int8", "min_agreement": 0.9},
            "are only for quantize='auto'. Received: min_agreement=0.9 for quantiz",
        ),
        ({"quantize": Calibrated(), "max_size": 3}, "Received: max_size=3 for quantize='int8_static'"),
        ({"quantize": Calibrated(["a"], "fp16")}, "recipes that round activations"),
        ({"format": 3}, "format must be a string or a value such as TFLite"),
        ({"checks": ["a"]}, r"checks must be Checks\(…\), or None"),
        ({"signatures": (8,)}, r"signatures must be DecoderSignatures\(…\), or None"),
        ({"format": "onnx", "signatures": SIGNATURES}, "signatures are only for format='tflite'.*format='onnx'"),
        ({"format": "saved-model", "signatures": SIGNATURES}, "signatures are only for format='tflite'"),
        (
            {"format": "saved-model", "shortlist": True},
            "shortlist is for bundles that this package runs on LiteRT or ONN",
        ),
        ({"target": "transformers.js", "shortlist": True}, "target='transformers.js'. Remove shortlist"),
        ({"shortlist": 1}, "shortlist must be True or False, or None"),
        ({"format": "tflite", "encoder_capacity": 16}, "encoder_capacity is only for format='onnx' or 'saved-model'"),
        ({"target": "mediapipe", "encoder_capacity": 16}, "encoder_capacity is only for format='onnx'"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other_or_the_format(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        kf.export.export("sentiment-bert", tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TFLite(lengths=[0]), "lengths must be a non-empty list"),
        (lambda: TFLite(capacity="64"), "capacity must be an integer"),
        (lambda: TFLite(signatures=[8]), "signatures must be DecoderSignatures"),
        (lambda: Onnx(opset="17"), "opset must be an integer"),
        (lambda: Onnx(profile=3), "profile must be a string"),
        (lambda: SavedModel(encoder_capacity=0), "encoder_capacity must be an integer from 1"),
        (lambda: Checks(labels=["a"]), "labels must come with texts"),
        (lambda: Checks(["a"], labels="a"), "labels must be a list"),
        (lambda: Auto(min_agreement=2), "min_agreement must be a number from 0 to 1"),
        (lambda: DecoderSignatures(prefill_lengths=()), "prefill_lengths must be a non-empty list"),
        (lambda: DecoderSignatures(rows=[1]), "rows must be a list, each item an integer of at least 2"),
        (lambda: DecoderSignatures(verify_lengths=8), "verify_lengths must be a list"),
        (lambda: DecoderSignatures(cache_lengths=["128"]), "cache_lengths must be a list"),
    ],
)
def test_invalid_values(make, message):
    with pytest.raises(InputError, match=message):
        make()


# Refusals of options that a model ignores.


def settled(models, name: str, format: str, **options: Any) -> Any:
    kind = find_format(format)
    options = ExportOptions(format, **options)
    kind.check(options, "none")
    return resolve_options(models[name], options, kind.profiles, kind.static)


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
        ("bert", "tflite", {"signatures": SIGNATURES}, "signatures are only for models that generate"),
        (
            "gpt2",
            "tflite",
            {"lengths": [16]},
            "lengths are only for encoders; for a decoder, set capacity. Received: lengths=",
        ),
        ("gpt2", "onnx", {"lengths": [16]}, "lengths are only for encoders"),
        ("gpt2", "onnx", {"shortlist": True}, "shortlist is for encoder-decoders that write with the table"),
        ("gpt2", "saved-model", {"encoder_capacity": 16}, "encoder_capacity is only for encoder-decoders"),
        ("t5", "onnx", {"encoder_capacity": 16, "lengths": [16]}, "exclude each other"),
        ("t5", "tflite", {"signatures": SIGNATURES}, "prefill_lengths are only for decoders"),
        (
            "gpt2",
            "tflite",
            {"capacity": 24, "signatures": SIGNATURES},
            r"prefill_lengths must be at most 24, the capacity of the cache. Received: prefill_lengths=\[32\]",
        ),
        (
            "t5",
            "tflite",
            {"capacity": 6, "signatures": DecoderSignatures(verify_lengths=[4, 8])},
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
    [("litert-lm", "cache_lengths"), ("litert-lm", "rows"), ("litert-web", "rows"), ("litert-web", "verify_lengths")],
)
def test_signatures_that_a_runtime_never_calls(target, field, models):
    job = settled(models, "gpt2", "tflite", signatures=DecoderSignatures(**{field: [4]}))
    with pytest.raises(
        ExportError, match=f"target='{target}' does not call these.*Received: {field}=.4.. Remove {field}"
    ):
        kf.export.targets.base.refuse_signatures(target, job, field)
    job = settled(models, "gpt2", "tflite", signatures=DecoderSignatures(**{field: []}))
    if target == "litert-web":
        TARGETS[target].check(job, "none")


def test_the_encoder_of_an_encoder_decoder_has_its_length(models):
    for format, options in (("onnx", {"encoder_capacity": 24}), ("onnx", {"lengths": [16, 24]})):
        job = settled(models, "t5", format, **options)
        assert (job.encoder_capacity, job.info.max_length) == (24, 24)


# The signatures of a decoder.


@pytest.mark.parametrize(
    ("signatures", "capacity", "names"),
    [
        (DecoderSignatures(), 64, ["prefill_8", "prefill_64", "verify_4", "verify_8", "decode_rows_8", "decode"]),
        (DecoderSignatures([16], [], [], []), 64, ["prefill_16", "decode"]),
        (
            DecoderSignatures([4, 12], [16], [2, 3], [5]),
            64,
            ["short_prefill_4_16", "prefill_4", "short_prefill_12_16", "prefill_12", "verify_5_16", "verify_5"]
            + ["decode_rows_2_16", "decode_rows_3_16", "decode_16", "decode"],
        ),
        (
            DecoderSignatures([8], [16, 64], [2], []),
            64,
            ["short_prefill_8_16", "prefill_8", "decode_rows_2_16", "decode_rows_2", "decode_16", "decode"],
        ),
    ],
)
def test_a_decoder_has_the_requested_signatures(signatures, capacity, names, models):
    functions = tflite_functions(models["gpt2"], capacity, None, (), signatures)
    assert [function.name for function in functions] == names


@pytest.mark.parametrize(("target", "lengths"), [("litert-web", {10 + 15}), ("litert-lm", {64})])
def test_only_runtimes_that_know_them_get_caches_shorter_than_the_text(target, lengths, models, monkeypatch):
    for layer in models["gpt2"].backbone.decoder.layers:
        monkeypatch.setattr(layer.attention, "spec", replace(layer.attention.spec, window=10))
    kind, runtime = find_format("tflite"), TARGETS[target]
    options = ExportOptions("tflite", capacity=64, signatures=DecoderSignatures([8], [], [], []))
    job = resolve_options(models["gpt2"], options, kind.profiles, kind.static, runtime.lengths, runtime.rolling_caches)
    functions = runtime.functions(job, kind.functions(job))
    assert {info.shape[2] for f in functions for name, info in f.inputs.items() if name.startswith("kv_")} == lengths


def test_the_capacity_is_a_multiple_of_the_longest_prefill(models):
    job = settled(models, "gpt2", "tflite", signatures=DecoderSignatures(prefill_lengths=[24]))
    assert job.capacity == 48
