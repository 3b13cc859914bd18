"""Tiny tokenizers of every family, with vocabularies that are counted here: trainers give others in each process."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from kerasformer.tokenization import Tokenizer, backends, spiece
from kerasformer.tokenization.families import BYT5, NLLB
from kerasformer.tokenization.languages import MultilingualTokenizer
from kerasformer.tools.training.tokenizer_pruning import prune_tokenizer
from tests import tiny_text
from tests.core.tokenization.conftest import CASES, write
from tests.core.tokenization.test_hard_texts import split_at
from tests.mobile.texts import ALL, CORPUS, SCRIPTS, SPLIT

SPACE = "▁"
END = "<|endoftext|>"
_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Words = Counter[tuple[str, ...]]


def _words(splitter: Any, texts: Sequence[str] = CORPUS) -> Counter[str]:
    return Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(text))


def _merges(words: Words, count: int) -> list[tuple[str, str]]:
    """Returns the merges of byte-pair encoding; of equally common pairs, the first one in the alphabet comes first."""
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs = Counter[tuple[str, str]]()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({_merged(word, best): times for word, times in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    parts: list[str] = []
    for part in word:
        if parts and (parts[-1], part) == pair:
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def wordpiece(lowercase: bool, special: Sequence[str] = _BERT) -> dict[str, str]:
    """Returns `vocab.txt` with the characters of the corpus, common words, and parts of words."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words = _words(pre_tokenizers.BertPreTokenizer(), [normalizer.normalize_str(text) for text in CORPUS])
    letters = sorted({letter for word in words for letter in word})
    inner = sorted({letter for word in words for letter in word[1:]})
    parts = Counter[str]()
    for word, count in words.items():
        parts.update(
            dict.fromkeys((word, word[:3], *(f"##{word[-size:]}" for size in (2, 3) if len(word) > size)), count)
        )
    common = sorted(parts, key=lambda part: (-parts[part], part))
    tokens = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in inner), *common[:110]])
    return {"vocab.txt": "\n".join(tokens) + "\n"}


@cache
def _byte_words(pattern: str | None = None) -> Words:
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern is not None:
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        splitter = pre_tokenizers.Sequence(steps)
    return Counter({tuple(word): count for word, count in _words(splitter).items()})


