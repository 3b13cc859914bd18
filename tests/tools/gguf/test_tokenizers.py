"""Tokenizers of GGUF files: ids are those of the tokenizer that was written, and of `transformers` for the file."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

import kerasformer as kf
from kerasformer.errors import CheckpointError, TokenizerError
from kerasformer.tokenization import Tokenizer, spiece
from kerasformer.tools.gguf import GgufCheckpoint
from kerasformer.tools.gguf.architecture import Metadata
from kerasformer.tools.gguf.container import Container
from kerasformer.tools.gguf.splitting import SPLITTINGS
from kerasformer.tools.gguf.vocabulary import files
from tests import tiny_text
from tests.core.tokenization.samples import CORPUS, TEXTS
from tests.tools.gguf.test_files import llama

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# The names of tokens mean tokens in the files of llama.cpp, and text in SentencePiece. Classes of `transformers` add
# tokens of their own.
PLAIN = [text for text in TEXTS if "<" not in text]


def from_file(tokenizer: dict[str, Any], folder: Path, architecture: str = "llama") -> Tokenizer:
    """Writes a model with this tokenizer and loads the tokenizer."""
    empty = dict.fromkeys(("tokenizer.ggml.pre", "tokenizer.ggml.merges"))
    named = {f"tokenizer.{key}": value for key, value in tokenizer.items()}
    return kf.Tokenizer.load(llama(folder / "model.gguf", {**empty, **named}))


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def theirs(folder: Path, texts: list[str]) -> list[list[int]]:
    """Returns the ids of `transformers` for the same file, without tokens before and after a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


