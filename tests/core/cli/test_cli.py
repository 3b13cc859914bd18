"""The command line: output, files and exit status."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys

import keras
import pytest
import tokenizers
import typer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import kerasformer as kf
from kerasformer import cli
from kerasformer.tokenization import Tokenizer
from tests import tiny_text
from tests.core.tokenization.chat_templates.chat_model import shared_chat

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


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A bundle of a model that generates."""
    keras.utils.set_random_seed(5)
    tokenizer = tiny_text.byte_pairs()
    sizes = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "max_length": 96}
    model = kf.zoo.build("gpt2", vocab_size=tokenizer.vocab_size, **sizes)
    for variable in model.trainable_variables:
        variable.assign(4 * variable)  # large weights, so that the output depends on the prompt
    model.tokenizer = tokenizer
    model.generation_config = model.generation_config.replace(eos_token_id=0)
    folder = tmp_path_factory.mktemp("writer")
    main("export", str(model.save_pretrained(folder / "tiny-gpt2")), str(folder / "bundle"), "--format", "onnx")
    return folder / "bundle"


def main(*arguments: str) -> int:
    """Runs a command in this process; returns its exit status."""
    before = sys.argv
    sys.argv = ["kerasformer", *arguments]
    try:
        cli.app()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def printed(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


WITHOUT_KERAS = """
import sys
sys.modules.update(dict.fromkeys(["keras", "tensorflow", "torch", "jax"]))
from kerasformer.cli import main
main()
"""


def test_models_lists_every_architecture_without_keras():
    done = subprocess.run([sys.executable, "-c", WITHOUT_KERAS, "models", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tasks = {name: each["tasks"] for name, each in found["architectures"].items()}
    assert tasks == {name: list(tasks) for name, tasks in kf.zoo.models().items()}
    assert {"name": "sentiment-bert", "model_type": "bert", "mb": 0.7} in found["presets"]


def test_the_description_of_one_architecture(capsys):
    assert main("models", "roberta", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["branch"] == "encoder" and found["derived_from"] == "bert" and found["year"] == 2019
    assert {"int4", "int8", "none"} <= {*found["formats"]["tflite"]["text-classification"]}
    assert "none" in found["runtimes"]["transformers.js"]["fill-mask"]
    assert "FacebookAI/roberta-base" in found["checkpoints"]
    assert main("models", "roberta") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("RoBERTa (encoder, derived from bert): BERT with ")
    assert "camembert" in lines[2] and "FacebookAI/roberta-base" in lines
    assert any(line.startswith("text-classification\tf32 int8 int4\tf32 ") for line in lines)
    (refused,) = [line for line in lines if line.startswith("mediapipe\t") and "text-classification" in line][:1]
    assert "refused: MediaPipe cannot tokenize" in refused and "BPE" in refused


@pytest.mark.parametrize("name", [command.callback.__name__ for command in cli.app.registered_commands])
def test_help_is_plain_text_with_valid_examples(name, capsys):
    assert main(name, "--help") == 0
    shown = capsys.readouterr().out
    assert not set("│─╭┏\x1b") & set(shown)
    assert "--help  " in shown and "<bool>" not in shown
    lines = [line.strip() for line in shown.partition("Examples:\n")[2].splitlines()]
    assert lines and all("kerasformer " in line for line in lines)
    command = typer.main.get_command(cli.app).commands[name]
    for line in lines:
        typed = shlex.split(line[line.index("kerasformer ") :].split(" | ")[0])
        assert typed[:2] == ["kerasformer", name]
        if "--list-targets" not in typed:
            command.make_context(name, typed[2:])


@pytest.mark.parametrize("name", ["anatomy", "batch", "compare", "prune", "sweep"])
def test_a_removed_command_names_its_replacement(name, capsys):
    assert main(name, "story-gpt2", "--json") == 2
    assert f"There is no command {name} any more. Use kerasformer" in capsys.readouterr().err.replace("python -m ", "")


@pytest.mark.grid
def test_shell_completion():
    def completed(*words: str) -> list[str]:
        code = "import sys; sys.argv[0] = 'kerasformer'; from kerasformer.cli import main; main()"
        typed = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        environment = {**os.environ, **typed, "_KERASFORMER_COMPLETE": "complete_bash"}
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        ).stdout.split()

    assert completed("kerasformer", "mod") == ["models"]
    assert completed("kerasformer", "run", "senti") == ["sentiment-bert"]
    assert completed("kerasformer", "export", "--quantize", "int8_") == ["int8_fast", "int8_weights", "int8_static"]
    assert completed("kerasformer", "run", "--tas") == ["--task"]


def test_tables_are_formatted_on_a_terminal_and_plain_in_a_pipe(bundle, capsys, monkeypatch):
    command = ("run", str(bundle), "a good film", "the plot is bad", "--set", "top_k=2")
    assert main(*command) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = kf.pipeline(bundle)(["a good film", "the plot is bad"], top_k=2)
    assert [row[:2] for row in rows] == [
        [text, each["label"]]
        for text, answer in zip(["a good film", "the plot is bad"], expected, strict=True)
        for each in answer
    ]
    assert float(rows[0][2]) == pytest.approx(expected[0][0]["score"], abs=6e-4)
    monkeypatch.setattr("kerasformer.cli.console.on_terminal", lambda: True)
    monkeypatch.setattr("kerasformer.cli.run_command.on_terminal", lambda: True)
    assert main(*command) == 0
    assert "│ a good film" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["token-classification", "question-answering", "feature-extraction"])
@pytest.mark.grid
def test_options_of_each_task(checkpoint, tmp_path, capsys, task):
    """A file is one text, with its line ends; options of other tasks are errors that name them."""
    folder, file = str(tmp_path / "model"), tmp_path / "text.txt"
    kf.zoo.load(checkpoint, task, new_head=task != "feature-extraction").save_pretrained(folder)
    pipe, text = kf.pipeline(folder, task), "good film\nthe plot is bad\n" * 5
    file.write_bytes(text.encode())
    arguments, options, unsupported = {
        "token-classification": (
            ("--set", "aggregation_strategy=first", "--set", "combine=entities", "--set", "stride=2"),
            {"aggregation_strategy": "first", "combine": "entities", "stride": 2},
            ("--set", "top_k=2"),
        ),
        "question-answering": (
            ("--question", "good", "--set", "doc_stride=2", "--set", "chunk_length=12"),
            {"question": "good", "doc_stride": 2, "chunk_length": 12},
            ("--set", "truncation=true"),
        ),
        "feature-extraction": (("--set", "stride=2"), {"stride": 2}, ("--set", "combine=max")),
    }[task]
    command = ("run", folder, "--task", task, "--file", str(file), *arguments)
    expected = pipe(context=text, **options) if "question" in options else pipe(text, **options)
    assert main(*command, "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry == {"file": str(file), "result": expected.tolist() if hasattr(expected, "tolist") else expected}
    assert main(*command) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines and all(line[0] == str(file) for line in lines)
    assert main(*command, *unsupported) == 1
    name = unsupported[1].partition("=")[0]
    assert f"{task} has no option {name}" in " ".join(capsys.readouterr().err.split())


def test_files_are_ranked_by_their_names(checkpoint, tmp_path, capsys):
    for name, text in (("a", "a bad plot " * 9), ("b", "good film " * 9)):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in "ab"]
    command = ("run", str(checkpoint), "--task", "embeddings", "--query", "good film", "very good")
    assert main(*command, "--file", files[0], "--file", files[1], "--json") == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert {each["corpus_id"]: each.get("file", each.get("text")) for each in result} == {
        0: "very good", 1: files[0], 2: files[1],
    }  # fmt: skip
    assert main(*command, "--file", str(tmp_path / "missing")) == 1
    assert "missing" in capsys.readouterr().err


@pytest.mark.grid
def test_json_lines_are_printed_immediately(writer):
    command = [sys.executable, "-m", "kerasformer.cli", "run", str(writer), "--jsonl", "--max-new-tokens", "3"]
    texts = [PROMPT, ("good " * 200).strip(), "The sea"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as running:
        replies = []
        for text in texts:
            running.stdin.write(text + "\n")
            replies.append(json.loads(running.stdout.readline()))  # before the next text is sent
        running.stdin.close()
        assert running.wait() == 1
    assert [reply["text"] for reply in replies] == texts
    assert "Shorten the prompt" in replies[1]["error"]
    assert replies[0]["result"] == kf.pipeline(writer)(PROMPT, max_new_tokens=3)


def test_info_shows_checkpoints_and_bundles(checkpoint, bundle, capsys):
    assert main("info", str(checkpoint), "--json") == 0
    assert json.loads(capsys.readouterr().out)["model_type"] == "bert"
    assert main("info", str(bundle)) == 0
    assert "forward_16" in printed(capsys)


def test_export_prints_files_and_fidelity(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert main("export", str(checkpoint), str(out), "--format", "onnx", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"]["onnx/model.onnx"] == (out / "onnx" / "model.onnx").stat().st_size
    assert report["fidelity"]["agreement"] == 1.0
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"| memory, peak | MB | {report['speed']['peak_mb']:.0f} |" in card
    assert main("verify", str(out)) == 0  # the card's checksum is the new one


def standard_input(monkeypatch, content: bytes) -> None:
    """Replaces standard input, as a locale with ASCII opens it."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8", "surrogateescape"))


@pytest.mark.parametrize("texts", [(), ("-",)])
def test_run_reads_standard_input(texts, bundle, capsys, monkeypatch):
    standard_input(monkeypatch, b"a good film\r\n\nthe plot\ris bad")
    assert main("run", str(bundle), *texts, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["text"] for row in rows] == ["a good film", "", "the plot\ris bad"]
    assert [bool(row["result"]) for row in rows] == [True, False, True]


LINES = b"\xef\xbb\xbfa good film\n\n  \ngo\xffd\n" + b"good " * 40 + b"\nthe plot\n"
"""Lines of which the fourth is not UTF-8 and the fifth is too long for a pair."""


@pytest.mark.parametrize("form", ["", "--json", "--jsonl"])
def test_each_line_has_a_result(form, bundle, capsys, monkeypatch):
    """Also a blank line, and one that fails, so that the results stay beside their lines."""
    texts = ["a good film", "", "  ", "go\ufffdd", ("good " * 40), "the plot"]
    standard_input(monkeypatch, LINES)
    assert main("run", str(bundle), "--set", "pair=a film", *filter(None, [form])) == 1
    out, err = capsys.readouterr()
    answers = kf.pipeline(bundle)([texts[0], texts[-1]], pair=["a film"] * 2)
    if form:
        rows = [json.loads(line) for line in out.splitlines()] if form == "--jsonl" else json.loads(out)
        assert [row["text"] for row in rows] == texts
        assert [row.get("result", "error") for row in rows] == [
            [answers[0]], None, None, "error", "error", [answers[1]],
        ]  # fmt: skip
        messages = [row["error"] for row in rows if "error" in row]
    else:
        rows = [line.split("\t") for line in out.split("\n")[:-1]]
        assert [row[0] for row in rows] == texts
        assert [row[1] for row in rows] == [answers[0]["label"], "", "", "", "", answers[1]["label"]]
        assert [line.split(":")[:2] for line in err.splitlines()] == [["Error", " line 4"], ["Error", " line 5"]]
        messages = err.splitlines()
    assert "not in UTF-8" in messages[0] and "0xff" in messages[0] and "at most 16 tokens" in messages[1]


def test_a_setting_that_no_text_can_have_ends_the_pipe(writer, capsys, monkeypatch):
    for arguments in ((), ("--jsonl",)):
        standard_input(monkeypatch, b"one\ntwo\n")
        assert main("run", str(writer), "--set", "num_beams=two", *arguments) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("Error: num_beams must be") and err.count("\n") == 1


def test_texts_of_the_command_line_that_fail(writer, capsys):
    """The other texts are answered; a text that the shell passes in another encoding is named as such."""
    command = ("run", str(writer), "--max-new-tokens", "2")
    assert main(*command, PROMPT, "good " * 200, os.fsdecode(b"b\xe4d"), "") == 1
    out, err = capsys.readouterr()
    assert [bool(line.split("\t")[1]) for line in out.splitlines()] == [True, False, False, False]
    assert [line.split(": ")[1] for line in err.splitlines()] == ["text 2", "text 3", "text 4"]
    assert "Shorten the prompt" in err and "not in UTF-8" in err and "at least one token" in err


def test_a_stream_and_an_explanation_of_lines(writer, capsys, monkeypatch):
    expected = kf.pipeline(writer)(PROMPT, max_new_tokens=2)[0]["generated_text"]
    lines = f"\n{'good ' * 200}\n{PROMPT}\n".encode()
    for option, printed_lines in ((["--stream"], ["", "", expected]), (["--set", "explain=true"], None)):
        standard_input(monkeypatch, lines)
        assert main("run", str(writer), *option, "--max-new-tokens", "2") == 1
        out, err = capsys.readouterr()
        assert err.startswith("Error: line 2: ") and err.count("\n") == 1
        assert out.splitlines() == printed_lines if printed_lines else "Choice 1" in out


def test_a_model_with_a_chat_template_answers(capsys):
    pipe, text, settings = kf.pipeline(shared_chat("onnx")), "Who is it?", ["--max-new-tokens", "3"]
    answer = pipe([{"role": "user", "content": text}], return_full_text=False, max_new_tokens=3)[0]["generated_text"]
    raw = pipe(text, raw=True, max_new_tokens=3)[0]["generated_text"]
    for option, expected in (([], answer), (["--raw"], raw)):
        command = "run", str(shared_chat("onnx")), text, *settings, *option
        assert main(*command, "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["result"][0]["generated_text"] == expected
        assert main(*command, "--stream") == 0
        assert capsys.readouterr().out == f"{expected}\n"


def test_a_text_without_entities_has_an_empty_result(checkpoint, tmp_path, capsys):
    folder = str(tmp_path / "model")
    kf.zoo.load(checkpoint, "token-classification", labels=["O"]).save_pretrained(folder)
    assert main("run", folder, "a good film", "the plot", "--set", "aggregation_strategy=simple") == 0
    assert capsys.readouterr().out == "a good film\t\nthe plot\t\n"


def test_ranked_lines_keep_their_numbers(checkpoint, capsys, monkeypatch):
    standard_input(monkeypatch, b"a bad plot\n\n\xff\ngood film\n")
    assert main("run", str(checkpoint), "--task", "embeddings", "--query", "good film", "--json") == 1
    out, err = capsys.readouterr()
    assert [each["corpus_id"] for each in json.loads(out)["result"]] == [3, 0]
    assert err.startswith("Error: line 3: ")


PROMPT = "The old man"
OPTIONS = {
    "--num-beams 3 --set num_return_sequences=2": {"num_beams": 3, "num_return_sequences": 2},
    "--temperature 1.5 --top-p 0.9 --seed 7": {"temperature": 1.5, "top_p": 0.9, "seed": 7},
    '--set stop_strings=["e","a"] --set min_new_tokens=2': {"stop_strings": ["e", "a"], "min_new_tokens": 2},
    "--set json_schema=SCHEMA": {"json_schema": {"enum": [1, "b"]}},
    "--set assistant=WRITER": {},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.grid
def test_run_passes_on_generation_settings(options, writer, tmp_path, capsys):
    (tmp_path / "schema.json").write_text(json.dumps({"enum": [1, "b"]}))
    schema = str(tmp_path / "schema.json")
    given = [option.replace("SCHEMA", schema).replace("WRITER", str(writer)) for option in options.split()]
    assert main("run", str(writer), PROMPT, "--max-new-tokens", "9", "--json", *given) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["result"] == kf.pipeline(writer)(PROMPT, max_new_tokens=9, **OPTIONS[options])


def test_brackets_in_a_table_are_not_markup(writer, capsys):
    assert main("run", str(writer), "a [/b] c", "--max-new-tokens", "2") == 0
    assert "a [/b] c" in printed(capsys)


@pytest.mark.grid
def test_checkpoint_and_bundle_are_evaluated_alike(checkpoint, bundle, tmp_path, capsys):
    texts = ["a good film", "the plot is bad", "not very good"]
    labels = [each["label"] for each in kf.pipeline(bundle)(texts)]
    labels[0] = "LABEL_0" if labels[0] != "LABEL_0" else "LABEL_1"
    data = tmp_path / "labelled.tsv"
    data.write_text("".join(f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)))
    assert main("eval", str(checkpoint), str(bundle), "--data", str(data), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    names = [str(checkpoint), str(bundle), "majority"]
    assert report["texts"] == 3 and [each["name"] for each in report["systems"]] == names
    assert [each["accuracy"] for each in report["systems"][:2]] == [pytest.approx(2 / 3)] * 2
    assert report["systems"][0]["f1"] == report["systems"][1]["f1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "/nowhere/at/all", "text"), "no model of that name"),
        (("export", "CHECKPOINT", "BUNDLE"), "Pass overwrite=True to replace it"),
        (("export", "CHECKPOINT", "OUT", "--texts", "/nowhere.txt"), "file of texts"),
        (
            ("run", "CHECKPOINT", "good " * 40, "--set", "pair=a film"),
            "Shorten it, or pass truncation=True to truncate it.",
        ),
        (("run", "CHECKPOINT", "text", "--num-beams", "2"), "text-classification has no option num_beams"),
        (("run", "CHECKPOINT", "text", "--stream"), "--stream is for models that generate"),
        (("run", "WRITER", "text", "--stream", "--json"), "--stream prints only text"),
        (("run", "WRITER", "text", "--set", "num_beams"), "--set must be name=value"),
        (("run", "WRITER", "text", "--set", "json_schema=/nowhere.json"), "must be a JSON file"),
        (("bench", "CHECKPOINT", "--texts", "LATIN"), "it is not in UTF-8"),
        (("verify", "CHECKPOINT"), "To evaluate it on texts: kerasformer eval SOURCE --data FILE"),
        (("info", "CHECKPOINT", "--clear-cache"), "--clear-cache clears the cache of all models"),
    ],
)
def test_errors_are_one_line_with_exit_status_1(arguments, message, checkpoint, bundle, writer, tmp_path, capsys):
    paths = {"CHECKPOINT": str(checkpoint), "BUNDLE": str(bundle), "WRITER": str(writer), "OUT": str(tmp_path / "out")}
    paths["LATIN"] = str(tmp_path / "latin.txt")
    (tmp_path / "latin.txt").write_bytes(b"sp\xe4t")
    assert main(*(paths.get(argument, argument) for argument in arguments)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("Error: ")
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_info_lists_and_clears_packed_weights(bundle, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KERASFORMER_CACHE", str(tmp_path))
    pipe = kf.pipeline(bundle, num_threads=1, cache_dir=True)
    assert pipe("a good film") == kf.pipeline(bundle, num_threads=1, cache_dir=True)("a good film")
    capsys.readouterr()
    assert main("info", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    (file,) = shown["files"]
    assert file["bytes"] == (tmp_path / file["file"]).stat().st_size <= shown["max_bytes"]
    assert main("info", "--clear-cache") == 0
    assert f"{file['bytes']:,} bytes freed" in printed(capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.grid
def test_an_export_prints_no_native_logs(checkpoint, tmp_path):
    command = [sys.executable, "-m", "kerasformer.cli", "export", str(checkpoint), str(tmp_path / "out")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    stages = [re.fullmatch(r"([a-zA-Z ]+): [\d.]+ s; .+", line) for line in done.stderr.splitlines()]
    assert done.returncode == 0 and len(stages) > 3 and all(stages)
    assert done.stdout.startswith(f"{tmp_path / 'out'}\nfile\tbytes\n")


def test_debug_shows_the_traceback():
    command = [sys.executable, "-m", "kerasformer.cli", "--debug", "run", "/nowhere/at/all", "text"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_classes_of_the_command_line(checkpoint, tmp_path, capsys):
    labels = ["contradiction", "neutral", "entailment"]
    folder = str(kf.zoo.load(checkpoint, labels=labels).save_pretrained(tmp_path / "nli"))
    command = ("run", folder, "--task", "zero-shot-classification", "--set", "hypothesis_template=the {}")
    assert main(*command, "--label", "film", "--label", "plot", "a good film") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {line[1] for line in lines} == {"film", "plot"} and sum(float(line[2]) for line in lines) == pytest.approx(1)
    for arguments, message in (
        ((*command, "a film"), "needs --label …"),
        (("run", folder, "--set", "multi_label=true", "a film"), "has no option multi_label"),
        (("run", folder, "--query", "a film", "--set", "pair=x", "a plot"), "has no option pair"),
        (("run", str(checkpoint), *command[2:], "--label", "film", "a film"), "the classes LABEL_0, LABEL_1, LABEL_2"),
        (("run", str(checkpoint), "--query", "a film", "a plot"), "label=…, one of LABEL_0"),
    ):
        assert main(*arguments) == 1
        assert message in " ".join(capsys.readouterr().err.split())