def bpe(
    special: Sequence[str], pattern: str | None = None, count: int = 90
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns the vocabulary and the merges of byte-level BPE, with the special tokens first."""
    merges = _merges(_byte_words(pattern), count)
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}, merges


def bpe_files(special: Sequence[str]) -> dict[str, str]:
    """Returns `vocab.json` and `merges.txt`."""
    vocabulary, merges = bpe(special)
    lines = ["#version: 0.2", *map(" ".join, merges)]
    return {"vocab.json": json.dumps(vocabulary), "merges.txt": "\n".join(lines) + "\n"}


def word_bpe() -> dict[str, str]:
    """Returns the files of the first GPT: pieces of words in lower case, the last of which ends in `</w>`."""
    normalizer = normalizers.BertNormalizer(lowercase=True)
    texts = [normalizer.normalize_str(text) for text in CORPUS]
    words = {
        (*word[:-1], f"{word[-1]}</w>"): count
        for word, count in _words(pre_tokenizers.BertPreTokenizer(), texts).items()
    }
    merges = _merges(Counter(words), 90)
    tokens = ["<unk>", *sorted({part for word in words for part in word}), *map("".join, merges)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    return {"vocab.json": json.dumps(vocabulary), "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, merges)])}


@cache
def charsmap() -> bytes:
    """Returns compiled rules as those of published models, for the characters of the texts and some others."""
    import sentencepiece

    with TemporaryDirectory() as folder:
        table, texts = Path(folder) / "rules.tsv", Path(folder) / "texts.txt"
        rules = {key: value for key, value in _rules() if key != value}
        lines = ["\t".join(" ".join(f"{ord(c):X}" for c in part) for part in rule) for rule in sorted(rules.items())]
        table.write_text("\n".join(lines) + "\n")
        texts.write_text("\n".join(CORPUS))
        model = BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            input=str(texts), model_writer=model, vocab_size=260, hard_vocab_limit=False, minloglevel=2,
            normalization_rule_tsv=str(table),
        )  # fmt: skip
    return spiece.parse(model.getvalue()).charsmap


def _rules() -> Iterator[tuple[str, str]]:
    """Yields characters, and sequences of them, with their replacements: those of NFKC, spaces and invisible ones."""
    ranges = [(0xA0, 0x17F), (0x2000, 0x206F), (0x2460, 0x2468), (0x3000, 0x3001), (0xFB00, 0xFB06), (0xFF01, 0xFF9F)]
    characters = {chr(code) for first, last in ranges for code in range(first, last + 1)} | set("".join(ALL))
    yield from ((character, unicodedata.normalize("NFKC", character)) for character in characters)
    for base in "aeinouACO":
        yield from (
            (base + mark, unicodedata.normalize("NFKC", base + mark)) for mark in "\u0300\u0301\u0303\u0308\u0323"
        )
    yield from (("ｶﾞ", "ガ"), ("ｷﾞ", "ギ"), ("a\u0308\u0323", "ạ\u0308"), ("\u1112\u1161\u11ab", "한"))
    yield from ((character, " ") for character in "\t\n\r\u00a0\u3000\u2028\u2029\u200b")
    yield from ((chr(code), "") for code in (*range(0x01, 0x09), *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F, 0xAD))


def unigram(first: Sequence[spiece.Piece], name: str = "spiece.model", with_rules: bool = True) -> dict[str, bytes]:
    """Returns a file of SentencePiece with scores of pieces."""
    special = {piece.text for piece in first}
    scored = [piece for piece in tiny_text._scored(CORPUS, 260) if piece[0] not in special]
    pieces = [*first, *(spiece.Piece(*piece) for piece in scored)]
    unknown = next(index for index, piece in enumerate(first) if piece.kind == spiece.UNKNOWN)
    rules = charsmap() if with_rules else b""
    return {name: spiece.serialize(spiece.SentencePieceModel(pieces, unk_id=unknown, charsmap=rules))}


def _control(*tokens: str, unknown: str = "<unk>", words: Sequence[str] = ()) -> list[spiece.Piece]:
    kinds = {unknown: spiece.UNKNOWN, **dict.fromkeys(words, spiece.USER_DEFINED)}
    return [spiece.Piece(token, kind=kinds.get(token, spiece.CONTROL)) for token in (*tokens, *words)]


_FAIRSEQ = _control("<unk>", "<s>", "</s>")
_T5 = _control("<pad>", "</s>", "<unk>")


def merged_pieces() -> dict[str, bytes]:
    """Returns a file of SentencePiece with merges, as that of NLLB."""
    words = Counter({tuple(SPACE + word): count for word, count in Counter(" ".join(CORPUS).split()).items()})
    merges = _merges(words, 110)
    texts = dict.fromkeys([*map("".join, merges), *sorted({letter for word in words for letter in word})])
    pieces = [spiece.Piece(text, -float(index)) for index, text in enumerate(texts)]
    model = spiece.SentencePieceModel([*_FAIRSEQ, *pieces], spiece.BYTE_PAIRS, charsmap=charsmap())
    return {"sentencepiece.bpe.model": spiece.serialize(model)}


def _of_case(name: str, files: Callable[[], dict[str, Any]], **options: Any) -> Callable[[], Tokenizer]:
    """Returns a function that builds the tokenizer of a case of the tests, with the vocabulary of this file."""

    def make() -> Tokenizer:
        _, config, settings = CASES[name]
        with TemporaryDirectory() as folder:
            content = {**files(), "config.json": config, "tokenizer_config.json": {**(settings or {}), **options}}
            return Tokenizer.load(write(Path(folder), content))

    return make


LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def _split_bytes(pattern: str, special: Sequence[str]) -> Backend:
    vocabulary, merges = bpe([], pattern)
    backend = Backend(models.BPE(vocabulary, merges, ignore_merges=True))
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return backend


def llama3() -> Tokenizer:
    """Returns a tokenizer like that of Llama 3: patterns of GPT-4, `<|begin_of_text|>` first, ids before merges."""
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    backend = _split_bytes(LLAMA3_PATTERN, special)
    first = ("<|begin_of_text|>", backend.token_to_id("<|begin_of_text|>"))
    template = processors.TemplateProcessing(
        "<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", [first]
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return Tokenizer(backend, special_tokens={"bos_token": special[0], "eos_token": special[1]})


def qwen2() -> Tokenizer:
    """Returns a tokenizer like that of Qwen 2: NFC, single digits, tokens of a chat."""
    backend = _split_bytes(QWEN2_PATTERN, [END, "<|im_start|>", "<|im_end|>"])
    backend.normalizer = normalizers.NFC()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    backend.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<think>", normalized=False)])
    return Tokenizer(backend, special_tokens={"eos_token": "<|im_end|>", "pad_token": END})


def neox() -> Tokenizer:
    """Returns a tokenizer like that of Pythia and ModernBERT: NFC, tokens of several spaces, trimmed offsets."""
    vocabulary, merges = bpe([END, "<|padding|>"])
    backend = Backend(models.BPE(vocabulary, merges))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in (END, "<|padding|>")])
    backend.add_tokens([AddedToken(" " * count) for count in (4, 3, 2)])
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    backend.add_tokens([AddedToken("said", single_word=True)])
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return Tokenizer(backend, special_tokens={"eos_token": END, "pad_token": "<|padding|>", "mask_token": "[MASK]"})


def word_level() -> Tokenizer:
    """Returns a tokenizer of whole words in lower case."""
    words = Counter(word for text in CORPUS for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text.lower()))
    common = sorted(words, key=lambda word: (-words[word], word))[:120]
    tokens = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", *common]
    backend = Backend(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)])
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return Tokenizer(backend, special_tokens=names)


def gemma() -> Tokenizer:
    """Returns a tokenizer like that of Gemma 3: merges of whole texts, bytes for unknown characters."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    texts = Counter({tuple(SPACE + word): count for word, count in Counter(" ".join(CORPUS).split()).items()})
    merges = [("\n", "\n"), (SPACE, SPACE), *_merges(texts, 90)]
    letters = sorted({letter for word in texts for letter in word} - {SPACE})
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, "\n", *letters, *map("".join, merges)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    backend = Backend(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    turns = ["<start_of_turn>", "<end_of_turn>"]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in (*special, *turns)])
    backend.post_processor = processors.TemplateProcessing("<bos> $A", "<bos> $A <bos>:1 $B:1", [("<bos>", 2)])
    return Tokenizer(backend, special_tokens={f"{token[1:-1]}_token": token for token in special})


