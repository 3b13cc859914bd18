"""Tiny tokenizers of three kinds, with vocabularies from the sentences that the package itself carries.

All vocabularies but one are counted here: the library's own training gives other ones in every process.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from kerasformer.export.reference_texts import PROMPTS, READING
from kerasformer.tokenization import Tokenizer, backends, spiece
from kerasformer.tokenization.families import BYT5, CLASSES
from kerasformer.tokenization.languages import MultilingualTokenizer

# Not all of them: vocabularies stay what they are when sentences are added.
CORPUS = (*READING[:32], *PROMPTS[:8])


def _commonest(parts: Counter[str], count: int) -> list[str]:
    """Returns the most common parts; equally common ones are ordered by length, then alphabetically."""
    return sorted(parts, key=lambda part: (-parts[part], -len(part), part))[:count]


def _wordpiece(special: list[str], unknown: str) -> Backend:
    """A WordPiece tokenizer in lower case, whose vocabulary starts with the special tokens."""
    words = Counter(re.findall(r"\w+", " ".join(CORPUS).lower()))
    starts, ends = Counter[str](), Counter[str]()
    for word, count in words.items():
        starts.update(dict.fromkeys((word, word[:2], word[:3]), count))
        ends.update(dict.fromkeys(("##" + word[-2:], "##" + word[-3:]), count))
    letters = sorted({letter for letter in "".join(CORPUS).lower() if letter != " "})
    whole = [*special, *letters, *(f"##{letter}" for letter in letters if letter.isalnum())]
    rest = [part for part in _commonest(starts + ends, 300) if part not in whole]
    vocabulary = {token: index for index, token in enumerate([*whole, *rest][:180])}
    backend = Backend(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


@cache
def wordpiece() -> Tokenizer:
    """A tokenizer like BERT's: lower case, `[CLS] … [SEP] … [SEP]`, segments."""
    backend = _wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "[UNK]")
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    around = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    return Tokenizer(backend, special_tokens=names, model_inputs=("input_ids", "token_type_ids", "attention_mask"))


@cache
def wordpiece_with_ends() -> Tokenizer:
    """A tokenizer like MPNet's: lower case, `<s> … </s> </s> … </s>`."""
    backend = _wordpiece(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], "[UNK]")
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"}
    return Tokenizer(backend, special_tokens={f"{name}_token": token for name, token in names.items()})


@cache
def byte_pairs() -> Tokenizer:
    """A tokenizer like GPT-2's: bytes, an end token and no padding token."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return Tokenizer(backend, special_tokens={"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"})


@cache
def byte_fallback() -> Tokenizer:
    """A tokenizer like Gemma's: pieces of whole texts, bytes for other characters, `<bos> …`, turns of a chat."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "\n", "\n\n"]
    tokens += sorted({letter for text in CORPUS for letter in text if letter != " "} - set(tokens))
    merges = _common_pairs(Counter("▁" + word for word in re.findall("[a-z]+", " ".join(CORPUS))), 59)
    merges = [("\n", "\n"), *(pair for pair in merges if "".join(pair) not in tokens)]
    tokens += [token for token in dict.fromkeys(map("".join, merges)) if token not in tokens]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    turns = [AddedToken(token, normalized=False, special=True) for token in ("<start_of_turn>", "<end_of_turn>")]
    backend.add_special_tokens([*(AddedToken(token, normalized=False, special=True) for token in special), *turns])
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)]
    )
    return Tokenizer(backend, special_tokens={f"{token[1:-1]}_token": token for token in special})


def _common_pairs(words: Counter[str], count: int) -> list[tuple[str, str]]:
    """Returns the pairs that byte-pair encoding merges in turn; equally common ones in alphabetical order."""
    split, merges = {word: list(word) for word in words}, []
    for _ in range(count):
        pairs = Counter[tuple[str, str]]()
        for word, parts in split.items():
            pairs.update(dict.fromkeys(pairwise(parts), words[word]))
        merges.append(min(pairs, key=lambda pair: (-pairs[pair], pair)))
        for word, parts in split.items():
            split[word] = []
            for part in parts:
                if split[word] and (split[word][-1], part) == merges[-1]:
                    split[word][-1] += part
                else:
                    split[word].append(part)
    return merges


_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_FAIRSEQ_NAMES = {
    "bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>",
    "unk_token": "<unk>", "mask_token": "<mask>",
}  # fmt: skip


