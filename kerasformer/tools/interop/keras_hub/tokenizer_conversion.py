"""Conversion of tokenizers from and to KerasHub: the same texts result in the same ids.

One difference remains: the name of a special token in a text, such as `[SEP]`, is that token in our tokenizers, and
ordinary text in KerasHub's WordPiece and SentencePiece.
"""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import TokenizerError
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import PLAIN_INPUTS, SEGMENT_INPUTS, Tokenizer, spiece

if TYPE_CHECKING:
    import keras

logger = logging.getLogger("kerasformer")

# Copied from keras_hub.src.tokenizers.word_piece_tokenizer.
_SPACES = r"[ \t\n\r\f]|\p{Cc}|\p{Cf}"
_MARKS = r"[!-/]|[:-@]|[\[-`]|[{-~]|\p{P}"
_CJK = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
# A character that no vocabulary contains, so that it becomes the unknown token.
_UNKNOWN = "\ue000"


def from_keras_hub(
    tokenizer: keras.layers.Layer, preprocessor: keras.layers.Layer, segments: bool, max_length: int | None
) -> Tokenizer:
    """Converts a tokenizer of KerasHub.

    Args:
        tokenizer: WordPiece, byte-level BPE or SentencePiece tokenizer of KerasHub.
        preprocessor: Preprocessor that adds special tokens, or `None`.
        segments: Whether the model has the input `token_type_ids`.
        max_length: Maximum length of the model in tokens.

    Raises:
        TokenizerError: the kind of tokenizer or one of its options is not supported.
    """
    builders = {"WordPieceTokenizer": _wordpiece, "BytePairTokenizer": _byte_pairs, "SentencePieceTokenizer": _pieces}
    name = next((base.__name__ for base in type(tokenizer).__mro__ if base.__name__ in builders), None)
    if name is None:
        raise TokenizerError(
            f"A tokenizer of KerasHub derived from {', '.join(builders)} was expected. "
            f"Received: {type(tokenizer).__name__}"
        )
    backend = builders[name](tokenizer)
    special = _special_tokens(tokenizer)
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in dict.fromkeys(special.values())])
    _set_template(backend, tokenizer, preprocessor, special)
    return Tokenizer(
        backend,
        special_tokens=special,
        model_inputs=SEGMENT_INPUTS if segments else PLAIN_INPUTS,
        model_max_length=max_length,
    )


def _special_tokens(tokenizer: keras.layers.Layer) -> dict[str, str]:
    """Returns the special tokens by our names."""
    names = {"pad_token": "pad_token", "cls_token": "cls_token", "sep_token": "sep_token", "mask_token": "mask_token"}
    names["unk_token"] = "oov_token"
    if not hasattr(tokenizer, "cls_token"):
        names["eos_token"] = "end_token"
        if not hasattr(tokenizer, "pad_token"):
            names["bos_token"] = "start_token"
    tokens = {ours: getattr(tokenizer, theirs, None) for ours, theirs in names.items()}
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def _set_template(
    backend: tokenizers.Tokenizer,
    tokenizer: keras.layers.Layer,
    preprocessor: keras.layers.Layer,
    special: dict[str, str],
) -> None:
    """Sets the template by which the preprocessor of an encoder, encoder-decoder or decoder adds special tokens."""
    if "cls_token" in special:
        before, after = special["cls_token"], special["sep_token"]
        single, pair = f"{before} $A {after}", f"{before} $A {after} $B:1 {after}:1"
    elif "pad_token" in special:
        after = special["eos_token"]
        single, pair = f"$A {after}", f"$A {after} $B {after}"
    elif getattr(preprocessor, "add_start_token", False):
        before = special["bos_token"]
        single, pair = f"{before} $A", f"{before} $A {before}:1 $B:1"
    else:
        return
    used = [token for token in dict.fromkeys(special.values()) if token in single]
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, backend.token_to_id(token)) for token in used]
    )


