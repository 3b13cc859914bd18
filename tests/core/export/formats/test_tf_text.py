"""Tokenizers in the graph: the same ids as the tokenizers, as operators, in a TFLite file and in a SavedModel."""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import kerasformer as kf
from kerasformer import bundle, zoo
from kerasformer.errors import ExportError
from kerasformer.export.formats.saved_model import tf_text
from kerasformer.tokenization import Tokenizer, hard_texts
from tests import tiny_text
from tests.core.tokenization.samples import CORPUS, TEXTS
from tests.extras import need

pytestmark = pytest.mark.grid

need("tensorflow_text")

# Texts with special tokens, which these operators do not support; and words of more than 100 characters.
APART = ("[MASK] <mask>", "xxxxxxxx")
MORE = [
    "Crème brûlée à la carte! Hello… world",
    "GROẞE Straße ſ ΣΊΣΥΦΟΣ",
    "½ ℃ № x²+y²=z² ™ 𝒳 Ⅷ",
    "你好，世界！ Tokyo東京",
    "ภาษาไทยง่ายภาษาไทยง่ายภาษาไทยง่ายภาษาไทยง่าย",
    "a\u1b7db \u2e43 x\u166dy",
]
SAMPLE = [*CORPUS, *MORE, *(text for text in TEXTS if not text.startswith(APART))]
NEW = "\u1b7d\u2e43"  # characters of a newer Unicode version than the Rust library's, which no vocabulary has
NAMES = ("input_ids", "attention_mask", "token_type_ids")


def _wordpiece(folder: Any, lowercase: bool) -> Tokenizer:
    whole = "".join(SAMPLE).translate(dict.fromkeys(map(ord, NEW)))
    letters = sorted(c for c in {*whole, *whole.lower()} if c.isprintable() and c != " ")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), "##ss", "the"]
    (folder / "vocab.txt").write_text("\n".join(t for t in dict.fromkeys(vocabulary) if t.strip()), encoding="utf-8")
    options = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return kf.Tokenizer.load(folder)


def _pieces(folder: Any) -> Tokenizer:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=file, vocab_size=230, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        minloglevel=2,
    )  # fmt: skip
    (folder / "spiece.model").write_bytes(file.getvalue())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}')
    return kf.Tokenizer.load(folder)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    makers = {
        "cased": lambda folder: _wordpiece(folder, False),
        "uncased": lambda folder: _wordpiece(folder, True),
        "sentencepiece": _pieces,
    }

    @cache
    def made(name: str) -> tuple[Tokenizer, tf_text.GraphTokenizer]:
        tokenizer = makers[name](tmp_path_factory.mktemp(name))
        return tokenizer, tf_text.graph_tokenizer(tokenizer, NAMES)

    return made


KINDS = pytest.mark.parametrize("name", ["cased", "uncased", "sentencepiece"])


@KINDS
def test_ids_are_those_of_the_tokenizer(tokenizers, name):
    tokenizer, given = tokenizers(name)
    for text in SAMPLE:
        if name == "sentencepiece" and text.startswith(("e\u0301 combining", "a\u2028b")):
            continue  # the Rust library normalizes two marks on a letter together, and splits at U+0085
        received = tf_text.encode(given, tf.constant([text]), None)["input_ids"].numpy()[0].tolist()
        assert received == tokenizer.encode(text), text


@KINDS
def test_ids_of_hard_texts(tokenizers, name):
    """Except texts with special tokens, words of more than 100 characters, and two marks on a letter."""
    known = "The café was" if name == "sentencepiece" else "wordword"
    tokenizer, given = tokenizers(name)
    rows = hard_texts.hard_texts(tokenizer)
    received = {
        text: tf_text.encode(given, tf.constant([text]), None)["input_ids"].numpy()[0].tolist() for text, _ in rows
    }
    different = [text for text, ids in rows if received[text] != ids]
    added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    (other,) = [text for text in different if not any(token in text for token in added)]
    assert other.startswith(known)


@KINDS
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
def test_a_ragged_batch_is_truncated_and_padded_like_in_the_tokenizer(tokenizers, name):
    tokenizer, given = tokenizers(name)
    texts = ["", "Alice was tired", CORPUS[0]]
    expected = tokenizer(texts, truncation=True, max_length=12)
    received = tf_text.encode(given, tf.constant(texts), 12)
    for part in NAMES:
        np.testing.assert_array_equal(received[part], getattr(expected, part), err_msg=part)
    assert received["input_ids"].shape == (3, 12)
    assert received["input_ids"][2, -1] == tokenizer.encode("")[-1]  # the last special token is kept


