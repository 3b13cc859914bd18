"""The tokenizer of XLM: words by the rules of Moses, then byte-pair encoding with marked ends of words.

The rules of Moses depend on the language and cannot be written as a `tokenizer.json`; the library `sacremoses`
implements them.

Reference: `transformers.models.xlm.tokenization_xlm`; Koehn et al. 2007, "Moses: Open Source Toolkit for Statistical
Machine Translation".
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import TokenizerError, tokenizer_errors
from kerasformer.extras import require
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import backends
from kerasformer.tokenization.families import PLAIN_INPUTS, Family
from kerasformer.tokenization.pieces import PieceTokenizer, Span
from kerasformer.tokenization.settings import Settings

_DEFAULT = "en"
_OTHER_RULES = {"ja": "KyTea", "th": "PyThaiNLP", "zh": "Jieba"}
"""Languages whose words other programs than Moses find."""
_PUNCTUATION = str.maketrans(
    dict(zip("，、∶：？！；）（１２３４５６７８９０～’━〈〉【】％", ",,::?!;)(1234567890~'-<>[]%", strict=True))
    | dict.fromkeys("”“《》」「", '"')
    | {"…": "..."}
)
_FULL_STOPS = re.compile(r"[。．]\s*")
_ROMANIAN = str.maketrans("ŞşȘșŢţȚțĂăÂâÎî", "SsSsTtTtAaAaIi")
_QUOTES, _DASHES = "\"'“”„«»‘’‚´`", "-–—"
_ALIKE = str.maketrans(dict.fromkeys(_QUOTES, '"') | dict.fromkeys(_DASHES, "-"))
"""Characters that Moses replaces by each other, for the search of a word in its text."""


class MosesTokenizer(PieceTokenizer):
    """Tokenizer with the rules of Moses for one language, and byte-pair encoding (XLM).

    Args:
        backend: Tokenizer of the `tokenizers` library that looks up pieces and adds special tokens.
        lowercase: Whether letters become lowercase and lose their accents.
        languages: Ids of the languages of the model by name, such as `{"en": 0, "fr": 1}`; may be empty.
        language_input: Whether the model has the input `langs`, the language of each token.
        kwargs: Arguments of `PieceTokenizer`.

    Raises:
        MissingExtraError: `sacremoses` is not installed.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        lowercase: bool = True,
        languages: Mapping[str, int] | None = None,
        language_input: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(backend, **kwargs)
        require("sacremoses", "xlm")
        self._lowercase, self._languages, self._language_input = lowercase, dict(languages or {}), language_input
        self._default = _DEFAULT if _DEFAULT in self._languages or not languages else next(iter(self._languages))
        self.language = None

    @property
    def languages(self) -> dict[str, int]:
        """Ids of the languages of the model by name."""
        return dict(self._languages)

    @property
    def language(self) -> str | None:
        """Language of the texts, which selects the rules and the values of the input `langs`; can be set.

        By default, it is `None`: the rules are those of English, or of the first language if the model lacks English,
        and there is no input `langs`, so that the model adds no language embedding.

        Raises:
            TokenizerError: a language that the model lacks, or whose words other programs than Moses find.
        """
        return self._language

    @language.setter
    def language(self, name: str | None) -> None:
        if name is None:
            self._language, self.constants = None, {}
            return
        known = sorted(set(self._languages) - set(_OTHER_RULES))
        if name in _OTHER_RULES or (known and name not in known):
            program = f", whose words need {_OTHER_RULES[name]}" if name in _OTHER_RULES else ""
            expected = f"one of {', '.join(known)}" if known else "a language of Moses"
            raise TokenizerError(f"unsupported language. Expected {expected}. Received: {name!r}{program}")
        self._language = name
        self.constants = {"langs": self._languages[name]} if self._language_input else {}

    def words(self, text: str) -> Iterator[tuple[str, Sequence[Span]]]:
        """See `PieceTokenizer.words`."""
        words = moses_words(text, self._language or self._default, self._lowercase)
        return zip(words, aligned(words, text, self._lowercase), strict=True)

    def _vocabulary_files(self) -> dict[str, str]:
        vocabulary = json.loads(self.backend.to_str())["model"]["vocab"]
        merges = "".join(" ".join(pair) + "\n" for pair in self._merges)
        return {"vocab.json": json.dumps(vocabulary, indent=2, ensure_ascii=False), "merges.txt": merges.rstrip("\n")}

    def _class_settings(self) -> JsonObject:
        settings: Arguments = {
            "tokenizer_class": "XLMTokenizer",
            "do_lowercase_and_remove_accent": self._lowercase,
            "model_input_names": [*PLAIN_INPUTS, *(["langs"] if self._language_input else [])],
        }
        if self._languages:
            settings["lang2id"] = self._languages
            settings["id2lang"] = {str(index): name for name, index in self._languages.items()}
        return settings