@cache
def byte_pairs() -> tokenizers.Tokenizer:
    """A byte-level vocabulary with tokens of several digits, a special token and one of a user."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    numbers = [f"{index} 12 1234 123 !!\n\n" for index in range(200)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|end|>", "<|im_start|>"],
    )  # fmt: skip
    backend.train_from_iterator([*CORPUS, *numbers], trainer)
    return backend


def byte_level_file(pre: str | None, **changes: Any) -> dict[str, Any]:
    """Returns the values of the vocabulary in a file."""
    backend = byte_pairs()
    content = tokenizers.Tokenizer.from_str(backend.to_str()).get_vocab()
    tokens = sorted(content, key=content.__getitem__)
    merges = [" ".join(merge) for merge in _merges(backend)]
    tokens.append("<think>")
    kinds = [CONTROL, CONTROL, *[NORMAL] * (len(tokens) - 3), USER_DEFINED]
    return {
        "ggml.model": "gpt2", "ggml.pre": pre, "ggml.tokens": tokens, "ggml.token_type": kinds, "ggml.merges": merges,
        "ggml.bos_token_id": 1, "ggml.eos_token_id": 0, **{f"ggml.{key}": value for key, value in changes.items()},
    }  # fmt: skip


def _merges(backend: tokenizers.Tokenizer) -> Iterator[tuple[str, str]]:
    for merge in json.loads(backend.to_str())["model"]["merges"]:
        yield tuple(merge)


_SPLITS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    **{
        name: pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        # From the `tokenizer.json` of Llama 3, Qwen2 and BLOOM.
        for name, pattern in {
            "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+",
            "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+",
            "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
        }.items()
    },
}
"""How the original tokenizers split texts, by `tokenizer.ggml.pre`."""


@pytest.mark.parametrize("pre", _SPLITS)
def test_byte_level(pre: str, tmp_path: Path) -> None:
    tokenizer = from_file(byte_level_file(pre, add_bos_token=False), tmp_path)
    original = tokenizers.Tokenizer.from_str(byte_pairs().to_str())
    original.pre_tokenizer = _SPLITS[pre]
    original.model.ignore_merges = pre == "llama-bpe"
    original.add_tokens(["<think>"])
    texts = [*TEXTS, "In 1234 and 12345, '12' and don't DON'T", "<|im_start|>a <think>b", "1234567", "a !!\n\nb"]
    assert ids(tokenizer, texts) == [original.encode(text).ids for text in texts]
    if pre in ("gpt-2", "qwen2"):  # `transformers` splits the others as GPT-2 does, or ignores whole words
        assert ids(tokenizer, PLAIN) == theirs(tmp_path, PLAIN)
    assert [tokenizer.decode(row) for row in ids(tokenizer, PLAIN)] == PLAIN
    assert tokenizer.bos_token == "<|im_start|>" and tokenizer.eos_token_id == 0


def test_splittings_are_distinct() -> None:
    """Each way gives other tokens for some text, so that a name in the wrong row would show."""
    text = "Hello 1234 don't DON'T helloWorld, «ça»!!\n\n  x/y/\n"
    seen = {}
    for name, splitting in SPLITTINGS.items():
        parts = tuple(part for part, _ in splitting.pre_tokenizer().pre_tokenize_str(text))
        assert seen.setdefault((parts, splitting.whole_words, splitting.begins), splitting) is splitting, name
    assert len(seen) == len(set(SPLITTINGS.values()))


def test_first_token(tmp_path: Path) -> None:
    """Texts of Llama 3 begin with the first token unless the file denies it; two texts begin with it each."""
    assert from_file(byte_level_file("llama-bpe"), tmp_path)("a").input_ids[0][0] == 1
    assert from_file(byte_level_file("gpt-2"), tmp_path)("a").input_ids[0][0] != 1
    tokenizer = from_file(byte_level_file("gpt-2", add_bos_token=True), tmp_path)
    (a,), (b,) = ids(tokenizer, ["a", "b"])
    assert tokenizer("a", "b").input_ids[0].tolist() == [1, a, 1, b]
    tokenizer = from_file(byte_level_file("gpt-2", add_bos_token=True, add_eos_token=True), tmp_path)
    assert tokenizer("a", "b").input_ids[0].tolist() == [1, a, 0, b, 0]


def test_missing_name_of_the_splitting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kerasformer"):
        tokenizer = from_file(byte_level_file(None), tmp_path)
    assert "does not say how its tokenizer splits texts" in caplog.text
    assert ids(tokenizer, PLAIN) == theirs(tmp_path, PLAIN)


@cache
def pieces(kind: str) -> bytes:
    """Returns a model of SentencePiece."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*CORPUS, *tiny_text.CORPUS]), model_writer=model, model_type=kind,
        vocab_size=600 if kind == "bpe" else 300, byte_fallback=kind == "bpe", minloglevel=2, character_coverage=0.99,
        **({"normalization_rule_name": "identity", "remove_extra_whitespaces": False} if kind == "bpe" else {}),
        **({} if kind == "bpe" else {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    )  # fmt: skip
    return model.getvalue()


def pieces_file(kind: str, **changes: Any) -> tuple[dict[str, Any], sentencepiece.SentencePieceProcessor]:
    """Returns the values of a model of SentencePiece in a file, and the model."""
    model = sentencepiece.SentencePieceProcessor(model_proto=pieces(kind))
    count = model.vocab_size()
    kinds = [
        UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i) else NORMAL
        for i in range(count)
    ]
    values = {
        "model": "llama" if kind == "bpe" else "t5", "tokens": [model.id_to_piece(i) for i in range(count)],
        "token_type": kinds, "scores": [float(model.get_score(i)) for i in range(count)],
        "unknown_token_id": model.unk_id(), "eos_token_id": model.eos_id(),
        "bos_token_id": model.bos_id() if model.bos_id() >= 0 else None, **changes,
    }  # fmt: skip
    return {f"ggml.{key}": value for key, value in values.items()}, model


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces(prefix: bool, tmp_path: Path) -> None:
    """Merges of characters, recovered from the scores."""
    values, model = pieces_file("bpe", add_space_prefix=prefix)
    tokenizer = from_file(values, tmp_path)
    texts = [text for text in PLAIN if text and "\0" not in text]
    actual = ids(tokenizer, texts)
    if prefix:
        assert actual == [model.encode(text) for text in texts]
        # `transformers` puts no space before a text that begins with one.
        rows = [row for row, text in enumerate(texts) if not text.startswith(" ")]
        assert [actual[row] for row in rows] == theirs(tmp_path, [texts[row] for row in rows])
    else:
        assert [[model.id_to_piece(row[0]) for row in actual][0][0]] == ["A"]
    assert [tokenizer.decode(row) for row in actual] == texts
    assert tokenizer("a").input_ids[0][0] == model.bos_id()


def test_pieces_of_spaces(tmp_path: Path) -> None:
    """Gemma's tokens of several spaces are those of a user, with spaces in the file, and come before all others."""
    values, model = pieces_file("bpe", add_space_prefix=False)
    spaces, count = [" " * size for size in range(2, 6)], model.vocab_size()
    values["ggml.tokens"] += spaces
    values["ggml.token_type"] += [USER_DEFINED] * len(spaces)
    values["ggml.scores"] += [-1000.0] * len(spaces)
    tokenizer = from_file(values, tmp_path)
    assert ids(tokenizer, ["    "]) == [[count + 2]]
    assert ids(tokenizer, ["A     the"])[0][1] == count + 3
    assert tokenizer.decode(*ids(tokenizer, ["A     the  x"])) == "A     the  x"


def test_unigram(tmp_path: Path) -> None:
    values, model = pieces_file("unigram")
    charsmap = _charsmap(pieces("unigram"))
    tokenizer = from_file({**values, "ggml.precompiled_charsmap": list(charsmap)}, tmp_path)
    # `tokenizers`, also for files of Hugging Face, normalizes two marks on a letter and ends of lines differently.
    texts = [text for text in PLAIN if not {"\0", "\u0323", "\u2028"} & set(text)]
    assert ids(tokenizer, texts) == [model.encode(text) for text in texts]
    assert tokenizer("Alice").input_ids[0].tolist() == [*model.encode("Alice"), model.eos_id()]


def _charsmap(proto: bytes) -> bytes:
    return spiece.parse(proto).charsmap


