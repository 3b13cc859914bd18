"""Ids, offsets, masks, chunks and texts, compared with transformers for the same folder."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import pre_tokenizers, processors

from kerasformer.errors import InputError
from kerasformer.tokenization import Tokenizer, TruncationWarning
from kerasformer.tokenization.words import WordRule
from tests.core.tokenization.conftest import CASES, EACH_KIND, Checkpoint
from tests.core.tokenization.samples import TEXTS
from tests.grids import grid

QUESTIONS = ["Who was tired?", "What is the use of a book", "", "the Rabbit was late"]
CONTEXTS = [
    "Alice was beginning to get very tired of sitting by her sister " * 4,
    "no pictures",
    "late",
    "the Rabbit was late",  # as long as its question
]


@pytest.fixture(params=grid(CASES, always=EACH_KIND))
def both(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> tuple[Any, Tokenizer]:
    folder = checkpoint(request.param)
    return reference(folder), Tokenizer.load(folder)


def reference(folder: Path) -> Any:
    if (folder / "spiece.model").exists() and "pegasus" in (folder / "config.json").read_text():
        return pegasus(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(str(folder))
    if type(theirs) is transformers.XGLMTokenizer and not (folder / "tokenizer.json").exists():
        return xglm(folder / "sentencepiece.bpe.model", theirs.init_kwargs)
    if type(theirs) is transformers.DebertaTokenizer:
        # Version 5 puts two separators between texts, all in segment 0; the models were trained with one.
        theirs.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", theirs.cls_token_id), ("[SEP]", theirs.sep_token_id)],
        )
    if type(theirs) is transformers.NllbTokenizer and not (folder / "tokenizer.json").exists():
        return nllb(folder / "sentencepiece.bpe.model", theirs.init_kwargs)
    if type(theirs) is transformers.MBartTokenizer:  # version 5 ignores the rules with which the models were trained
        backend = Tokenizer.load(folder).backend
        theirs.backend_tokenizer.normalizer = backend.normalizer
    return theirs


def xglm(path: Path, options: dict[str, Any]) -> Any:
    """Returns the tokenizer of a SentencePiece file, which version 5 does not read, with the pieces of version 4."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    pieces = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    pieces += [(f"<madeupword{index}>", 0.0) for index in range(7)]
    used = {name: options[name] for name in ("add_prefix_space", "model_max_length") if name in options}
    charsmap = proto.normalizer_spec.precompiled_charsmap
    return transformers.XGLMTokenizer(vocab=pieces, _spm_precompiled_charsmap=charsmap, **used)


def pegasus(folder: Path) -> Any:
    """Returns the tokenizer of a SentencePiece file with the ids of version 4, with which the models were trained.

    Version 5 exchanges the masks if the folder names them, as published ones do, and reads none of BigBird-Pegasus. It
    also adds a token for a space at the end of a text, unlike SentencePiece and the published files.
    """
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text()) if path.exists() else {}
    proto = sentencepiece_model_pb2.ModelProto.FromString((folder / "spiece.model").read_bytes())
    pieces, offset = [(piece.piece, piece.score) for piece in proto.pieces], options.get("offset", 103)
    if offset:
        first = [(token, 0.0) for token in ("<pad>", "</s>", "<mask_1>", "<mask_2>")]
        pieces = [*first, *((f"<unk_{index}>", -100.0) for index in range(2, offset)), *pieces[2:]]
    names = ("bos_token", "cls_token", "mask_token", "mask_token_sent", "model_max_length", "offset", "sep_token")
    theirs = transformers.PegasusTokenizer(
        vocab=pieces,
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap or None,
        **{name: options[name] for name in names if name in options},
    )
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaces)
    return theirs


def nllb(path: Path, options: dict[str, Any]) -> Any:
    """Returns the tokenizer of a SentencePiece file, which version 5 reads without languages, as in version 4."""
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES
    from transformers.tokenization_utils_base import generate_merges

    proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    pieces = [piece.piece for piece in proto.pieces]
    merges = generate_merges({piece: index for index, piece in enumerate(pieces)})
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:], *FAIRSEQ_LANGUAGE_CODES, "<mask>"]
    names = ("legacy_behaviour", "model_max_length", "src_lang", "tgt_lang")
    return transformers.NllbTokenizer(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=merges,
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap,
        **{name: options[name] for name in names if name in options},
    )