def llama2() -> Tokenizer:
    """Returns a tokenizer like that of Llama 2: a space is put first, bytes for unknown characters, `<s> …`."""
    content = json.loads(gemma().backend.to_str())
    for old, new in (("<bos>", "<s>"), ("<eos>", "</s>")):
        content["model"]["vocab"][new] = content["model"]["vocab"].pop(old)
    content |= {"normalizer": None, "pre_tokenizer": None, "added_tokens": [], "post_processor": None}
    backend = Backend.from_str(json.dumps(content))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    # Two spaces are found again in the spaces that belong to the token before them.
    backend.add_tokens([AddedToken("  ", normalized=False), AddedToken("Rain", rstrip=True, normalized=False)])
    backend.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 2)])
    return Tokenizer(backend, special_tokens={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})


def marian() -> Tokenizer:
    """Returns a tokenizer like that of Marian: a vocabulary for both sides, pieces of each."""
    sides = {"source.spm": CORPUS[:6], "target.spm": CORPUS[4:]}
    scored = {name: tiny_text._scored(texts, 150) for name, texts in sides.items()}
    tokens = ["</s>", "<unk>", *sorted({piece for side in scored.values() for piece, _ in side}), "<pad>"]
    unknown = spiece.Piece("<unk>", kind=spiece.UNKNOWN)
    files: dict[str, Any] = {
        name: spiece.serialize(
            spiece.SentencePieceModel([unknown, *(spiece.Piece(*each) for each in side)], charsmap=charsmap())
        )
        for name, side in scored.items()
    }
    files["vocab.json"] = {token: index for index, token in enumerate(tokens)}
    with TemporaryDirectory() as folder:
        return Tokenizer.load(write(Path(folder), files), model_type="marian")


def utf8_bytes() -> Tokenizer:
    """Returns a tokenizer like that of ByT5: a token for each byte of a text."""
    special = dict(BYT5.special_tokens)
    backend = backends.utf8_bytes(Path(), backends.BuildSettings(BYT5, special, {"extra_ids": 3}))
    return Tokenizer(backend, special_tokens=special, skip_incomplete=True)


def nllb() -> Tokenizer:
    """Returns a tokenizer like that of NLLB, with merges of pieces, for four languages."""
    content = json.loads(_of_case("nllb", merged_pieces)().backend.to_str())
    codes = {"eng_Latn", "deu_Latn", "ron_Latn", "zho_Hans"}
    added = [token for token in content["added_tokens"] if token["content"] in codes or "_" not in token["content"]]
    content["model"]["vocab"] = {
        token: index
        for token, index in content["model"]["vocab"].items()
        if token in codes or not re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", token)
    }
    special = {name: token for name, token in NLLB.special_tokens.items()}
    backend = Backend.from_str(json.dumps({**content, "added_tokens": added}))
    return MultilingualTokenizer(backend, family=NLLB, after=False, special_tokens=special)