@pytest.mark.parametrize("name", [pytest.param("cased", marks=pytest.mark.release), "uncased", "sentencepiece"])
@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tflite_file_returns_the_same_ids(tokenizers, name, tmp_path):
    tokenizer, _ = tokenizers(name)
    signature = tf_text.write_tokenizer(tokenizer, NAMES, 24, tmp_path / "tokenizer.tflite")
    assert signature.inputs["text"].dtype == "string"
    run = tf_text.tokenize_runner(tmp_path / "tokenizer.tflite")
    for text in ["", "  ", *SAMPLE[:14], *MORE[:4]]:
        expected = tokenizer(text, truncation=True, max_length=24, padding="max_length")
        received = run(text)
        for part in NAMES:
            np.testing.assert_array_equal(received[part], getattr(expected, part), err_msg=f"{part} of {text!r}")
    del run
    gc.collect()


def _classifier(tokenizer: Tokenizer, **settings: Any) -> Any:
    model = zoo.build(
        "bert", "text-classification", vocab_size=tokenizer.vocab_size, hidden_dim=36, num_layers=1, num_heads=3,
        intermediate_dim=44, max_length=32, initializer_range=0.5, **settings,
    )  # fmt: skip
    model.tokenizer = tokenizer
    return model


_ALONE = """
import sys, json
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps(model.signatures["serving_default"](text=tf.constant(texts))["logits"].numpy().tolist()))
assert not any(name.split(".")[0] in ("kerasformer", "tokenizers") for name in sys.modules)
"""


@pytest.mark.filterwarnings("ignore::kerasformer.tokenization.truncation.TruncationWarning")
@pytest.mark.grid
def test_a_saved_model_reads_texts_in_another_process(tokenizers, tmp_path):
    tokenizer, _ = tokenizers("uncased")
    model = _classifier(tokenizer)
    folder = kf.export.export(model, tmp_path / "saved", format="saved-model", tokenizer="in-graph")
    texts = ["Alice was tired of the Rabbit!", "", CORPUS[0], *MORE[:3]]  # the third is longer than the model
    inputs = tokenizer(texts, truncation=True, max_length=32).inputs
    expected = np.asarray(model(inputs))
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(folder), json.dumps(texts)], capture_output=True, text=True, check=True
    )
    received = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert np.abs(received - expected).max() <= 1e-5 * np.abs(expected).max()
    by_tokens = tf.saved_model.load(str(folder)).signatures["tokens"](**{k: tf.constant(v) for k, v in inputs.items()})
    assert np.abs(by_tokens["logits"] - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_bundle_with_its_tokenizer_as_operators(tokenizers, tmp_path):
    tokenizer, _ = tokenizers("uncased")
    model = _classifier(tokenizer)
    folder = kf.export.export(model, tmp_path / "bundle", tokenizer="in-graph", lengths=[16, 32])
    signatures = bundle.read(folder).signatures
    assert signatures["tokenize"].inputs["text"].dtype == "string"
    assert signatures["tokenize"].file == "tokenizer.tflite" and signatures["forward_32"].file == "model.tflite"
    # As in docs/tf_text.md: the tokenizer's arrays are the model's inputs.
    tokens = tf_text.tokenize_runner(folder / "tokenizer.tflite")("Alice was tired")
    interpreter = tf.lite.Interpreter(model_path=str(folder / "model.tflite"))
    logits = interpreter.get_signature_runner("forward_32")(**tokens)["logits"]
    expected = np.asarray(model(tokenizer("Alice was tired").inputs))
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
    (scored,) = kf.pipeline(folder, "text-classification")(["Alice was tired"])
    assert scored
    del interpreter
    gc.collect()


def _generating() -> Any:
    model = zoo.build("gpt2", vocab_size=320, hidden_dim=36, num_layers=1, num_heads=3, max_length=32)
    model.tokenizer = tiny_text.byte_pairs()
    return model


def _filling() -> Any:
    tokenizer = tiny_text.wordpiece()
    settings = {"hidden_dim": 36, "num_layers": 1, "num_heads": 3, "max_length": 32}
    model = zoo.build("bert", "fill-mask", vocab_size=tokenizer.vocab_size, **settings)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [(_generating, "generates text"), (_filling, "mask token")],
    ids=["generates", "fill-mask"],
)
@pytest.mark.parametrize("format", ["saved-model", "tflite"])
def test_unsupported_models(make, message, format, tmp_path):
    with pytest.raises(ExportError, match=message):
        kf.export.export(make(), tmp_path / "out", format=format, tokenizer="in-graph")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (tiny_text.byte_pairs, "a BPE tokenizer"),
        (tiny_text.pieces, "no normalizer except Precompiled.*NFKC"),
        (lambda: None, "model.tokenizer=None"),
    ],
    ids=["byte-level", "normalizer", "none"],
)
def test_unsupported_tokenizers(make, message):
    with pytest.raises(ExportError, match=message):
        tf_text.graph_tokenizer(make(), NAMES)


def test_characters_of_the_vocabulary_at_which_tf_text_splits(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n\u2e43\n", encoding="utf-8")
    with pytest.raises(ExportError, match="\u2e43"):
        tf_text.graph_tokenizer(kf.Tokenizer.load(tmp_path), NAMES)