@pytest.mark.parametrize("special", [True, False])
def test_ids(both: tuple[Any, Tokenizer], special: bool) -> None:
    theirs, ours = both
    for text in TEXTS:
        assert ours.encode(text, special) == theirs.encode(text, add_special_tokens=special), text


@pytest.mark.parametrize("skip", [True, False])
def test_decode(both: tuple[Any, Tokenizer], skip: bool) -> None:
    theirs, ours = both
    for text in TEXTS:
        ids = ours.encode(text)
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip), text


@pytest.mark.parametrize("pairs", [False, True])
def test_arrays(both: tuple[Any, Tokenizer], pairs: bool) -> None:
    theirs, ours = both
    if theirs.pad_token is None:
        theirs.pad_token = theirs.eos_token
    second = TEXTS[::-1] if pairs else None
    expected = theirs(
        TEXTS,
        second,
        padding=True,
        return_tensors="np",
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_token_type_ids=True,
    )
    received = ours(TEXTS, second)
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.attention_mask, expected["attention_mask"])
    np.testing.assert_array_equal(received.token_type_ids, expected["token_type_ids"])
    np.testing.assert_array_equal(received.offsets, expected["offset_mapping"])
    np.testing.assert_array_equal(received.special_tokens_mask, expected["special_tokens_mask"])
    for row in range(len(TEXTS)):
        words = [-1 if word is None else word for word in expected.word_ids(row)]
        sequences = [-1 if text is None else text for text in expected.sequence_ids(row)]
        # For transformers, a text without words of the pre-tokenizer is one word; see test_words.py.
        assert WordRule(ours.backend).needs_spaces or received.word_ids[row].tolist() == words
        assert received.sequence_ids[row].tolist() == sequences


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("strategy", ["only_first", "only_second", "longest_first"])
def test_truncated_pairs(both: tuple[Any, Tokenizer], strategy: Any, side: Any) -> None:
    theirs, ours = both
    theirs.truncation_side = ours.truncation_side = side
    for question, context in zip(QUESTIONS, CONTEXTS, strict=True):
        for limit in range(5, 30, 3):
            settings = {"truncation": strategy, "max_length": limit}
            try:
                expected = theirs(question, context, **settings)["input_ids"]
            except Exception as error:
                assert "Truncation error" in str(error)
                with pytest.raises(InputError, match="is too small"):
                    ours(question, context, **settings)
                continue
            assert len(expected) <= limit
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TruncationWarning)
                assert ours(question, context, **settings).input_ids[0].tolist() == expected


@pytest.mark.parametrize(("strategy", "stride"), [("only_first", 9), ("only_second", 0), ("only_second", 3)])
def test_chunks(both: tuple[Any, Tokenizer], strategy: Any, stride: int) -> None:
    theirs, ours = both
    theirs.pad_token = theirs.pad_token or theirs.eos_token
    texts = (QUESTIONS, CONTEXTS) if strategy == "only_second" else (CONTEXTS, QUESTIONS)
    settings = {"truncation": strategy, "max_length": 40, "stride": stride}
    expected = theirs(
        *texts,
        **settings,
        padding="max_length",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_tensors="np",
    )
    received = ours(*texts, **settings, padding="max_length", return_overflowing_tokens=True)
    assert len(received.input_ids) > len(CONTEXTS), "the sample must be split into chunks"
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.offsets, expected["offset_mapping"])
    np.testing.assert_array_equal(received.overflow_to_sample, expected["overflow_to_sample_mapping"])