def pruned() -> Tokenizer:
    """Returns a tokenizer from which the characters of some scripts were removed."""
    original = _of_case("xlm-roberta", lambda: unigram(_FAIRSEQ, "sentencepiece.bpe.model"))()
    return prune_tokenizer(original, [*CORPUS[:5], SCRIPTS["Latin"]]).tokenizer


_ALBERT = _control("<pad>", "<unk>", "[CLS]", "[SEP]", words=["[MASK]", "(", ")", ".", "£"])
_DEBERTA = _control("[PAD]", "[CLS]", "[SEP]", "[UNK]", unknown="[UNK]")
_BIG_BIRD = _control("<pad>", "</s>", "<unk>", words=["<s>", "[CLS]", "[SEP]", "[MASK]"])
_MPNET = ("<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>")


def of_letters(splitter: Any, **settings: Any) -> Tokenizer:
    """Returns a tokenizer of letters and few pairs, whose words white space separates."""
    tokens = [*_BERT, SPACE, *sorted(set("".join(SPLIT) + " \n")), SPACE + "t", "he"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocabulary, [(SPACE, "t"), ("h", "e")], unk_token="[UNK]"))
    backend.pre_tokenizer = splitter
    return Tokenizer(backend, special_tokens={"unk_token": "[UNK]", "sep_token": "[SEP]"}, **settings)


FULL: dict[str, Callable[[], Tokenizer]] = {
    "bert-uncased": _of_case("bert-uncased", lambda: wordpiece(True)),
    "bert-cased": _of_case("bert-cased", lambda: wordpiece(False)),
    "gpt2": _of_case("gpt2", lambda: bpe_files([END])),
    "llama3": llama3,
    "gemma": gemma,
    "t5": _of_case("t5-ten", lambda: unigram(_T5)),
    "xlm-roberta": _of_case("xlm-roberta", lambda: unigram(_FAIRSEQ, "sentencepiece.bpe.model")),
    "albert": _of_case("albert", lambda: unigram(_ALBERT, with_rules=False)),
}
"""Tokenizers for which all texts are tokenized."""

OTHERS: dict[str, Callable[[], Tokenizer]] = {
    "bert-accents": _of_case("bert-accents", lambda: wordpiece(True)),
    "mpnet": _of_case("mpnet", lambda: wordpiece(True, _MPNET)),
    "gpt2-bos": _of_case("gpt2-bos", lambda: bpe_files([END])),
    "roberta": _of_case("roberta", lambda: bpe_files(_ROBERTA)),
    "roberta-prefix": _of_case("roberta-prefix", lambda: bpe_files(_ROBERTA)),
    "neox": neox,
    "qwen2": qwen2,
    "llama2": llama2,
    "camembert-no-prefix": _of_case("camembert-no-prefix", lambda: unigram(_FAIRSEQ, "sentencepiece.bpe.model", False)),
    "deberta": _of_case("deberta", lambda: unigram(_DEBERTA, "spm.model", False)),
    "deberta-punctuation": _of_case("deberta-punctuation", lambda: unigram(_DEBERTA, "spm.model", False)),
    "big-bird": _of_case("big_bird-no-prefix", lambda: unigram(_BIG_BIRD)),
    "pegasus": _of_case("pegasus-lines", lambda: unigram([*_T5, *_control(words=["<n>"])], with_rules=False), offset=8),
    "mbart": _of_case("mbart-50", lambda: unigram(_FAIRSEQ, "sentencepiece.bpe.model", False)),
    "nllb": nllb,
    "marian": marian,
    "openai-gpt": _of_case("openai-gpt-padded", word_bpe),
    "byt5": utf8_bytes,
    "word-level": word_level,
    "pruned": pruned,
}
"""Tokenizers for which the short texts are tokenized."""

VARIANTS = (
    "bert-accents mpnet gpt2-bos roberta-prefix camembert-no-prefix deberta-punctuation mbart nllb big-bird "
    "pegasus byt5 pruned"
).split()
"""Those of `OTHERS` that differ little from another one."""

SPLITS: dict[str, Callable[[], Tokenizer]] = {
    **{
        f"split-{behavior}": partial(split_at, Regex(r"[|,]"), behavior.replace("-", "_"))
        for behavior in ("removed", "isolated", "merged-with-previous", "merged-with-next", "contiguous")
    },
    "split-string": partial(split_at, "|", "isolated"),
    "split-characters": partial(of_letters, pre_tokenizers.Split(Regex("."), "isolated")),
    "split-never": partial(of_letters, pre_tokenizers.Metaspace(split=False)),
    "split-special": partial(of_letters, pre_tokenizers.Metaspace(), split_special_tokens=True),
}
"""Tokenizers that split at a pattern, into characters, or not at all."""
