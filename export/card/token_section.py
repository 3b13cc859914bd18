"""What a card says about the tokens of a bundle: test texts, or how to tokenize where `tokenizer.json` is absent."""

from __future__ import annotations

from pathlib import Path

from kerasformer.export.targets import Target
from kerasformer.tokenization import has_tokenizer
from kerasformer.tokenization.hard_texts import FILE

_TEXTS = f"""`{FILE}` has texts that other implementations of `tokenizer.json` may read differently, with their correct
ids: a test of any other library.
"""
_WITHOUT_FILE = f"""## Tokens

The rules of this tokenizer cannot be written as `tokenizer.json`, which the libraries for apps read. Tokenize texts
with kerasformer, or with `AutoTokenizer.from_pretrained(folder)` of transformers. `{FILE}` contains test texts with
their correct ids, including special tokens. If the model has the input `langs`, it is the id of the language of each
token, from `lang2id` in `config.json`, or -1 for no language.
"""


def section(target: Target, folder: Path) -> str:
    """Returns the part of the card; empty if an app handles no tokens."""
    if has_tokenizer(folder) and not (folder / "tokenizer.json").exists():
        return _WITHOUT_FILE
    return "" if target.tokenizes or not (folder / FILE).is_file() else _TEXTS
