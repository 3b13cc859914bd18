"""MediaPipe's text tasks give the answers of Keras, from the model file alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

import kerasformer as kf
from kerasformer.bundle import Manifest, ModelInfo, Signature, TensorInfo
from kerasformer.bundle.recipes import recipe
from kerasformer.export.formats.tflite.convert import write_tflite
from kerasformer.export.formats.tflite.metadata import Tensor, attach, input_order, metadata
from kerasformer.export.graph.functions import Function
from kerasformer.export.reference_texts import READING
from kerasformer.export.targets import TARGETS
from kerasformer.export.targets.mediapipe.tokenizer_conversion import vocabulary
from kerasformer.pipelines.base import sigmoid, softmax
from kerasformer.tokenization import Tokenizer, hard_texts
from tests import tiny_text
from tests.code_blocks import blocks
from tests.core.export.text_models import ROWS
from tests.foreign.cases import Case, cases, embedder, tiny
from tests.foreign.environments import need, run
from tests.margins import cosines

TARGET = "mediapipe"
LENGTH = 32
ODD = (
    "",
    "   ",
    "MANY Capitals IN HERE, AND A FULL STOP.",
    "two  spaces\tand a tab\nand lines\r\n at the end  ",
    "The café was naïve.",
    "Über naïve cafés, ÀÉÎÕÜ; die STRASSE, Straße, ẞ… don't, 2,000 (3.14)!",
    "a\u0308 combining mark, no\u00a0break, zero\u200bwidth, soft\u00adhyphen, \u0007 \u0085 \u2028 line",
    "今日は天気 测试，好！한국어 안녕 豈",
    "Привет ЁЛКА κόσμε ΣΊΣΥΦΟΣ ΟΔΟΣ ς العربية שָׁלוֹם हिन्दी ภาษาไทยง่าย",
    "emoji 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️ done 🙂",
    "x²+y² ½ ™ ﬁ ① ２ 𐐀𐐨",
    "x" * 100,
    "x" * 101,
    "one word after another " * 40,
    "UNK] and $100 + 5% ^_^ `~|<=>",
    "İstanbul ıSTANBUL ǅ I\u0307",
    "0 1 2 3 4 5 6 7 8 9 10",
)
TEXTS = (*READING[: 50 - len(ODD)], *ODD)
# Differences for uncased BERT, as on the card: lengths in bytes, this character, and special tokens in a text.
DIFFERENT = ("я" * 51, "a real \ufffd character", "[UNK] and")
# Differences for ALBERT, whose texts are not normalized first.
ALBERT_DIFFERENT = ("a \0 b", "a▁▁ b▁")

pytestmark = pytest.mark.filterwarnings(
    "ignore::kerasformer.export.targets.mediapipe.target.MediapipeTokenizerWarning",
    "ignore::kerasformer.tokenization.TruncationWarning",
)


def albert_pieces() -> Tokenizer:
    """Returns a tokenizer like that of ALBERT: lowercase pieces without accents, and `[CLS] … [SEP]`."""
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    known = json.loads(tiny_text.pieces().backend.to_str())["model"]["vocab"]
    small = [(text, score) for text, score in known if text == text.lower() and not text.startswith("<")]
    backend = Backend(models.Unigram([*((token, 0.0) for token in special), *small], unk_id=1))
    accents = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    backend.normalizer = normalizers.Sequence([normalizers.Replace("''", '"'), *accents])
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    backend.pre_tokenizer = pre_tokenizers.Sequence(spaces)
    backend.decoder = decoders.Metaspace()
    around = [(token, special.index(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return Tokenizer(backend, special_tokens=names, model_inputs=("input_ids", "token_type_ids", "attention_mask"))


def character_pieces(**settings: Any) -> Tokenizer:
    """Returns the tiny WordPiece tokenizer with pieces for all characters of the texts, so that none becomes [UNK].

    Its vocabulary also has tokens with line breaks, which a vocabulary file with one token on each line cannot contain.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True, **settings)
    known = {character for text in (*TEXTS, *DIFFERENT) for character in normalizer.normalize_str(text)} - {" "}
    content = json.loads(tiny_text.wordpiece().backend.to_str())
    for odd in ("odd\rone", "odd\0two", "odd\nthree", "odd\r"):
        content["model"]["vocab"][odd] = len(content["model"]["vocab"])
    for piece in sorted({*known, *(f"##{character}" for character in known)} - content["model"]["vocab"].keys()):
        content["model"]["vocab"][piece] = len(content["model"]["vocab"])
    backend = Backend.from_str(json.dumps(content))
    backend.normalizer = normalizer
    return Tokenizer(backend, special_tokens=tiny_text.wordpiece().special_tokens)


KINDS = (character_pieces, albert_pieces)
"""One tokenizer of each kind that MediaPipe has."""