def test_sentinels_of_t5() -> None:
    """llama.cpp calls the tokens of masked spans `[PAD…]`."""
    values, _ = pieces_file("unigram")
    count = len(values["ggml.tokens"])
    values["ggml.tokens"] += [f"[PAD{count + index}]" for index in range(104)]
    values["ggml.token_type"] += [UNUSED] * 104
    values["ggml.scores"] += [-10000.0] * 104
    content = {"general.architecture": "t5", **{f"tokenizer.{key}": value for key, value in values.items()}}
    metadata = Metadata(Container(Path("x"), {k: v for k, v in content.items() if v is not None}, {}))
    built = tokenizers.Tokenizer.from_str(
        files(metadata, max_length=None, segments=False, sentinels=100)["tokenizer.json"]
    )
    assert built.token_to_id("<extra_id_99>") == count and built.token_to_id("<extra_id_0>") == count + 99
    assert built.token_to_id(f"[PAD{count + 100}]") == count + 100


CASES = {  # capitals in the vocabulary, the key of the file, whether texts are in lower case
    "lower case": (False, {}, True),
    "cased": (True, {}, False),
    "cased, with the key": (True, {"ggml.normalizer.lowercase": True}, True),
    "lower case, with the key": (False, {"ggml.normalizer.lowercase": False}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_wordpiece(name: str, tmp_path: Path) -> None:
    """Words have a mark in the file, and their other pieces have none."""
    capitals, keys, lowercase = CASES[name]
    original = tiny_text.wordpiece()
    vocabulary = original.backend.get_vocab()
    if capitals:
        others = [token for token in ("Anna", "The", "É") if token not in vocabulary]
        vocabulary |= {token: len(vocabulary) + index for index, token in enumerate(others)}
    original = Tokenizer(
        tokenizers.Tokenizer.from_str(original.backend.to_str()), special_tokens=original.special_tokens
    )
    original.backend.model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    original.backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    named = [token for token in sorted(vocabulary, key=vocabulary.__getitem__)]
    special = set(original.special_tokens.values())
    tokens = [token if token in special else token[2:] if token.startswith("##") else f"▁{token}" for token in named]
    kinds = [CONTROL if token in special else NORMAL for token in named]
    index = {name: named.index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    tokenizer = from_file(
        {
            "ggml.model": "bert", "ggml.tokens": tokens, "ggml.token_type": kinds, "ggml.bos_token_id": index["CLS"],
            "ggml.unknown_token_id": index["UNK"], "ggml.seperator_token_id": index["SEP"],
            "ggml.padding_token_id": index["PAD"], "ggml.mask_token_id": index["MASK"], **keys,
        },
        tmp_path,
    )  # fmt: skip
    texts = [*TEXTS, "The Anna É é ANNA"]
    assert ids(tokenizer, texts) == ids(original, texts)
    assert tokenizer("a", "b").input_ids.tolist() == original("a", "b").input_ids.tolist()


def test_chat_templates(tmp_path: Path) -> None:
    values = {**byte_level_file("gpt-2"), "chat_template": "{{ messages[0].content }}<|end|>"}
    tokenizer = from_file(values, tmp_path)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi<|end|>"
    several = {**values, "chat_templates": ["tool_use"], "chat_template.tool_use": "tools"}
    tokenizer = from_file(several, tmp_path)
    assert (
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], chat_template="tool_use", tokenize=False)
        == "tools"
    )


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns a function that removes values."""
    return lambda values: {**values, **dict.fromkeys(names)}


def with_value(name: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns a function that replaces a value."""
    return lambda values: {**values, name: value}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value("ggml.model", "rwkv"), "tokenizer.ggml.model .* Expected one of gpt2, .* Received: 'rwkv'"),
        (with_value("ggml.pre", "deepseek-llm"), "tokenizer.ggml.pre .* Received: 'deepseek-llm'"),
        (with_value("ggml.merges", ["a"]), "must be two tokens with a space .* Received: 'a'"),
        (with_value("ggml.merges", ["nothing here"]), "together are a token. Received: 'nothing here'"),
        (with_value("ggml.bos_token_id", 10**6), "bos_token_id must be the id of one of .* Received: 1000000"),
        (with_value("ggml.token_type", [1, 1]), "token_type must have a number for each of the .* Received: 2"),
        (without("ggml.tokens"), "no value for the key tokenizer.ggml.tokens"),
    ],
)
def test_bad_tokenizers(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((TokenizerError, CheckpointError), match=message):
        from_file(change(byte_level_file("gpt-2")), tmp_path)


def test_a_model_without_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The model loads; the reason is logged if there is a tokenizer that cannot be used."""
    path = llama(tmp_path / "model.gguf", {"tokenizer.ggml.model": "rwkv"})
    assert kf.zoo.load(path).tokenizer is None
    assert "Received: 'rwkv'" in caplog.text
    path = llama(tmp_path / "other.gguf", {"tokenizer.ggml.model": "none"})
    assert not GgufCheckpoint(path).has_tokenizer
