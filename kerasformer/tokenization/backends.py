"""Construction of Rust tokenizers from vocabulary files, for checkpoints without `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from kerasformer.errors import SourceError, TokenizerError, tokenizer_errors
from kerasformer.files import sources
from kerasformer.files.reading import JsonMapping
from kerasformer.tokenization import byte_level, spiece
from kerasformer.tokenization.families import (
    ALBERT,
    BIG_BIRD,
    BYT5,
    DEBERTA,
    GPT2,
    GPT_NEOX,
    MBART_50,
    MPNET,
    NLLB,
    ROBERTA,
    T5,
    XGLM,
    Family,
)

_SPACE = "▁"
_WITHOUT_WORDS = (BIG_BIRD, DEBERTA, MBART_50, NLLB, XGLM)
"""Families whose texts are not split at white space before they are split into pieces."""
END = "</w>"
"""Suffix of the last piece of a word in vocabularies of words."""


@dataclass(frozen=True)
class BuildSettings:
    """Settings for building a tokenizer.

    Attributes:
        family: Defaults of the tokenizer class.
        special_tokens: Mapping from names such as `"pad_token"` to tokens; tokens of the folder override the family's.
        options: Content of `tokenizer_config.json`.
    """

    family: Family
    special_tokens: Mapping[str, str]
    options: JsonMapping


def wordpiece(vocabulary: Path, settings: BuildSettings) -> tokenizers.Tokenizer:
    """Builds a WordPiece tokenizer from `vocab.txt`, where each line is a token and its line number the id."""
    try:
        lines = vocabulary.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{vocabulary} cannot be read: {error}") from error
    vocab = {token: index for index, token in enumerate(lines)}
    unknown = settings.special_tokens["unk_token"]
    if unknown not in vocab:
        raise TokenizerError(
            f"{vocabulary} must contain one token per line, including {unknown!r}. Received: {len(vocab)} lines "
            "without it"
        )
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(clean_text=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    apply_options(backend, settings)
    surround(backend, settings, vocabulary)
    return backend


def byte_level_bpe(vocabulary: Path, merges: Path, settings: BuildSettings) -> tokenizers.Tokenizer:
    """Builds a byte-level BPE tokenizer, as of GPT-2, GPT-NeoX and RoBERTa, from `vocab.json` and `merges.txt`."""
    vocab = read_vocab(vocabulary)
    with tokenizer_errors(f"{merges} does not match {vocabulary.name}"):
        _, rules = models.BPE.read_file(str(vocabulary), str(merges))
        model = models.BPE(vocab, rules, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    backend = tokenizers.Tokenizer(model)
    if settings.family is GPT_NEOX:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    apply_options(backend, settings)
    surround(backend, settings, vocabulary)
    return backend


def word_bpe(vocabulary: Path, merges: Path, settings: BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer of OpenAI's first GPT: words in lower case, the last piece of which ends in `</w>`."""
    vocab, unknown = read_vocab(vocabulary), settings.special_tokens["unk_token"]
    if unknown not in vocab:
        raise TokenizerError(f"{vocabulary} lacks the token of unknown pieces. Expected: {unknown!r}")
    with tokenizer_errors(f"{merges} does not match {vocabulary.name}"):
        _, rules = models.BPE.read_file(str(vocabulary), str(merges))
        model = models.BPE(vocab, rules, unk_token=unknown, end_of_word_suffix=END, fuse_unk=False)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=END)
    surround(backend, settings, vocabulary)
    return backend


def sentencepiece(file: Path, settings: BuildSettings) -> tokenizers.Tokenizer:
    """Builds a tokenizer from a file of SentencePiece: Unigram, as of T5, ALBERT and mBART, or BPE, as of NLLB."""
    model = read_spiece(file)
    algorithms = (spiece.UNIGRAM, spiece.BYTE_PAIRS) if settings.family.has_merges else (spiece.UNIGRAM,)
    if model.algorithm not in algorithms or model.byte_fallback:
        raise TokenizerError(
            f"{file} is a SentencePiece model with byte fallback or an algorithm other than "
            f"{' and '.join(('Unigram', 'byte-pair encoding')[: len(algorithms)])}, which is not supported. Save it as "
            "tokenizer.json with transformers and load that"
        )
    pieces, unk_id = _pieces(model, settings)
    known = {text for text, _ in pieces}
    extra = [token for token in extra_tokens(settings) if token not in known]
    first = [text for text, _ in _pegasus_pieces(settings)]
    pieces += [(token, 0.0) for token in extra]
    if model.algorithm == spiece.UNIGRAM:
        backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=unk_id, byte_fallback=False))
    else:
        vocabulary = {text: index for index, (text, _) in enumerate(pieces)}
        normal = [piece for piece in model.pieces if piece.kind == spiece.NORMAL]
        bpe = models.BPE(vocabulary, merges(normal), unk_token=pieces[unk_id][0], fuse_unk=True)
        backend = tokenizers.Tokenizer(bpe)
    _normalize(backend, model, settings, file)
    scheme = _prepend_scheme(settings)
    split: list[pre_tokenizers.PreTokenizer] = []
    if settings.family not in _WITHOUT_WORDS:
        split.append(pre_tokenizers.WhitespaceSplit())
    elif settings.options.get("split_by_punct", False):
        split.append(pre_tokenizers.Punctuation(behavior="isolated"))
    split.append(pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme=scheme))
    backend.pre_tokenizer = pre_tokenizers.Sequence(split)
    backend.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme=scheme)
    # Both are matched before a text is split, but decoding skips only control symbols.
    control = [piece.text for piece in model.pieces if piece.kind == spiece.CONTROL]
    control += settings.family.languages.tokens if settings.family.languages else []
    symbols = [piece.text for piece in model.pieces if piece.kind == spiece.USER_DEFINED]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in [*control, *extra, *first]])
    backend.add_tokens([AddedToken(token, normalized=False) for token in symbols])
    surround(backend, settings, file)
    return backend