def albert(quantize: str = "none", task: str = "text-classification") -> Case:
    """Returns the case of a tiny ALBERT with pieces."""
    case = tiny("albert", task, quantize)
    return replace(case, source=replace(case.source, tokenizer=albert_pieces, spread=1.5, seed=4, min_agreement=0.9))


ELECTRA = tiny("electra", "text-classification")
ELECTRA = replace(ELECTRA, source=replace(ELECTRA.source, spread=1.4, seed=5))  # texts of several classes


def mediapipe(folder: Path, texts: Sequence[str] = TEXTS, **options: Any) -> Any:
    """Returns MediaPipe's answers to texts that are normalized with the code of the card."""
    texts = [plain(folder)(text) for text in texts]
    return run(TARGET, "mediapipe_text.py", {"model": str(folder / "model.tflite"), "texts": texts, **options})


def plain(folder: Path) -> Callable[[str], str]:
    """Returns the function of the card that normalizes a text for MediaPipe."""
    scope: dict[str, Any] = {"plain": str}
    for block in blocks(folder / "README.md", "python"):
        if "def plain" in block:
            exec("import unicodedata\n\n\n" + block[block.index("def plain") :].partition("\n\n")[0], scope)
    return scope["plain"]


def ids(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    """Returns the ids of the model's tokenizer."""
    return tokenizer(text, truncation=True, max_length=length).input_ids[0].tolist()


def answers(model: Any, length: int) -> list[np.ndarray]:
    """Returns the outputs of the Keras model for each text."""
    rows = [np.array([ids(model.tokenizer, text, length)]) for text in TEXTS]
    types = {"input_ids": np.asarray, "attention_mask": np.ones_like, "token_type_ids": np.zeros_like}
    outputs = (model({name: types[name](row) for name in model.input_names}) for row in rows)
    return [keras.ops.convert_to_numpy(output)[0] for output in outputs]


def length_of(folder: Path) -> int:
    """Returns the number of tokens that the file reads."""
    (signature,) = kf.bundle.read(folder).signatures.values()
    return int(signature.inputs["input_ids"].shape[1])


@pytest.mark.foreign(TARGET)
@cases(
    tiny("bert", "text-classification"),
    tiny("bert", "text-classification", "int8"),
    tiny("bert", "text-classification", "int4"),
    tiny("distilbert", "text-classification"),
    ELECTRA,
    tiny("mobilebert", "text-classification"),
    tiny("mobilebert", "text-classification", "int8"),
    albert(),
    albert("int8"),
    recipes=("none", "int4"),
)
def test_classes_and_scores(case, tmp_path):
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET)
    received = np.array([[row[label] for label in model.info().labels] for row in mediapipe(folder)])
    logits = np.stack(answers(model, length_of(folder)))
    expected = sigmoid(logits) if case.model_type == "distilbert" else softmax(logits)
    assert len(set(expected.argmax(axis=1))) > 1, "the texts must have several classes"
    if case.quantize == "none":
        np.testing.assert_allclose(received, expected, atol=1e-4)
    same = received.argmax(axis=1) == expected.argmax(axis=1)
    # Random scores are close together.
    assert same.mean() >= case.source.recipe(case.quantize).min_agreement


@pytest.mark.foreign(TARGET)
@cases(
    tiny("bert", "feature-extraction"),
    tiny("bert", "feature-extraction", "int8"),
    tiny("distilbert", "feature-extraction"),
    tiny("electra", "feature-extraction"),
    tiny("mobilebert", "feature-extraction"),
    tiny("big_bird", "feature-extraction"),
    albert("none", "feature-extraction"),
)
def test_vectors(case, tmp_path):
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, lengths=[LENGTH])
    expected = np.stack([states.mean(axis=0) for states in answers(model, LENGTH)])
    received = np.array(mediapipe(folder, normalize=False))
    scale = np.abs(expected).max()
    assert np.abs(expected - expected[0]).max() > 0.1 * scale, "the vectors must differ"
    if case.quantize == "none":
        np.testing.assert_allclose(received, expected, atol=1e-4 * scale)
    assert (cosines(received, expected) > 0.98).all()
    normal = np.array(mediapipe(folder, TEXTS[:3], normalize=True))
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(cosines(normal, received[:3]), 1, atol=1e-5)


def with_pieces(case: Case) -> Case:
    """Returns a case with the tokenizer of `albert_pieces`."""
    return replace(case, source=replace(case.source, tokenizer=albert_pieces))


