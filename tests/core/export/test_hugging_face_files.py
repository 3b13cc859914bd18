"""Files for Hugging Face's libraries: they have what JavaScript needs, and Python's behaviour is unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

import kerasformer as kf
from kerasformer import zoo
from kerasformer.bundle import TensorInfo
from kerasformer.export.formats.onnx.onnx_format import OnnxFormat
from kerasformer.export.formats.registry import find_format
from kerasformer.export.graph.functions import Function
from kerasformer.export.hugging_face_files import write_config, write_tokenizer
from kerasformer.export.options import resolve_options
from kerasformer.export.targets import find_target
from kerasformer.tokenization import Tokenizer
from tests import tiny_text

TEXTS = [
    ("Hello, World!  it's OK", "THE river"),
    ("日本語 はい 한국어 สวัสดี", "Привет, мир! Ёлка"),
    ("naïve Café CAFE\u0301 Å ñ", "``quoted'' 'x' \"y\""),
    ("😀👩‍👩‍👧 zero\u200bwidth\u00a0nbsp", "tabs\tand\nnew\r\nlines\n\n  x"),
    ("مرحبا بالعالم नमस्ते", "1234567 3.14 1,000 [MASK] a"),
]


def wordpiece(**options: Any) -> Tokenizer:
    """Returns BERT's tokenizer with other options."""
    tokenizer = tiny_text.wordpiece()
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.normalizer = normalizers.BertNormalizer(**options)
    return Tokenizer(backend, special_tokens=tokenizer.special_tokens, model_inputs=SEGMENTS)


def albert(*steps: normalizers.Normalizer) -> Tokenizer:
    """Returns ALBERT's tokenizer with a small vocabulary."""
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    pieces = json.loads(tiny_text.pieces().backend.to_str())["model"]["vocab"][3:]
    vocabulary = [*((token, 0.0) for token in special), *map(tuple, pieces)]
    backend = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=1))
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    backend.normalizer = normalizers.Sequence([*quotes, *steps])
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    return Tokenizer(
        backend,
        special_tokens={f"{name}_token": token for name, token in zip(names, special, strict=True)},
        model_inputs=SEGMENTS,
    )


def with_bos() -> Tokenizer:
    """Returns a tokenizer that puts its first token before every text."""
    tokenizer = tiny_text.byte_pairs()
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    end = tokenizer.eos_token
    backend.post_processor = processors.TemplateProcessing(
        single=f"{end} $A", pair=f"{end} $A {end}:1 $B:1", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    return Tokenizer(backend, special_tokens=tokenizer.special_tokens)


SEGMENTS = ("input_ids", "token_type_ids", "attention_mask")
TOKENIZERS = {
    "lower": ("bert", wordpiece),
    "cased": ("bert", lambda: wordpiece(lowercase=False)),
    "accents": ("bert", lambda: wordpiece(lowercase=True, strip_accents=False)),
    "ideographs": ("bert", lambda: wordpiece(handle_chinese_chars=False)),
    "albert": ("albert", lambda: albert(normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase())),
    "albert-cased": ("albert", lambda: albert(normalizers.NFKD(), normalizers.StripAccents())),
    "albert-accents": ("albert", lambda: albert(normalizers.Lowercase())),
    "with_bos": ("gpt2", with_bos),
}


def written(folder: Path, model: Any, task: str | None = None, extra_entries: Any = None) -> dict[str, Any]:
    """Writes the files and returns their content."""
    job = resolve_options(model, {} if task is None else {"task": task}, find_format("onnx"), find_target(None))
    write_tokenizer(job, folder)
    write_config(job, folder, extra_entries or {})
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def small(model_type: str, **settings: Any) -> Any:
    return zoo.build(model_type, hidden_dim=8, num_layers=1, num_heads=2, **settings)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_are_unchanged(name: str, tmp_path: Path) -> None:
    """The tokenizer class that is set for transformers.js does not change tokens, here or in transformers."""
    model_type, make = TOKENIZERS[name]
    tokenizer = make()
    model = small(model_type, vocab_size=tokenizer.vocab_size)
    model.tokenizer = tokenizer
    settings = written(tmp_path, model)["tokenizer_config"]
    assert settings["tokenizer_class"] == {"albert": "AlbertTokenizer", "bert": "BertTokenizer"}.get(
        model_type, "PreTrainedTokenizerFast"
    )
    assert settings.get("add_bos_token", False) == (name == "with_bos")
    ours, theirs = kf.Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for pair in TEXTS:
        expected = tokenizer(*pair)
        assert ours(*pair).input_ids.tolist() == expected.input_ids.tolist()
        found = theirs(*pair)
        assert found["input_ids"] == expected.input_ids[0].tolist()
        if "token_type_ids" in model.input_names:
            assert found["token_type_ids"] == expected.token_type_ids[0].tolist()


@pytest.mark.parametrize(
    "params, task, prefix",
    [
        ({"translation_en_to_de": {"prefix": "to German: "}}, "translation", "to German: "),
        ({"translation_a": {"prefix": "A: "}, "translation_b": {"prefix": "B: "}}, "translation", None),
        ({"translation": {"prefix": "T: ", "max_length": 3}}, "translation", "T: "),
        ({"summarization": {"prefix": "S: "}}, "translation", None),
        ({}, "translation", "S: "),
    ],
    ids=["one", "two", "named", "other", "general"],
)
def test_the_prefix_of_a_task(params: dict[str, Any], task: str, prefix: str | None, tmp_path: Path) -> None:
    general = {"prefix": "S: "} if not params else {}
    model = small("t5", vocab_size=20, task_specific_params=params or None, **general)
    found = written(tmp_path, model, task)["config"]["task_specific_params"]
    assert found.get(task, {}).get("prefix") == prefix
    assert {name: found[name] for name in params} == params


@pytest.mark.parametrize(
    "recipe, dtype", [("none", "fp32"), ("int8", "q8"), ("int4", "q4"), ("fp16", "fp16"), ("auto", "q8")]
)
def test_the_files_are_found(recipe: str, dtype: str, tmp_path: Path) -> None:
    manifest, data = _manifest(recipe), tmp_path / "onnx" / "decoder_model_merged.onnx_data"
    assert OnnxFormat().config_entries(manifest, tmp_path) == {"transformers.js_config": {"dtype": dtype}}
    data.parent.mkdir()
    data.touch()
    files = {"use_external_data_format": {"decoder_model_merged.onnx": 1}}
    assert OnnxFormat().config_entries(manifest, tmp_path) == {"transformers.js_config": {"dtype": dtype, **files}}


def test_recipes_without_a_file_name_in_transformers_js(tmp_path: Path) -> None:
    assert OnnxFormat().config_entries(_manifest("int8_static"), tmp_path) == {}


def _manifest(recipe: str) -> kf.bundle.Manifest:
    function = Function("encoder_model", {"input_ids": TensorInfo((1,), "int64")}, {}, dict)
    file = OnnxFormat().file(function, recipe)
    signature = kf.bundle.Signature(file, function.inputs, function.outputs)
    return kf.bundle.Manifest("onnx", kf.bundle.ModelInfo("summarization"), {function.name: signature})