def _wordpiece(tokenizer: keras.layers.Layer) -> tokenizers.Tokenizer:
    """Converts WordPiece; texts are split by KerasHub's regular expressions, which differ slightly from BERT's."""
    if not tokenizer.split:
        raise TokenizerError("A WordPiece tokenizer that splits texts was expected. Received: split=False")
    vocabulary = {token: index for index, token in enumerate(tokenizer.get_vocabulary())}
    model = models.WordPiece(
        vocabulary,
        unk_token=tokenizer.oov_token,
        continuing_subword_prefix=tokenizer.suffix_indicator,
        max_input_chars_per_word=100,
    )
    backend = tokenizers.Tokenizer(model)
    steps: list[normalizers.Normalizer] = []
    if tokenizer.strip_accents:
        steps += [normalizers.NFD(), normalizers.Replace(Regex(r"\p{Mn}"), "")]
    if tokenizer.lowercase:
        steps += _folding()
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    marks = f"{_MARKS}|{_CJK}" if tokenizer.split_on_cjk else _MARKS
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_SPACES), "removed"), pre_tokenizers.Split(Regex(marks), "isolated")]
    )
    backend.decoder = decoders.WordPiece(prefix=tokenizer.suffix_indicator)
    return backend


def _folding() -> list[normalizers.Normalizer]:
    """Returns normalizers that apply NFKC_Casefold to the text, which KerasHub applies to each word.

    A character whose normalized form contains a space, such as the no-break space, makes its word unknown in KerasHub;
    here it is replaced by a character that no vocabulary contains. Punctuation that is normalized to several characters
    (`…`) becomes several pieces of one word in KerasHub, and several words here.
    """
    characters = "".join(f"\\x{{{ord(c):X}}}" for c in _with_space())
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(f"[{characters}]"), _UNKNOWN), normalizers.NFKC()]
    steps += [normalizers.Replace(Regex(f"[{sources}]"), folded) for folded, sources in _foldings().items()]
    return [*steps, normalizers.Lowercase(), normalizers.NFKC()]


@cache
def _with_space() -> str:
    """Returns all characters, except the space, whose NFKC form contains a space."""
    characters = map(chr, _scalar_values())
    return "".join(c for c in characters if c != " " and " " in unicodedata.normalize("NFKC", c))


@cache
def _foldings() -> dict[str, str]:
    """Returns the characters whose case folding differs from their lower case (`ß`), by their folded form."""
    sources: dict[str, str] = {}
    for c in map(chr, _scalar_values()):
        if c.casefold() != c.lower() and unicodedata.normalize("NFKC", c) == c:
            sources[c.casefold()] = sources.get(c.casefold(), "") + c
    return sources


def _scalar_values() -> Iterable[int]:
    """Returns the code points that may have a case or a compatibility form, without surrogates."""
    return (*range(0xD800), *range(0xE000, 0x20000))


def _byte_pairs(tokenizer: keras.layers.Layer) -> tokenizers.Tokenizer:
    """Converts byte-level BPE, with the splitting of GPT-2, which KerasHub implements in TensorFlow."""
    merges = [tuple(merge.split(" ")) for merge in tokenizer.merges if not merge.startswith("#version:")]
    backend = tokenizers.Tokenizer(models.BPE(dict(tokenizer.vocabulary), merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=tokenizer.add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def _pieces(tokenizer: keras.layers.Layer) -> tokenizers.Tokenizer:
    """Converts SentencePiece Unigram, from the model file inside KerasHub's tokenizer."""
    try:
        model = spiece.parse(tokenizer.proto)
    except ValueError as error:
        raise TokenizerError(f"the tokenizer's SentencePiece model cannot be read: {error}") from error
    if model.algorithm != spiece.UNIGRAM or model.byte_fallback or not model.default_spaces:
        raise TokenizerError(
            "A SentencePiece model with the algorithm Unigram, without byte fallback and with the default treatment of "
            "spaces (dummy prefix, extra spaces removed, escaped) was expected. Received: another one"
        )
    best = max((piece.score for piece in model.pieces if piece.kind == spiece.NORMAL), default=0.0)
    pieces = [(piece.text, _score(piece, best)) for piece in model.pieces]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=model.unk_id, byte_fallback=False))
    if model.charsmap:
        backend.normalizer = normalizers.Precompiled(model.charsmap)
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(" +"), "removed"), spaces])
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    control = [piece.text for piece in model.pieces if piece.kind == spiece.CONTROL]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return backend


def _score(piece: spiece.Piece, best: float) -> float:
    """Returns the score of a piece in SentencePiece's search; `best` is the highest score of an ordinary piece."""
    if piece.kind == spiece.USER_DEFINED:
        return len(piece.text.encode()) * best - 0.1
    return -1e6 if piece.kind == spiece.UNUSED else piece.score