@pytest.mark.foreign(TARGET)
@cases(
    embedder("bert"),
    embedder("mpnet"),
    embedder("bert", "int8_weights"),
    with_pieces(embedder("albert")),
    *(embedder(name) for name in ("distilbert", "electra", "mobilebert", "modernbert")),
)
def test_embeddings(case, tmp_path):
    """Pooling and all that follows it are in the graph."""
    model = case.model()
    folder = case.export(tmp_path / "out", model, target=TARGET, lengths=[LENGTH])
    pipe = kf.pipeline(model, case.task)
    keras = np.stack([pipe.encode([cut(model.tokenizer, text)])[0] for text in READING])
    received = np.array(mediapipe(folder, [cut(model.tokenizer, text) for text in READING], normalize=False))
    assert np.abs(keras - keras[0]).max() > 0.1 * np.abs(keras).max(), "the embeddings must differ"
    if case.quantize == "none":
        np.testing.assert_allclose(received, keras, atol=1e-5 * np.abs(keras).max(), rtol=0)
    assert cosines(received, keras).min() >= (0.9999 if case.quantize == "none" else case.source.min_cosine)


def cut(tokenizer: Tokenizer, text: str) -> str:
    """Returns the words at the beginning of a text that the model reads at once."""
    while len(tokenizer.encode(text)) > LENGTH:
        text = text.rpartition(" ")[0]
    return text


@pytest.mark.parametrize(
    "name",
    [
        "bert-text-classification",
        "bert-sentence-similarity",
        pytest.param("bert-feature-extraction", marks=pytest.mark.release),  # the same code
    ],
)
def test_the_code_on_the_card(name, tmp_path):
    python = need(TARGET)
    folder = kf.export.export(ROWS[name].model(), tmp_path / "out", target=TARGET, lengths=[LENGTH])
    section = (folder / "README.md").read_text(encoding="utf-8").partition("### Python")[2]
    code = section.partition("```python")[2].partition("```")[0]
    done = subprocess.run([python, "-I", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("LABEL_" if name == "bert-text-classification" else "[")


@pytest.mark.parametrize("tokenizer", KINDS)
def test_tokens(tokenizer, tmp_path):
    """For normalized texts, tokens are those of the model, except for the differences that the card lists."""
    need(TARGET)
    different = ALBERT_DIFFERENT if tokenizer is albert_pieces else DIFFERENT
    received = mediapipe(id_embedder(tokenizer(), tmp_path), [*TEXTS, *different], normalize=False)
    for text, row in zip([*TEXTS, *different], received, strict=True):
        expected = ids(tokenizer(), text, LENGTH)
        same = row[: len(expected)] == expected and set(row[len(expected) :]) <= {-1.0}
        assert same == (text not in different), text


@pytest.mark.parametrize("tokenizer", KINDS)
def test_tokens_of_hard_texts(tokenizer, tmp_path):
    """Tokens are those of the model, except for special tokens in a text and SentencePiece's symbol for a space."""
    need(TARGET)
    texts = [text for text, _ in hard_texts.hard_texts(tokenizer())]
    received = mediapipe(id_embedder(tokenizer(), tmp_path), texts, normalize=False)
    model_ids = [ids(tokenizer(), text, LENGTH) for text in texts]
    pairs = zip(texts, model_ids, received, strict=True)
    different = [text for text, expected, row in pairs if row[: len(expected)] != expected]
    special = (*tokenizer().special_tokens.values(), "▁")
    assert [text for text in different if not any(token in text for token in special)] == []


def test_the_javascript_normalizes_texts_like_the_python(tmp_path):
    """Other tests show that MediaPipe gives the right tokens for texts normalized with the Python code."""
    folder = id_embedder(character_pieces(), tmp_path)
    (block,) = [each for each in blocks(folder / "README.md", "javascript") if "function plain" in each]
    code = block[block.index("function plain") :].partition("\n}\n")[0] + "\n}\n"
    code += f"console.log(JSON.stringify({json.dumps(TEXTS)}.map(plain)))"
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [plain(folder)(text) for text in TEXTS]


def id_embedder(tokenizer: Tokenizer, folder: Path) -> Path:
    """Writes a model whose vector of a text consists of its ids, with -1 for padding; returns the folder."""

    def call(input_ids: Any, attention_mask: Any, token_type_ids: Any) -> dict[str, Any]:
        real = attention_mask > token_type_ids  # detects swapped inputs
        return {"ids": ops.cast(ops.where(real, input_ids, -1), "float32")}

    info = TensorInfo((1, LENGTH), "int32")
    roles = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "segment_ids"}
    function = Function("ids", dict.fromkeys(roles, info), {"ids": TensorInfo((1, LENGTH), "float32")}, call)
    path, tokens = folder / "model.tflite", vocabulary(tokenizer)
    write_tflite([function], [], recipe("none"), path)
    inputs = [Tensor(roles[name], "") for name in input_order(path)]
    attach(path, metadata("ids", "", inputs, Tensor("ids", ""), tokens), {tokens.file: tokens.content})
    tokenizer.save(folder)
    signatures = {"ids": Signature(path.name, dict.fromkeys(roles, info), {})}
    manifest = Manifest("tflite", ModelInfo("feature-extraction"), signatures)
    (folder / "README.md").write_text(TARGETS[TARGET].card(manifest, folder), encoding="utf-8")
    return folder
