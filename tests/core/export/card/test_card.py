"""The model card of a bundle agrees with its manifest."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from kerasformer.basics import repository
from kerasformer.bundle import Fidelity, Kind, LanguageInfo, Manifest, ModelInfo, Role, Signature, TensorInfo
from kerasformer.bundle.recipes import RECIPES
from kerasformer.export.card.model_card import write_card
from kerasformer.export.targets import Target
from tests.code_blocks import card_texts

LAYERS, HEADS, CAPACITY, SIZE = 3, 2, 24, 5


def ints(*shape: Any) -> TensorInfo:
    return TensorInfo(shape, "int32")


def floats(*shape: Any) -> TensorInfo:
    return TensorInfo(shape, "float32")


def caches(rows: int = 1) -> dict[str, TensorInfo]:
    endings = [""] if rows == 1 else [f"_row_{row}" for row in range(rows)]
    return {
        f"kv_cache_{kind}_{layer}{ending}": floats(1, HEADS, CAPACITY, SIZE)
        for layer in range(LAYERS)
        for kind in "kv"
        for ending in endings
    }


def step(rows: int = 1) -> Signature:
    inputs = {"tokens": ints(rows, 1), "input_pos": ints(rows), **caches(rows)}
    return Signature("model.tflite", inputs, {"logits": floats(rows, 1, 99), **caches(rows)})


def decoder(**changes: Any) -> Manifest:
    prefill = {
        f"prefill_{n}": Signature("model.tflite", {"tokens": ints(1, n), "input_pos": ints(n), **caches()}, caches())
        for n in (8, 64)
    }
    signatures = {
        **prefill,
        "decode_128": step(),
        "decode": step(),
        "decode_rows_4": step(4),
        "decode_rows_8": step(8),
    }
    info = ModelInfo("text-generation", "gpt2")
    known = {"capacity": CAPACITY, "recipe": RECIPES["int8"].to_dict(), "versions": {"kerasformer": "1.2"}}
    return Manifest("tflite", info, signatures, **{**known, **changes})


def written(folder: Path, manifest: Manifest, target: Target | None = None) -> str:
    for signature in manifest.signatures.values():
        (folder / signature.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / signature.file).write_bytes(b"x" * 2_500_000)
    write_card(folder, manifest, target or Target())
    return (folder / "README.md").read_text(encoding="utf-8")


def everything(folder: Path, manifest: Manifest, target: Target | None = None) -> str:
    """Returns the card with the page beside it."""
    written(folder, manifest, target)
    return card_texts(folder)


def test_bytes_of_the_cache(tmp_path):
    manifest = decoder()
    expected = 2 * LAYERS * HEADS * CAPACITY * SIZE * 4
    assert manifest.cache_bytes == expected
    text = written(tmp_path, manifest)
    assert f"{LAYERS} layers × 2 (keys, values) × {HEADS} heads × {CAPACITY} slots × {SIZE} × 4 bytes" in text
    assert f"takes {expected / 1e6:.2f} MB of memory" in text


def test_caches_of_layers_with_a_window_are_told_apart(tmp_path):
    short = replace(floats(1, HEADS, 9, SIZE), margin=5)
    step = {name: short if name.endswith("_1") else info for name, info in caches().items()}
    signature = Signature(
        "model.tflite", {"tokens": ints(1, 1), "input_pos": ints(1), **step}, {"logits": floats(1, 1, 99), **step}
    )
    manifest = replace(decoder(), signatures={"decode": signature})
    assert manifest.cache_bytes == 2 * HEADS * SIZE * 4 * ((LAYERS - 1) * CAPACITY + 9)
    text = everything(tmp_path, manifest)
    assert f"{CAPACITY} slots × {SIZE} × 4 bytes + 1 layers × 2 (keys, values) × {HEADS} heads × 9 slots" in text
    assert f"one of each kind for each layer; some are `[1, {HEADS}, 9, {SIZE}]` |" in text


def test_bytes_of_the_caches_of_an_encoder_decoder_in_onnx(tmp_path):
    manifest = onnx_encoder_decoder()
    assert manifest.cache_bytes == 2 * LAYERS * HEADS * SIZE * 4 * (CAPACITY + 7)
    text = written(tmp_path, manifest)
    assert f"{CAPACITY} slots × {SIZE} × 4 bytes, and for the encoded text {LAYERS} layers" in text
    assert "heads × 7 slots" in text
    assert "com.microsoft" in text
    assert "| `onnx/encoder_model_q4.onnx` | 2,500,000 |" in text and "| **together** | **5,000,000** |" in text


def test_an_encoder_has_no_cache(tmp_path):
    ids = {"input_ids": ints(1, 32)}
    manifest = Manifest(
        "tflite",
        ModelInfo("text-classification", "bert", labels=("no", "yes"), max_length=32),
        {"forward_32": Signature("model.tflite", ids, {"logits": floats(1, 2)})},
        recipe=RECIPES["fp16"].to_dict(),
    )
    assert manifest.cache_bytes == 0
    text = written(tmp_path, manifest)
    assert "During generation" not in text
    assert (
        "Labels, in the order of their ids: `no`, `yes`." in text
        and "has at most 32 tokens, including its special tokens.**" in text
    )
    assert "stores matrices as float16, and computes in float32" in text


def test_older_figures_are_enough(tmp_path):
    text = written(tmp_path, decoder(fidelity=Fidelity(0.02, 0.001, 0.9, 10).to_dict()))
    assert "| largest error | 0.02 of the scale |" in text and "largest logit" not in text
    assert "KL" not in text and "perplexity" not in text


def encoder(labels: int = 2) -> Manifest:
    signatures = {
        f"forward_{n}": Signature(
            "model.tflite",
            {name: ints(1, n) for name in ("input_ids", "token_type_ids", "attention_mask")},
            {"logits": floats(1, labels)},
        )
        for n in (16, 48)
    }
    info = ModelInfo("text-classification", "bert", labels=("no", "yes"), max_length=48, pad_token_id=7)
    return Manifest("tflite", info, signatures, versions={"ai-edge-litert": "2.3.0"})


def encoder_decoder() -> Manifest:
    crosses = {f"cross_{kind}_{i}": floats(1, HEADS, 48, SIZE) for i in range(LAYERS) for kind in "kv"}
    texts = {n: {name: ints(1, n) for name in ("input_ids", "attention_mask")} for n in (16, 48)}
    plain = step()
    signatures = {f"encode_{n}": Signature("model.tflite", given, crosses) for n, given in texts.items()}
    given = {**plain.inputs, "encoder_mask": ints(1, 48), **crosses}
    signatures["decode"] = Signature("model.tflite", given, plain.outputs)
    info = ModelInfo(
        "summarization",
        "t5",
        is_encoder_decoder=True,
        pad_token_id=7,
        decoder_start_token_id=8,
        eos_token_id=(9, 10),
        task_prefixes={"summarization": "summarize: "},
    )
    return Manifest("tflite", info, signatures, CAPACITY, 48)


def growing(prefix: str, *parts: str) -> dict[str, TensorInfo]:
    names = [f"{prefix}.{layer}.{part}{kind}" for layer in range(LAYERS) for part in parts for kind in ("key", "value")]
    return {name: floats("batch_size", HEADS, "length", SIZE) for name in names}


def onnx_encoder() -> Manifest:
    signature = replace(encoder().signatures["forward_16"], file="onnx/model.onnx")
    return replace(encoder(), format="onnx", profile="ort", signatures={"model": signature})


def onnx_decoder() -> Manifest:
    texts = {name: ints("batch_size", "length") for name in ("input_ids", "attention_mask", "position_ids")}
    outputs = {"logits": floats("batch_size", "length", 99), **growing("present", "")}
    signature = Signature("onnx/model.onnx", {**texts, **growing("past_key_values", "")}, outputs)
    return replace(decoder(), format="onnx", profile="ort", signatures={"model": signature})


def onnx_encoder_decoder() -> Manifest:
    texts = {name: ints("batch_size", "length") for name in ("input_ids", "attention_mask")}
    states, parts = floats("batch_size", "length", 8), ("decoder.", "encoder.")
    given = {"encoder_attention_mask": texts["attention_mask"], "input_ids": texts["input_ids"]}
    given |= {"encoder_hidden_states": states, **growing("past_key_values", *parts)}
    outputs = {"logits": floats("batch_size", "length", 99), **growing("present", *parts)}
    signatures = {
        "encoder_model": Signature("onnx/encoder_model_q4.onnx", texts, {"last_hidden_state": states}),
        "decoder_model_merged": Signature("onnx/decoder_model_merged_q4.onnx", given, outputs),
    }
    changes = {"signatures": signatures, "encoder_capacity": 7, "recipe": RECIPES["int4"].to_dict(), "profile": "ort"}
    return replace(encoder_decoder(), format="onnx", **changes)


MODELS = {"encoder": encoder, "decoder": decoder, "encoder-decoder": encoder_decoder}
ONNX_MODELS = {"encoder": onnx_encoder, "decoder": onnx_decoder, "encoder-decoder": onnx_encoder_decoder}
every_model = pytest.mark.parametrize("model", [*MODELS.values(), *ONNX_MODELS.values()])


@pytest.mark.parametrize("setting", ["forced_bos_token_id", "decoder_start_token_id"])
@every_model
def test_languages(model, setting, tmp_path):
    """The card of a multilingual model whose language is not set says how to set it."""
    manifest = model()
    languages = LanguageInfo({"deu_Latn": 61, "ron_Latn": 62}, False, setting, "deu_Latn")
    info = replace(manifest.info, languages=languages, generation={"eos_token_id": 2})
    text = written(tmp_path / "without", replace(manifest, info=info))
    if not info.is_encoder_decoder:
        assert "## Languages" not in text
        return
    assert "language of the output is not set" in text and "`deu_Latn` 61, `ron_Latn` 62" in text
    assert 'pipe("A text.", tgt_lang="deu_Latn")' in text
    encoder = replace(manifest, capacity=None, info=replace(info, task="feature-extraction"))
    assert 'pipe("A text.")' in written(tmp_path / "encoder", encoder)
    info = replace(info, generation={**info.generation, setting: 62}, **{setting: 62} if "start" in setting else {})
    assert "The model writes `ron_Latn`" in written(tmp_path / "with", replace(manifest, info=info))


APPS = {"kotlin": "LiteRt()", "swift": ".liteRT()", "cpp": "TextModel::Open", "javascript": "litert: "}


def with_tokenizer(folder: Path, **settings: Any) -> Path:
    """Writes the files of a tokenizer, which the card only looks for."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def languages_of(folder: Path, manifest: Manifest, target: Target | None = None) -> list[str]:
    """Returns the languages of the section for apps."""
    section = written(folder, manifest, target).partition("## In an app\n")[2].partition("\n## ")[0]
    return [each for each in re.findall(r"^```(\w+)", section, re.MULTILINE) if each != "cmake"]