def merges(pieces: Sequence[spiece.Piece]) -> list[tuple[str, str]]:
    """Returns the merges of byte-pair encoding with these pieces, of which those that come first have priority."""
    known = {piece.text for piece in pieces}
    splits = ((piece.text[:end], piece.text[end:]) for piece in pieces for end in range(1, len(piece.text)))
    return [(first, second) for first, second in splits if first in known and second in known]


def utf8_bytes(folder: Path, settings: BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer of ByT5: three special tokens, and a token for each byte of a text in UTF-8."""
    named = settings.special_tokens
    special = [named[name] for name in ("pad_token", "eos_token", "unk_token")]
    vocabulary = {token: index for index, token in enumerate([*special, *byte_level.characters()])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    # As in the reference, these tokens include the spaces around them.
    backend.add_special_tokens([AddedToken(token, lstrip=True, rstrip=True, normalized=False) for token in special])
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in extra_tokens(settings)])
    surround(backend, settings, folder)
    return backend


def inside(folder: Path, name: str) -> Path:
    """Returns the path of a file in a folder.

    Raises:
        TokenizerError: it is a link to a file outside of the folder.
    """
    try:
        return sources.inside(folder, name)
    except SourceError as error:
        raise TokenizerError(str(error)) from error


def read_spiece(file: Path) -> spiece.SentencePieceModel:
    """Reads `spiece.model`.

    Raises:
        TokenizerError: the file is damaged or is not a SentencePiece model.
    """
    try:
        return spiece.parse(file.read_bytes())
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{file} is not a readable SentencePiece model: {error}") from error


def read_vocab(path: Path) -> dict[str, int]:
    """Reads `vocab.json`.

    Raises:
        TokenizerError: the file does not map tokens to ids.
    """
    try:
        vocab = sources.read_json(path)
    except SourceError as error:
        raise TokenizerError(str(error)) from error
    if not vocab or not all(type(value) is int and value >= 0 for value in vocab.values()):
        raise TokenizerError(
            f"{path} must map tokens to ids. Received: {len(vocab)} entries, with values that are not ids"
        )
    return vocab


def extra_tokens(settings: BuildSettings) -> list[str]:
    """Returns special tokens to add: T5's in descending order, ByT5's in ascending order, or of DeBERTa and XGLM."""
    if settings.family is DEBERTA:
        return list(dict.fromkeys(settings.special_tokens.values()))
    if settings.family is XGLM:
        return [f"<madeupword{index}>" for index in range(7)]
    if settings.family is BYT5:
        listed = settings.options.keys() & {"additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"}
        return [] if listed else [f"<extra_id_{index}>" for index in range(settings.options.get("extra_ids", 125))]
    if settings.family is not T5:
        return []
    count = settings.options.get("extra_ids", 100)
    return [f"<extra_id_{index}>" for index in reversed(range(count))]


def _pieces(model: spiece.SentencePieceModel, settings: BuildSettings) -> tuple[list[tuple[str, float]], int]:
    """Returns the pieces with their scores, and the id of the unknown token."""
    family, named = settings.family, settings.special_tokens
    pieces = [(piece.text, piece.score) for piece in model.pieces]
    if tokens := _pegasus_pieces(settings):
        return [*tokens, *pieces[2:]], model.unk_id + len(tokens) - 2
    if not family.first_pieces:
        return pieces, model.unk_id
    first = [(named.get(token, token), score) for token, score in family.first_pieces]
    last = [(token, 0.0) for token in family.languages.tokens] if family.languages else []
    last += [(named[name], 0.0) for name in family.last_pieces]
    unk_id = [name for name, _ in family.first_pieces].index("unk_token")
    return [*first, *pieces[family.num_replaced :], *last], unk_id


def _pegasus_pieces(settings: BuildSettings) -> list[tuple[str, float]]:
    """Returns the pieces of PEGASUS that replace the first two of the file, with their scores; none for other classes.

    They are the padding and the end token, the masks of a sentence and of a token, and unused tokens.
    """
    offset = settings.options.get("offset", settings.family.offset)
    if settings.family.offset is None or not offset:
        return []
    named, sentence = settings.special_tokens, settings.options.get("mask_token_sent", "<mask_1>")
    first = [named["pad_token"], named["eos_token"], sentence, named["mask_token"]]
    unused = [(f"<unk_{index}>", -100.0) for index in range(2, offset)]
    return [*((token, 0.0) for token in first if token is not None), *unused]


def _prepend_scheme(settings: BuildSettings) -> str:
    """Returns which words start with the character that stands for a space."""
    if settings.options.get("add_prefix_space", True):
        return "always"
    if settings.family is DEBERTA:
        return "first"
    return "never" if settings.family.first_pieces or settings.family is BIG_BIRD else "always"


def apply_options(backend: tokenizers.Tokenizer, settings: BuildSettings) -> None:
    """Applies the options of a tokenizer class, which also take precedence over `tokenizer.json`."""
    options, normalizer, splitter = settings.options, backend.normalizer, backend.pre_tokenizer
    if settings.family.kind == "wordpiece" and isinstance(normalizer, normalizers.BertNormalizer):
        normalizer.lowercase = options.get("do_lower_case", True)
        normalizer.strip_accents = options.get("strip_accents")
        normalizer.handle_chinese_chars = options.get("tokenize_chinese_chars", True)
    if settings.family.kind == "bpe" and isinstance(splitter, pre_tokenizers.ByteLevel):
        splitter.add_prefix_space = options.get("add_prefix_space") or False
    if settings.family in (GPT2, GPT_NEOX) and isinstance(backend.post_processor, processors.ByteLevel):
        backend.post_processor.trim_offsets = False  # the classes replace that of tokenizer.json


def decode_line_breaks(backend: tokenizers.Tokenizer, token: str) -> None:
    """Makes a token a line break in decoded texts, if the vocabulary contains it.

    The rule is a part of `tokenizer.json`, so that every library that reads a saved tokenizer decodes line breaks.
    """
    decoder = backend.decoder
    if backend.token_to_id(token) is None or decoder is None or token not in decoder.decode([token]):
        return
    backend.decoder = decoders.Sequence([decoder, decoders.Replace(token, "\n")])


def _normalize(
    backend: tokenizers.Tokenizer, model: spiece.SentencePieceModel, settings: BuildSettings, file: Path
) -> None:
    steps: list[normalizers.Normalizer] = []
    if settings.family is ALBERT:
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.options.get("keep_accents", False):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.options.get("do_lower_case", True):
            steps.append(normalizers.Lowercase())
    if settings.family is DEBERTA:  # the reference implementation ignores the rules of the file
        steps += [normalizers.Lowercase()] if settings.options.get("do_lower_case", False) else []
        steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
        steps.append(normalizers.Strip(left=False, right=True))
    elif settings.family is BIG_BIRD:  # likewise
        steps.append(normalizers.Replace(Regex(r" {2,}"), _SPACE))
    elif model.charsmap:
        with tokenizer_errors(f"{file} contains damaged normalization rules"):
            steps.append(normalizers.Precompiled(model.charsmap))
    if settings.family in (MBART_50, NLLB, XGLM):
        steps.append(normalizers.Replace(Regex(r" {2,}"), " "))
    if steps:
        backend.normalizer = normalizers.Sequence(steps)


def surround(backend: tokenizers.Tokenizer, settings: BuildSettings, file: Path) -> None:
    """Sets the template that adds special tokens to texts."""
    family, names = settings.family, settings.special_tokens
    single, pair = family.single, family.pair
    if family.kind == "bpe" and settings.options.get("add_bos_token", False) and "cls_token" not in single:
        single, pair = "bos_token:0 $A:0", "bos_token:0 $A:0 bos_token:1 $B:1"
    used = [name for name in names if f"{name}:" in pair]
    ids: dict[str, int] = {}
    for name in used:
        token_id = backend.token_to_id(names[name])
        if token_id is None:
            raise TokenizerError(f"{file} lacks a special token that is added to each text. Expected: {names[name]!r}")
        ids[name] = token_id
    if family in (ROBERTA, MPNET):
        backend.post_processor = processors.RobertaProcessing(
            (names["sep_token"], ids["sep_token"]),
            (names["cls_token"], ids["cls_token"]),
            settings.options.get("trim_offsets", True),
            settings.options.get("add_prefix_space") or False,
        )
        return
    for name in used:
        single, pair = single.replace(f"{name}:", f"{names[name]}:"), pair.replace(f"{name}:", f"{names[name]}:")
    special = list({names[name]: (names[name], ids[name]) for name in used}.values())
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
