"""The tokenizer of CTRL: byte-pair encoding of words, and the control codes with which every prompt starts.

Paper: Keskar et al. 2019, "CTRL: A Conditional Transformer Language Model for Controllable Generation",
arXiv:1909.05858. Reference: `transformers.models.ctrl`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import models

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import InputError, TokenizerError, tokenizer_errors
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization import backends
from kerasformer.tokenization.families import Family
from kerasformer.tokenization.pieces import ContinuedPieceTokenizer
from kerasformer.tokenization.settings import Settings

CONTROL_CODES = frozenset(
    """Alone Ask Ass Atheism Books Christianity Computing Confession Confessions Conspiracy Diet Event Explain Extract
    Feminism Finance Fitness Funny Gaming Horror Human India Joke Joker Learned Legal Links Movies Narcissus Netflix
    News Norman Notion Opinion Politics Pregnancy Questions Relationship Relationships Retail Reviews Running Saving
    Scary Science Support Technologies Teenage Thoughts Tip Translation Weight Wikipedia Writing multilingual""".split()
)
"""First tokens of the texts that CTRL was trained with, which select domain and style."""

VOCABULARY, MERGES = "vocab.json", "merges.txt"


class CtrlTokenizer(ContinuedPieceTokenizer):
    """Tokenizer of CTRL, which checks that prompts start with a control code."""

    def check_prompt(self, ids: Sequence[int]) -> None:
        """Checks that the first token of a prompt is a control code.

        Raises:
            InputError: it is another token; the message names the most similar codes, or all of them.
        """
        known = sorted(CONTROL_CODES & self.get_vocab().keys())
        if ids and self.backend.id_to_token(ids[0]) in known:
            return
        word = (self.decode(ids).split() or [""])[0]
        alike = {code.lower(): code for code in known}
        close = [alike[near] for near in difflib.get_close_matches(word.lower(), alike, 3)]
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(
            "A prompt of CTRL must start with a control code, such as 'Wikipedia' or 'Links', which selects domain and "
            f"style. Expected: one of {', '.join(known)}. Received: {word!r}.{hint}"
        )

    def _vocabulary_files(self) -> dict[str, str]:
        vocabulary = json.loads(self.backend.to_str())["model"]["vocab"]
        rules = "".join(f"{' '.join(pair)}\n" for pair in self._merges)
        return {VOCABULARY: json.dumps(vocabulary, indent=2, ensure_ascii=False), MERGES: f"#version: 0.2\n{rules}"}

    def _class_settings(self) -> JsonObject:
        return {"tokenizer_class": "CTRLTokenizer"}


def lookup(folder: Path, build: backends.BuildSettings) -> tokenizers.Tokenizer:
    """Builds the tokenizer that looks up pieces in `vocab.json`.

    Raises:
        TokenizerError: the file is damaged.
    """
    path, unknown = backends.inside(folder, VOCABULARY), build.special_tokens["unk_token"]
    vocabulary = backends.read_vocab(path)
    if unknown not in vocabulary:
        raise TokenizerError(f"{path} lacks the token of unknown pieces. Expected: {unknown!r}")
    with tokenizer_errors(f"{path} is not a vocabulary"):
        backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    backend.add_special_tokens([unknown])
    return backend


def arguments(folder: Path, family: Family, settings: Settings) -> Arguments:
    """Returns the arguments of `CtrlTokenizer` in addition to those of `Tokenizer`.

    Raises:
        TokenizerError: `merges.txt` cannot be read.
    """
    path = backends.inside(folder, MERGES)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[1:-1]  # after the version
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    return {"merges": [tuple(line.split()) for line in lines]}