@cache
def byte_pairs_in_texts() -> Tokenizer:
    """A tokenizer like RoBERTa's: bytes, `<s> … </s></s> … </s>`, a mask token that includes the spaces before it."""
    merges = _common_pairs(Counter("Ġ" + word for word in re.findall("[a-z]+", " ".join(CORPUS))), 59)
    tokens = [*_FAIRSEQ, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    backend = Backend(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return Tokenizer(backend, special_tokens=_FAIRSEQ_NAMES)


@cache
def pieces_in_texts() -> Tokenizer:
    """A tokenizer like XLM-RoBERTa's: pieces, `<s> … </s></s> … </s>`, the mask token last."""
    scores = [(token, 0.0) for token in _FAIRSEQ]
    scores += [tuple(piece) for piece in json.loads(pieces().backend.to_str())["model"]["vocab"][3:]]
    backend = Backend(models.Unigram([*scores, ("<mask>", 0.0)], unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([*_FAIRSEQ, AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return Tokenizer(backend, special_tokens=_FAIRSEQ_NAMES)


_CODES = {"MBartTokenizer": "en_XX de_DE ro_RO zh_CN", "NllbTokenizer": "eng_Latn deu_Latn ron_Latn zho_Hans"}


def _with_languages(name: str, after: bool) -> MultilingualTokenizer:
    """The pieces of `pieces_in_texts`, and tokens of four languages, from 172 on."""
    backend = Backend.from_str(pieces_in_texts().backend.to_str())
    backend.add_special_tokens([AddedToken(code, normalized=False) for code in _CODES[name].split()])
    return MultilingualTokenizer(backend, family=CLASSES[name], after=after, special_tokens=_FAIRSEQ_NAMES)


@cache
def language_after() -> MultilingualTokenizer:
    """A tokenizer like mBART's: pieces, `… </s> en_XX`."""
    return _with_languages("MBartTokenizer", after=True)


@cache
def language_first() -> MultilingualTokenizer:
    """A tokenizer like NLLB's: pieces, `eng_Latn … </s>`."""
    return _with_languages("NllbTokenizer", after=False)


@cache
def pieces() -> Tokenizer:
    """A tokenizer like T5's: pieces that start with their space, `… </s>`."""
    scores = _scored(CORPUS, 170 - 3)
    backend = Backend(models.Unigram([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores], unk_id=2))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", backend.token_to_id("</s>"))]
    )
    return Tokenizer(backend, special_tokens={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})


@cache
def language_marks() -> Tokenizer:
    """A tokenizer like those of OPUS-MT with several target languages, whose tokens are at the start of a text."""
    tokenizer = pieces()
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([AddedToken(code, special=True) for code in (">>fra<<", ">>ron<<")])
    return Tokenizer(backend, special_tokens=tokenizer.special_tokens)


def _scored(texts: Sequence[str], count: int) -> list[tuple[str, float]]:
    """Returns pieces of words with their scores: all characters, then the most common ones."""
    spelled = ["▁" + word for text in texts for word in text.split()]
    parts = Counter(word[i:j] for word in spelled for i in range(len(word)) for j in range(i + 1, len(word) + 1))
    letters = [part for part in _commonest(parts, len(parts)) if len(part) == 1]
    rest = [part for part in _commonest(parts, 400) if len(part) > 1]
    return [(part, math.log(parts[part] / parts["▁"])) for part in [*letters, *rest][:count]]


@cache
def marian() -> Tokenizer:
    """A tokenizer like Marian's: pieces of two kinds of texts, one vocabulary, `… </s>`, the padding token last."""
    sides = {"source.spm": _scored(CORPUS[:20], 220), "target.spm": _scored(CORPUS[20:], 220)}
    tokens = ["</s>", "<unk>", *sorted({piece for side in sides.values() for piece, _ in side}), "<pad>"]
    unknown = spiece.Piece("<unk>", kind=spiece.UNKNOWN)
    with TemporaryDirectory() as folder:
        for name, side in sides.items():
            pieces = [unknown, *(spiece.Piece(*piece) for piece in side)]
            (Path(folder) / name).write_bytes(spiece.serialize(spiece.SentencePieceModel(pieces)))
        (Path(folder) / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
        return Tokenizer.load(folder, model_type="marian")


@cache
def utf8_bytes() -> Tokenizer:
    """The tokenizer of ByT5: a token for each byte of a text, `… </s>`."""
    special = dict(BYT5.special_tokens)
    backend = backends.utf8_bytes(Path(), backends.BuildSettings(BYT5, special, {}))
    return Tokenizer(backend, special_tokens=special, skip_incomplete=True)


@cache
def pieces_in_segments() -> Tokenizer:
    """A tokenizer like ALBERT's: pieces, `[CLS] … [SEP] … [SEP]`, segments."""
    backend = Backend.from_str(pieces().backend.to_str())
    backend.add_special_tokens(["[CLS]", "[SEP]"])
    around = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return Tokenizer(backend, special_tokens=names, model_inputs=("input_ids", "token_type_ids", "attention_mask"))
