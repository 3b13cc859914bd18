"""Vocabularies cut to the tokens that the texts of an application need.

The tokens of sample texts are counted and kept, with all tokens without which these texts would be split differently,
and with single characters for the words that the samples lack. The rules of the tokenizer do not change, so that a text
whose tokens are all kept is split as before.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Unpack

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers

from kerasformer.basics.arguments import STRING, TEXT, check, optional, sequence
from kerasformer.basics.command_options import PruningOptions
from kerasformer.basics.options import checked
from kerasformer.errors import InputError, TokenizerError
from kerasformer.files.reading import JsonMapping, JsonObject, read_json
from kerasformer.tokenization import MultilingualTokenizer, Tokenizer, m2m_100, spiece

MAIN_SCRIPT = 0.01
"""Share of the letters of the texts from which all characters of a script are kept."""
_CONFIG, _JSON = "tokenizer_config.json", "tokenizer.json"
_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}
"""Tokens of bytes, which stand for characters without a token in some vocabularies."""
_COMMON = frozenset(pre_tokenizers.ByteLevel.alphabet())
"""Characters that stand for bytes in other vocabularies; they include those of ASCII and Latin-1."""


@dataclass(frozen=True)
class PruningReport:
    """What pruning a vocabulary changed.

    Attributes:
        tokens_before: Number of tokens of the vocabulary.
        tokens_after: Number of tokens that were kept.
        texts: Number of sample texts.
        unchanged_texts: Number of sample texts that have the same tokens as before.
        text_tokens_before: Number of tokens of the sample texts.
        text_tokens_after: The same with the pruned vocabulary, in which rare tokens may be split.
        unknown_before: Number of unknown tokens in the sample texts.
        unknown_after: The same with the pruned vocabulary; not more than before.
        dropped_characters: Number of characters that the vocabulary had, and has no longer.
    """

    tokens_before: int
    tokens_after: int
    texts: int
    unchanged_texts: int
    text_tokens_before: int
    text_tokens_after: int
    unknown_before: int
    unknown_after: int
    dropped_characters: int


@dataclass(frozen=True)
class PrunedTokenizer:
    """A tokenizer with a part of its vocabulary.

    Attributes:
        tokenizer: The tokenizer; the ids of its tokens are consecutive.
        ids: The id that each token had before, `(N,)`, in ascending order.
        report: What changed.
    """

    tokenizer: Tokenizer
    ids: np.ndarray
    report: PruningReport


def prune_tokenizer(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    needed: Collection[int] = (),
    **options: Unpack[PruningOptions],
) -> PrunedTokenizer:
    """Removes the tokens that texts do not need; see `kerasformer.tools.training.vocabulary_pruning.prune_vocabulary`.

    Args:
        tokenizer: The tokenizer, which does not change.
        texts: Sample texts.
        needed: Ids of tokens that must be kept.
        options: See `PruningOptions`.

    Raises:
        InputError: there are no texts, an argument is invalid, or the tokenizer is of an unsupported kind.
    """
    texts = check("texts", texts, sequence(TEXT, least=1))
    limits = checked(PruningOptions, options, "pruning")
    vocabulary = _Vocabulary.read(tokenizer)
    known = _known_languages(tokenizer, limits.get("languages"))
    before = _encoded(tokenizer, texts)
    counts = Counter(index for each in before for index in each.ids)
    frequent = _frequent(counts, limits["min_count"], limits["coverage"])
    chosen = frequent | (set(needed) & vocabulary.tokens.keys())
    while True:
        kept = vocabulary.closed(chosen, counts)
        pruned, ids = _rebuilt(tokenizer, vocabulary, kept, counts, known)
        after = _encoded(pruned, texts)
        unknown = [_unknown(tokenizer, before), _unknown(pruned, after)]
        worse = (encoding for encoding, a, b in zip(before, *unknown, strict=True) if b > a)
        missing = {index for encoding in worse for index in encoding.ids} - kept
        if not missing:
            break
        chosen |= missing  # parts of a rare token are unknown, so that its texts keep all of their tokens
    _check_ids(tokenizer, pruned, ids)
    report = PruningReport(
        tokens_before=tokenizer.vocab_size,
        tokens_after=len(ids),
        texts=len(texts),
        unchanged_texts=sum(a.tokens == b.tokens for a, b in zip(before, after, strict=True)),
        text_tokens_before=sum(map(len, before)),
        text_tokens_after=sum(map(len, after)),
        unknown_before=sum(unknown[0]),
        unknown_after=sum(unknown[1]),
        dropped_characters=len(pruned.dropped_characters),
    )
    _check_texts(report, whole=counts.keys() <= kept)
    return PrunedTokenizer(pruned, ids, report)


class _Form(NamedTuple):
    """How a character is written in a vocabulary: with the mark of a continued word, or of the end of a word."""

    marks: tuple[bool, bool]
    character: str


@dataclass(frozen=True)
class _Vocabulary:
    """The vocabulary of a tokenizer of the Rust library.

    Attributes:
        kind: Algorithm: `"BPE"`, `"Unigram"`, `"WordPiece"` or `"WordLevel"`.
        model: The model in the format of `tokenizer.json`.
        tokens: Tokens by id.
        added: Ids of the added tokens, which include special ones.
    """

    kind: str
    model: JsonMapping
    tokens: Mapping[int, str]
    added: frozenset[int]

    @classmethod
    def read(cls, tokenizer: Tokenizer) -> _Vocabulary:
        """Reads the vocabulary of a tokenizer.

        Raises:
            InputError: its vocabulary cannot be pruned.
        """
        model = json.loads(tokenizer.backend.to_str())["model"]
        kind = type(tokenizer.backend.model).__name__
        is_own = not tokenizer.portable and not isinstance(tokenizer, m2m_100.M2m100Tokenizer)
        if is_own or tokenizer.target is not None or (kind == "BPE" and model.get("continuing_subword_prefix")):
            raise InputError(
                "The vocabulary of this tokenizer cannot be pruned. Expected: a tokenizer with one tokenizer.json, or "
                f"that of M2M-100. Received: {type(tokenizer).__name__} ({kind})"
                + (", which has a vocabulary for each side" if tokenizer.target is not None else "")
            )
        tokens = {index: token for token, index in tokenizer.backend.get_vocab(with_added_tokens=True).items()}
        return cls(kind, model, tokens, frozenset(tokenizer.backend.get_added_tokens_decoder()))

    @property
    def ids(self) -> dict[str, int]:
        """Ids by token."""
        return {token: index for index, token in self.tokens.items()}

    def closed(self, chosen: Collection[int], counts: Mapping[int, int]) -> set[int]:
        """Returns the ids of the chosen tokens, and of all others that must be kept with them.

        Args:
            chosen: Ids of tokens.
            counts: Number of times that each id occurs in the texts.
        """
        kept = {*chosen, *self.added}
        kept |= {index for index, token in self.tokens.items() if token in _BYTES}
        kept |= self._alphabet(counts)
        if self.kind == "Unigram":
            # The score of unknown characters is the lowest one minus 10.
            scores = [score for _, score in self.model["vocab"]]
            kept |= {self.model["unk_id"], int(np.argmin(scores))} - {None}
        elif self.model.get("unk_token") in self.ids:
            kept.add(self.ids[self.model["unk_token"]])
        if self.kind == "BPE":
            ids, ranks = self.ids, {pair: rank for rank, pair in enumerate(_merges(self.model))}
            for index in tuple(kept - self.added):
                kept |= {ids[part] for part in self._parts(self.tokens[index], ranks) if part in ids}
        return kept

    def dropped_characters(self, kept: Collection[int], known: Collection[int]) -> str:
        """Returns the characters of the vocabulary that are no tokens any more.

        Args:
            kept: Ids of the tokens that are kept.
            known: Ids of the vocabulary that a tokenizer returns.
        """
        if bool(self.model.get("byte_fallback")) and _BYTES <= set(self.tokens.values()):
            return ""
        before = {form for index in known if index not in self.added for form in self._forms(self.tokens[index])}
        return "".join(sorted({character for _, character in before - self._single(kept)}))

    def _single(self, ids: Iterable[int]) -> set[_Form]:
        """Returns the characters that are tokens, of these ids."""
        forms = (list(self._forms(self.tokens[index])) for index in ids)
        return {form[0] for form in forms if len(form) == 1}

    def _alphabet(self, counts: Mapping[int, int]) -> set[int]:
        """Returns the ids of single characters for other texts.

        These are all characters of the texts and of their scripts, digits, punctuation marks, symbols, and those of
        ASCII and Latin-1.
        """
        letters = Counter[str]()
        for index, count in counts.items():
            for form in self._forms(self.tokens[index]):
                letters[form.character] += count
        scripts = Counter[str]()
        for character, count in letters.items():
            if script := _script(character):
                scripts[script] += count
        main = {script for script, count in scripts.items() if count >= MAIN_SCRIPT * scripts.total()}

        def is_kept(character: str) -> bool:
            script = _script(character)
            return script is None or script in main or character in letters or character in _COMMON

        forms = ((index, list(self._forms(token))) for index, token in self.tokens.items())
        return {index for index, form in forms if len(form) == 1 and is_kept(form[0].character)}

    def _forms(self, token: str) -> Iterator[_Form]:
        """Yields the characters of a token; after the first, they are those of a continued word."""
        prefix, suffix = (self.model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
        continued = bool(prefix) and token.startswith(prefix) and token != prefix
        ends = bool(suffix) and token.endswith(suffix) and token != suffix
        text = token.removeprefix(prefix) if continued else token
        text = text.removesuffix(suffix) if ends else text
        for position, character in enumerate(text):
            is_last = position == len(text) - 1
            yield _Form((bool(prefix) and (continued or position > 0), ends and is_last), character)

    def _parts(self, token: str, ranks: Mapping[tuple[str, ...], int]) -> Iterator[str]:
        """Yields the characters of a token, and all parts that byte-pair encoding merges them to."""
        suffix = self.model.get("end_of_word_suffix") or ""
        parts = list(token.removesuffix(suffix)) if suffix else list(token)
        if parts and suffix and token.endswith(suffix):
            parts[-1] += suffix
        yield from parts
        while len(parts) > 1:
            first = min(range(len(parts) - 1), key=lambda at: ranks.get((parts[at], parts[at + 1]), len(ranks)))
            if (parts[first], parts[first + 1]) not in ranks:
                return
            parts[first : first + 2] = ["".join(parts[first : first + 2])]
            yield parts[first]


def _script(character: str) -> str | None:
    """Returns the script of a letter or mark, the first word of its name in Unicode; `None` for other characters."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    return unicodedata.name(character, "").partition(" ")[0]