ADAPTER = {"lora_A.0": TensorInfo((8, 4), "float32", Kind.ADAPTER_A)}
PROBABILITIES = Signature("model.tflite", {"ids": ints(1, 16)}, {"probabilities": floats(1, 2)}, Role.FORWARD)


@every_model
def test_the_libraries_for_apps(model, tmp_path):
    """They are shown where the library of a language runs the bundle."""
    manifest, folder = model(), with_tokenizer(tmp_path)
    assert languages_of(folder, manifest) == [*APPS]
    assert languages_of(tmp_path, replace(manifest, format="saved-model")) == []
    info = replace(manifest.info, task="next-sentence-prediction")
    assert languages_of(tmp_path, replace(manifest, info=info)) == []
    (folder / "tokenizer.json").unlink()
    assert languages_of(folder, manifest) == []


@pytest.mark.parametrize("url", [None, "https://example.com/kerasformer.git"])
def test_where_the_repository_is(url, monkeypatch, tmp_path):
    """Cards have the address that the installed package declares in `project.urls`."""
    about = Message()
    for each in ("Issues, https://example.com/issues", *([f"Repository, {url}"] if url else [])):
        about["Project-URL"] = each
    monkeypatch.setattr(repository, "metadata", {"kerasformer": about}.__getitem__)
    text = written(with_tokenizer(tmp_path), decoder())
    assert ("which has no public address yet" in text) == (url is None)
    if url:
        assert f"`git clone {url}`" in text and f'pip install "kerasformer[litert] @ git+{url}"' in text