def to_keras_hub(tokenizer: Tokenizer, hub_class: type[keras.Model]) -> keras.layers.Layer:
    """Converts a tokenizer to KerasHub.

    Args:
        tokenizer: Tokenizer of this package.
        hub_class: Class of KerasHub, such as `keras_hub.tokenizers.GPT2Tokenizer`.

    Raises:
        TokenizerError: KerasHub does not support the kind of tokenizer, its vocabulary or one of its steps.
    """
    content = json.loads(tokenizer.backend.to_str())
    builders = {"WordPiece": _to_wordpiece, "BPE": _to_byte_pairs, "Unigram": _to_pieces}
    name = content["model"]["type"]
    if name not in builders:
        raise TokenizerError(f"KerasHub has tokenizers of the kinds {', '.join(builders)}. Received: {name}")
    try:
        converted = builders[name](content, hub_class)
    except (TypeError, ValueError) as error:  # raised by KerasHub's checks of a vocabulary
        raise TokenizerError(f"{hub_class.__name__} of KerasHub cannot have this vocabulary: {error}") from error
    if converted.pad_token_id == getattr(converted, "end_token_id", None):
        # KerasHub takes padding for the end of a text, and would generate nothing. Padding is masked, so that any other
        # token will do.
        converted.pad_token_id = 0 if converted.pad_token_id else converted.vocabulary_size() - 1
        logger.warning(
            "KerasHub pads with %d, the end token of this model, and would generate nothing. The converted tokenizer "
            "pads with %d instead. A preset that KerasHub saves does not record that: set tokenizer.pad_token_id again "
            "after loading it",
            converted.end_token_id,
            converted.pad_token_id,
        )
    return converted


def preprocessor_arguments(tokenizer: Tokenizer, hub_class: type[keras.Model]) -> Arguments:
    """Returns the arguments of KerasHub's preprocessor: start token and sequence length."""
    arguments: Arguments = {}
    parameters = inspect.signature(hub_class.__init__).parameters
    if "add_start_token" in parameters:
        arguments["add_start_token"] = tokenizer.num_special_tokens() > 0
    if "sequence_length" in parameters and tokenizer.model_max_length is not None:
        arguments["sequence_length"] = tokenizer.model_max_length
    return arguments


def _vocabulary(content: JsonObject) -> dict[str, int]:
    """Returns ids by token, including added tokens, in the order of ids.

    Raises:
        TokenizerError: the ids have gaps.
    """
    vocabulary = dict(content["model"]["vocab"]) | {token["content"]: token["id"] for token in content["added_tokens"]}
    ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
    if list(ordered.values()) != list(range(len(ordered))):
        raise TokenizerError("A vocabulary with the ids 0, 1, 2 … was expected. Received: one with gaps")
    return ordered


def _to_wordpiece(content: JsonObject, hub_class: Callable[..., keras.layers.Layer]) -> keras.layers.Layer:
    """Converts WordPiece, with the options of KerasHub that result in the same normalization and splitting."""
    normalizer, model = content["normalizer"] or {}, content["model"]
    build = partial(
        hub_class,
        list(_vocabulary(content)),
        oov_token=model["unk_token"],
        suffix_indicator=model["continuing_subword_prefix"],
    )
    if normalizer.get("type") == "BertNormalizer":
        lowercase, strip = normalizer["lowercase"], normalizer["strip_accents"]
        strip = lowercase if strip is None else strip
        return build(lowercase=lowercase, strip_accents=strip, split_on_cjk=normalizer["handle_chinese_chars"])
    for lowercase, strip, cjk in itertools.product((False, True), repeat=3):
        candidate = build(lowercase=lowercase, strip_accents=strip, split_on_cjk=cjk)
        converted = json.loads(_wordpiece(candidate).to_str())
        if all(converted[part] == content[part] for part in ("normalizer", "pre_tokenizer")):
            return candidate
    raise TokenizerError("KerasHub's WordPiece does not support the normalizer or the splitting of this tokenizer")


def _to_byte_pairs(content: JsonObject, hub_class: Callable[..., keras.layers.Layer]) -> keras.layers.Layer:
    splitter = content["pre_tokenizer"] or {}
    if splitter.get("type") != "ByteLevel" or content["normalizer"] is not None:
        raise TokenizerError("KerasHub's byte-level BPE supports only the splitting of GPT-2. Received: another one")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    return hub_class(_vocabulary(content), merges, add_prefix_space=splitter["add_prefix_space"])


def _to_pieces(content: JsonObject, hub_class: Callable[..., keras.layers.Layer]) -> keras.layers.Layer:
    return hub_class(spiece.serialize(spiece.from_tokenizer(content)))