def lookup(folder: Path, build: backends.BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer that looks up pieces in `vocab.json` and adds special tokens.

    Raises:
        TokenizerError: the file is damaged, or lacks a special token.
    """
    path = backends.inside(folder, "vocab.json")
    vocabulary = backends.read_vocab(path)
    with tokenizer_errors(f"{path} is not a vocabulary"):
        backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=build.special_tokens["unk_token"]))
    backend.decoder = decoders.BPEDecoder(suffix=backends.END)
    named = [*build.special_tokens.values(), *(f"<special{index}>" for index in range(10))]
    backend.add_special_tokens([token for token in dict.fromkeys(named) if token in vocabulary])
    backends.surround(backend, build, path)
    return backend


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `MosesTokenizer` in addition to those of `Tokenizer`.

    Raises:
        TokenizerError: `merges.txt` or the list of languages is damaged.
    """
    path = backends.inside(folder, "merges.txt")
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    options, config = settings.options, settings.config
    languages = options.get("lang2id") or config.get("lang2id") or {}
    if not isinstance(languages, dict) or not all(type(index) is int for index in languages.values()):
        raise TokenizerError(f"lang2id in {folder} must map languages to ids. Received: {languages!r}")
    names = options.get("model_input_names")
    embeddings = config.get("use_lang_emb", True) and config.get("n_langs", 1) != 1
    return {
        "merges": [tuple(line.split()[:2]) for line in lines],
        "lowercase": options.get("do_lowercase_and_remove_accent", True),
        "languages": languages,
        "language_input": bool(languages) and bool(embeddings if names is None else "langs" in names),
    }


def moses_words(text: str, language: str, lowercase: bool) -> list[str]:
    """Returns the words of a text as Moses finds them, without control characters."""
    normalizer, splitter = _rules(language)
    text = normalizer(_FULL_STOPS.sub(". ", text.translate(_PUNCTUATION)))
    text = "".join(character for character in text if not unicodedata.category(character).startswith("C"))
    if language == "ro":
        text = text.translate(_ROMANIAN)
    words = splitter(text)
    if lowercase:
        words = without_accents(" ".join(words)).split(" ")
    return [word for word in words if word]


@cache
def _rules(language: str) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    """Returns functions that normalize punctuation and split words."""
    sacremoses = require("sacremoses", "xlm")
    splitter = sacremoses.MosesTokenizer(lang=language)
    return (
        sacremoses.MosesPunctNormalizer(lang=language).normalize,
        lambda text: splitter.tokenize(text, return_str=False, escape=False),
    )


def without_accents(text: str) -> str:
    """Returns the lowercase text without combining marks."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn").lower()


def aligned(words: Sequence[str], text: str, lowercase: bool) -> Iterator[list[Span]]:
    """Yields the span in the text of each character of each word.

    Words contain the characters of the text in order, except that Moses replaces, adds and removes punctuation. A
    character that is not found before the next letter or digit has the empty span after the previous one.
    """
    form = without_accents if lowercase else str
    sources = [
        (part, index)
        for index, character in enumerate(text)
        for part in form(_FULL_STOPS.sub(".", character.translate(_PUNCTUATION)).translate(_ROMANIAN)).translate(_ALIKE)
    ]
    position = end = 0
    for word in words:
        spans = []
        for wanted in word.translate(_ROMANIAN).translate(_ALIKE):
            found = position
            while found < len(sources) and sources[found][0] != wanted and not sources[found][0].isalnum():
                found += 1
            if found < len(sources) and (sources[found][0] == wanted or wanted.isalnum()):
                start = sources[found][1]
                position, end = found + 1, start + 1
                spans.append((start, end))
            else:
                spans.append((end, end))
        yield spans