def test_bundles_that_not_all_libraries_run(tmp_path):
    """Conversations are not in C++, int8 caches in Kotlin and Swift alone, and no library passes adapters to TFLite."""
    chats = with_tokenizer(tmp_path / "chats", chat_template="{{ messages }}")
    assert languages_of(chats, decoder()) == ["kotlin", "swift", "javascript"]
    folder = with_tokenizer(tmp_path / "plain")
    short = {
        name: replace(info, dtype="int8") if name.startswith("kv") else info for name, info in step().inputs.items()
    }
    caches_of_int8 = replace(decoder(), signatures={"decode": replace(step(), inputs=short)})
    assert languages_of(folder, caches_of_int8) == ["kotlin", "swift"]
    adapted = replace(step(), inputs=step().inputs | ADAPTER)
    assert languages_of(folder, replace(decoder(), signatures={"decode": adapted})) == []
    graph = replace(onnx_decoder().signatures["model"], inputs=onnx_decoder().signatures["model"].inputs | ADAPTER)
    assert languages_of(folder, replace(onnx_decoder(), signatures={"model": graph})) == [*APPS]
    assert languages_of(folder, replace(encoder(), signatures={"forward": PROBABILITIES})) == []


def test_the_masked_token_is_that_of_the_tokenizer(tmp_path):
    info = replace(encoder().info, task="fill-mask", labels=())
    text = written(with_tokenizer(tmp_path, mask_token="<mask>"), replace(encoder(), info=info))
    assert 'pipe("A <mask> text.")' in text and 'model.fillMask("The capital of France is <mask>.")' in text


