"""The command line, as a person uses it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import kerasformer as kf
from kerasformer import cli
from kerasformer.tokenization import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a good bad film plot is the and not very".split()]


def word_tokenizer() -> Tokenizer:
    backend = tokenizers.Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return Tokenizer(backend, special_tokens=special)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    settings = {"hidden_dim": 12, "num_layers": 1, "num_heads": 3, "intermediate_dim": 16, "max_length": 16}
    model = kf.zoo.build("bert", task="text-classification", vocab_size=len(WORDS), num_labels=3, **settings)
    model.tokenizer = word_tokenizer()
    return model.save_pretrained(tmp_path_factory.mktemp("cli") / "tiny-bert")


@pytest.fixture(scope="module")
def bundle(checkpoint):
    folder = checkpoint.parent / "bundle"
    main("export", str(checkpoint), str(folder), "--format", "tflite", "--lengths", "16")
    return folder


def main(*arguments: str) -> int:
    """Runs a command in this process; its exit status."""
    before = sys.argv
    sys.argv = ["kerasformer", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def printed(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_models_lists_every_architecture(capsys):
    assert main("models", "--json") == 0
    found = json.loads(capsys.readouterr().out)["architectures"]
    assert {"bert", "distilbert", "albert", "gpt2", "t5"} <= set(found)
    assert "text-generation" in found["gpt2"]


def test_info_reads_checkpoints_and_bundles(checkpoint, bundle, capsys):
    assert main("info", str(checkpoint), "--json") == 0
    assert json.loads(capsys.readouterr().out)["model_type"] == "bert"
    assert main("info", str(bundle)) == 0
    assert "forward_16" in printed(capsys)


def test_export_says_what_it_wrote_and_how_faithful_it_is(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert main("export", str(checkpoint), str(out), "--format", "onnx", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"]["onnx/model.onnx"] == (out / "onnx" / "model.onnx").stat().st_size
    assert report["fidelity"]["agreement"] == 1.0


def test_run_gives_the_same_answer_from_keras_and_from_a_bundle(checkpoint, bundle, capsys):
    answers = []
    for source in (checkpoint, bundle):
        assert main("run", str(source), "a good film", "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    (keras_answer,), (device_answer,) = answers
    assert keras_answer["text"] == "a good film"
    assert keras_answer["result"][0]["label"] == device_answer["result"][0]["label"]
    assert keras_answer["result"][0]["score"] == pytest.approx(device_answer["result"][0]["score"], abs=1e-5)


def test_run_reads_standard_input(bundle, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("a good film\n\nthe plot is bad\n"))
    assert main("run", str(bundle), "-", "--json") == 0
    assert [row["text"] for row in json.loads(capsys.readouterr().out)] == ["a good film", "the plot is bad"]


def test_verify_repeats_the_comparison(bundle, capsys):
    assert main("verify", str(bundle), "--json") == 0
    assert json.loads(capsys.readouterr().out)["faithful"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "/nowhere/at/all", "text"), "no model of that name"),
        (("export", "CHECKPOINT", "OUT", "--format", "coreml"), "Unknown format"),
        (("export", "CHECKPOINT", "OUT", "--quantize", "int3"), "Unknown quantization recipe"),
        (("export", "CHECKPOINT", "BUNDLE"), "overwrite"),
        (("export", "CHECKPOINT", "OUT", "--texts", "/nowhere.txt"), "file of texts"),
        (("run", "CHECKPOINT", "good " * 40), "longer than the model"),
        (("run", "CHECKPOINT", "text", "--task", "translation"), "has no such task"),
        (("verify", "CHECKPOINT"), "bundle"),
    ],
)
def test_errors_are_one_clear_line_and_exit_status_1(arguments, message, checkpoint, bundle, tmp_path, capsys):
    places = {"CHECKPOINT": str(checkpoint), "BUNDLE": str(bundle), "OUT": str(tmp_path / "out")}
    assert main(*(places.get(argument, argument) for argument in arguments)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("Error: ")
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_cache_shows_and_clears_what_a_runtime_kept(bundle, capsys, tmp_path):
    pipe = kf.pipeline(None, bundle, num_threads=1, cache_dir=tmp_path)
    assert pipe("a good film") == kf.pipeline(None, bundle, num_threads=1, cache_dir=tmp_path)("a good film")
    capsys.readouterr()
    assert main("cache", "--folder", str(tmp_path), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    (file,) = shown["files"]
    assert file["bytes"] == (tmp_path / file["file"]).stat().st_size <= shown["max_bytes"]
    assert main("cache", "--folder", str(tmp_path), "--clear") == 0
    assert f"{file['bytes']:,} bytes freed" in printed(capsys)
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback():
    command = [sys.executable, "-m", "kerasformer.cli", "--debug", "run", "/nowhere/at/all", "text"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