def test_lists_of_words(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    theirs.pad_token = theirs.pad_token or theirs.eos_token
    words = [text.split() or [""] for text in CONTEXTS]
    expected = theirs(words, is_split_into_words=True, padding=True, return_offsets_mapping=True, return_tensors="np")
    received = ours(words, is_split_into_words=True)
    np.testing.assert_array_equal(received.input_ids, expected["input_ids"])
    np.testing.assert_array_equal(received.offsets, expected["offset_mapping"])
    for row in range(len(words)):
        assert received.word_ids[row].tolist() == [-1 if word is None else word for word in expected.word_ids(row)]
        assert received.tokens(row) == [token for token in expected.tokens(row) if token != theirs.pad_token]
    one = ours(words[0], is_split_into_words=True)
    assert one.input_ids.tolist() == [theirs(words[0], is_split_into_words=True)["input_ids"]]
    pair = ours(words[0], words[1], is_split_into_words=True)
    assert pair.input_ids[0].tolist() == theirs(words[0], words[1], is_split_into_words=True)["input_ids"]


def test_tokens_and_ids(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    for text in TEXTS:
        ids = theirs.encode(text)
        tokens = theirs.convert_ids_to_tokens(ids)
        assert ours.convert_ids_to_tokens(ids) == ours.convert_ids_to_tokens(np.array(ids)) == tokens
        # Unlike decoding, convert_ids_to_tokens of transformers also skips ALBERT's punctuation.
        special = {index for index, token in theirs.added_tokens_decoder.items() if token.special}
        expected = [token for index, token in zip(ids, tokens, strict=True) if index not in special]
        assert ours.convert_ids_to_tokens(ids, True) == expected
        assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
        assert ours.tokenize(text) == theirs.tokenize(text)
    assert ours.convert_ids_to_tokens(3) == theirs.convert_ids_to_tokens(3)
    assert ours.convert_tokens_to_ids("Zebra!") == theirs.convert_tokens_to_ids("Zebra!")


def test_named_tokens(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    for name in ("pad", "eos", "bos", "unk", "cls", "sep", "mask"):
        assert getattr(ours, f"{name}_token") == getattr(theirs, f"{name}_token"), name
        assert getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id"), name
    assert ours.vocab_size == len(theirs)
    assert ours.padding_side == theirs.padding_side


def test_saved_folder_is_loaded_by_both(both: tuple[Any, Tokenizer], tmp_path: Path) -> None:
    _, ours = both
    ours.save(tmp_path)
    theirs, again = reference(tmp_path), Tokenizer.load(tmp_path)
    assert again.special_tokens == ours.special_tokens
    assert again.all_special_ids == ours.all_special_ids
    assert again.model_max_length == ours.model_max_length
    assert list(again(TEXTS).inputs) == list(ours(TEXTS).inputs)
    for text in TEXTS:
        ids = ours.encode(text)
        assert again.encode(text) == theirs.encode(text) == ids
        assert again.decode(ids, True) == theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, True)


@pytest.mark.parametrize(
    "name",
    [
        "bert-cased",
        "gpt2-bos",
        "roberta",
        "roberta-prefix",
        "mpnet",
        "camembert",
        "xlm-roberta",
        "deberta-bpe",
        "t5",
        "albert",
    ],
)
def test_tokenizer_json_of_transformers(name: str, checkpoint: Checkpoint, copied: Checkpoint, tmp_path: Path) -> None:
    reference(checkpoint(name)).save_pretrained(str(tmp_path / "theirs"))
    (tmp_path / "theirs" / "config.json").write_bytes((checkpoint(name) / "config.json").read_bytes())
    theirs, ours = reference(tmp_path / "theirs"), Tokenizer.load(tmp_path / "theirs")
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, text
        assert ours.decode(ids, True) == theirs.decode(ids, skip_special_tokens=True), text
    assert ours.special_tokens == Tokenizer.load(checkpoint(name)).special_tokens


@pytest.mark.parametrize("name", ["roberta", "roberta-prefix", "camembert", "camembert-no-prefix", "xlm-roberta"])
def test_spaces_before_the_mask_token(name: str, checkpoint: Checkpoint) -> None:
    theirs, ours = reference(checkpoint(name)), Tokenizer.load(checkpoint(name))
    expected = theirs("Alice  <mask> late", return_offsets_mapping=True)
    received = ours("Alice  <mask> late")
    assert received.input_ids[0].tolist() == expected["input_ids"]
    assert [tuple(span) for span in received.offsets[0].tolist()] == expected["offset_mapping"]
    start, _ = received.offsets[0].tolist()[expected["input_ids"].index(theirs.mask_token_id)]
    assert start == (5 if name in ("roberta-prefix", "camembert") else 7)