def test_a_model_with_a_chat_template_is_asked(tmp_path):
    assert 'pipe("Once upon a time", max_new_tokens=40)' in written(tmp_path / "plain", decoder())
    folder = with_tokenizer(tmp_path / "chat", chat_template="{{ messages[0].content }}")
    assert 'pipe("What is the capital of France?", max_new_tokens=40)' in written(folder, decoder())


def test_references_are_not_shipped(tmp_path):
    (tmp_path / "references.npz").write_bytes(b"x" * 4_200)
    (tmp_path / "tokenizer.json").write_text("{}")
    section = written(tmp_path, decoder()).split("## What to ship")[1].split("\n## ")[0]
    (name, _), *rows = re.findall(r"^\| `(.*)` \| ([\d,]+) \|$", section, re.MULTILINE)
    assert name == "kerasformer.json"
    assert rows == [
        ("model.tflite", "2,500,000"),
        ("tokenizer.json", "2"),
    ]
    assert "`references.npz` (4,200 bytes) is only for `kerasformer verify`" in section


@pytest.mark.parametrize("model", [encoder_decoder, onnx_encoder_decoder])
def test_the_task_prefix_of_calls(model, tmp_path):
    prefixes = {
        "summarization": "shorten: ",
        "translation_en_to_de": "to German: ",
        "translation_en_to_fr": "to French: ",
    }
    calls = {
        "text2text-generation": 'pipe("shorten: A text.", max_new_tokens=40)',
        "summarization": 'pipe("A text.", max_new_tokens=40)',
        "translation": 'pipe("A text.", prefix="to German: ", max_new_tokens=40)',
    }
    for task, call in calls.items():
        info = replace(model().info, task=task, task_prefixes=prefixes)
        assert call in written(tmp_path / task, replace(model(), info=info))