def _merges(model: JsonMapping) -> list[tuple[str, ...]]:
    """Returns the merges of byte-pair encoding, which older files have as texts."""
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tokenizers.Encoding]:
    """Encodes texts without special tokens; those of M2M-100 have the pieces that its dictionary lacks."""
    return tokenizer.backend.encode_batch(list(texts), add_special_tokens=False)


def _unknown(tokenizer: Tokenizer, encodings: Iterable[tokenizers.Encoding]) -> list[int]:
    """Returns the number of unknown tokens in each text."""
    known = set(tokenizer.get_vocab().values()) - {tokenizer.unk_token_id}
    return [sum(index not in known for index in encoding.ids) for encoding in encodings]


def _frequent(counts: Mapping[int, int], min_count: int, coverage: float) -> set[int]:
    """Returns the ids that occur often enough; of ids that are equally frequent, the lower ones come first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    missing = coverage * sum(counts.values())
    kept = set()
    for index, count in ordered:
        if missing <= 0 or count < min_count:
            break
        kept.add(index)
        missing -= count
    return kept


def _known_languages(tokenizer: Tokenizer, languages: Sequence[str] | None) -> list[str]:
    """Returns the languages to keep, in the order of their ids; empty for all.

    Raises:
        InputError: an unknown language, or languages of a tokenizer that has none.
    """
    codes = check("languages", languages, optional(sequence(STRING, least=1)))
    if codes is None:
        return []
    if not isinstance(tokenizer, MultilingualTokenizer):
        raise InputError(
            "The texts of this model are not marked with a language, so that its vocabulary is pruned by the texts "
            f"alone. Expected: no languages. Received: languages={list(codes)!r}"
        )
    known = {tokenizer.known_language("languages", code) for code in codes}
    return [code for code in tokenizer.languages if code in known]


def _rebuilt(
    tokenizer: Tokenizer,
    vocabulary: _Vocabulary,
    kept: Collection[int],
    counted: Collection[int],
    languages: Sequence[str],
) -> tuple[Tokenizer, np.ndarray]:
    """Returns the tokenizer that is loaded from the files of a tokenizer without some tokens, and its former ids.

    Args:
        tokenizer: The tokenizer.
        vocabulary: Its vocabulary.
        kept: Ids of the tokens to keep, including the pieces that the dictionary of M2M-100 lacks.
        counted: Ids of the tokens of the texts.
        languages: Codes of the languages to keep; empty for all.
    """
    known = set(tokenizer.get_vocab().values())
    ids = sorted(known.intersection(kept))
    new = {old: index for index, old in enumerate(ids)}
    dropped = vocabulary.dropped_characters(kept, known)
    with TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(folder)
        if tokenizer.portable:
            _edit(folder / _JSON, lambda content: _pruned_json(content, vocabulary, new))
        else:
            # Pieces that only longer ones consist of have no id.
            pieces = {vocabulary.tokens[index]: index in known or index in counted for index in kept}
            _edit(folder / m2m_100.VOCABULARY, lambda content: {t: new[i] for t, i in content.items() if i in new})
            path = folder / m2m_100.PIECES
            path.write_bytes(_pruned_pieces(path.read_bytes(), pieces))
        _edit(folder / _CONFIG, lambda content: _pruned_settings(content, dropped, languages))
        return Tokenizer.load(folder), np.array(ids, np.int32)


def _edit(path: Path, change: Callable[[JsonObject], JsonObject]) -> None:
    content = change(read_json(path))
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def _pruned_settings(content: JsonObject, dropped: str, languages: Sequence[str]) -> JsonObject:
    """Returns the content of `tokenizer_config.json` with dropped characters, and with the languages that are kept."""
    if dropped:
        content["dropped_characters"] = "".join(sorted({*dropped, *content.get("dropped_characters", "")}))
    if languages:
        content["kept_languages"] = list(languages)
        content |= {name: None for name in ("src_lang", "tgt_lang") if content.get(name) not in languages}
    return content


def _pruned_json(content: JsonObject, vocabulary: _Vocabulary, new: Mapping[int, int]) -> JsonObject:
    """Returns the content of `tokenizer.json` with new ids by old ids."""
    model = content["model"]
    if vocabulary.kind == "Unigram":
        model["vocab"] = [piece for index, piece in enumerate(model["vocab"]) if index in new]
        model["unk_id"] = new.get(model["unk_id"])
    else:
        model["vocab"] = {token: new[index] for token, index in model["vocab"].items() if index in new}
    if vocabulary.kind == "BPE":
        known = model["vocab"]
        merges = ((*pair, "".join(pair)) for pair in _merges(model))
        model["merges"] = [[first, second] for first, second, both in merges if known.keys() >= {first, second, both}]
    added = [{**token, "id": new[token["id"]]} for token in content["added_tokens"]]
    return {**content, "added_tokens": added, "post_processor": _renumbered(content["post_processor"], new)}


def _renumbered(rule: Any, new: Mapping[int, int]) -> Any:
    """Returns a post-processor with new ids: of a template (`ids`), or of BERT's or RoBERTa's (`sep` and `cls`)."""
    if isinstance(rule, list):
        return [_renumbered(entry, new) for entry in rule]
    if not isinstance(rule, dict):
        return rule
    changed = {name: _renumbered(value, new) for name, value in rule.items()}
    if isinstance(rule.get("ids"), list):
        changed["ids"] = [new[index] for index in rule["ids"]]
    for name in ("sep", "cls"):
        if isinstance(rule.get(name), list):
            token, index = rule[name]
            changed[name] = [token, new[index]]
    return changed


def _pruned_pieces(file: bytes, kept: Mapping[str, bool]) -> bytes:
    """Returns a file of SentencePiece with some of its normal pieces, of which those with `False` become unused."""
    model = spiece.parse(file)
    unknown = model.pieces[model.unk_id]
    pieces = [piece for piece in model.pieces if piece.kind != spiece.NORMAL or piece.text in kept]
    for piece in pieces:
        if piece.kind == spiece.NORMAL and not kept[piece.text]:
            piece.kind = spiece.UNUSED
    return spiece.serialize(replace(model, pieces=pieces, unk_id=pieces.index(unknown)))


def _check_ids(tokenizer: Tokenizer, pruned: Tokenizer, ids: np.ndarray) -> None:
    """Checks that the tokens have the expected ids.

    Raises:
        TokenizerError: they have others, because a file does not describe the tokenizer completely.
    """
    expected = {tokenizer.id_to_token(int(old)): new for new, old in enumerate(ids)}
    wrong = [token for token, index in pruned.get_vocab().items() if expected.get(token) != index]
    if wrong or len(expected) != pruned.vocab_size:
        raise TokenizerError(
            f"the pruned tokenizer has other tokens than expected. Expected: {len(expected)} tokens. Received: "
            f"{pruned.vocab_size}, of which {len(wrong)} have other ids, such as {', '.join(map(repr, wrong[:3]))}"
        )


def _check_texts(report: PruningReport, whole: bool) -> None:
    """Checks that the sample texts have no more unknown tokens than before, and the same tokens if all were kept.

    Raises:
        TokenizerError: otherwise; the rules of the tokenizer are then not those of its kind.
    """
    if report.unknown_after > report.unknown_before or (whole and report.unchanged_texts < report.texts):
        raise TokenizerError(
            "the pruned tokenizer splits texts differently, although it has all of their tokens. Expected: "
            f"{report.texts} unchanged texts with {report.unknown_before} unknown tokens. Received: "
            f"{report.unchanged_texts} with {report.unknown_after}. Its vocabulary cannot be pruned"
        )
