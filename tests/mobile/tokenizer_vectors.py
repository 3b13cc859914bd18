"""Writes `tokenizers/` of the vectors: ids, offsets and texts of each tokenizer."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from kerasformer.errors import InputError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.truncation import TruncationWarning
from tests.mobile import texts, vocabularies
from tests.mobile.json_text import dump

_OPENED = {"tokenizer.json", "tokenizer_config.json", "target_tokenizer.json"}
ALL = {**vocabularies.FULL, **vocabularies.OTHERS, **vocabularies.SPLITS}


REFUSED = {
    "ctrl": "CTRLTokenizer",
    "bertweet": "BertweetTokenizer",
    "xlm": "XLMTokenizer",
    "m2m-100": "M2M100Tokenizer",
}
"""Folders without `tokenizer.json`, because it cannot describe the rules of these classes."""


def runs(values: Sequence[int]) -> list[int]:
    """Returns `[value, count, …]`."""
    return [number for value, same in groupby(values) for number in (value, len(list(same)))]


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Returns the texts of a stream, for each id and at its end."""
    stream = tokenizer.writer.streamer()
    return [*(stream.put([index]) for index in ids), stream.end()]


def row(tokenizer: Tokenizer, text: str, pair: str | None = None, special: bool = True, streamed: bool = False) -> Any:
    """Returns the row of a text or pair."""
    given: dict[str, Any] = {"text": text}
    given |= {} if pair is None else {"pair": pair}
    given |= {} if special else {"special": False}
    try:
        encoding = tokenizer(text, pair, add_special_tokens=special)
    except InputError as error:
        return {**given, "error": {"name": type(error).__name__, "message": str(error)}}
    ids = encoding.input_ids[0].tolist()
    kinds = {
        "types": encoding.token_type_ids,
        "mask": encoding.special_tokens_mask,
        "words": encoding.word_ids,
        "sequences": encoding.sequence_ids,
    }
    result = {**given, "ids": ids, "offsets": encoding.offsets[0].ravel().tolist()}
    result |= {
        name: runs(array[0].tolist()) for name, array in kinds.items() if name not in ("types", "mask") or array.any()
    }
    if pair is None:
        del result["sequences"]
    return {**result, **_decoded(tokenizer, ids, text, streamed)}


def _decoded(tokenizer: Tokenizer, ids: Sequence[int], text: str | None, streamed: bool) -> dict[str, Any]:
    writer = tokenizer.writer
    results = {"decoded": writer.decode(ids), "plain": writer.decode(ids, skip_special_tokens=True)}
    shown: dict[str, Any] = {name: value for name, value in results.items() if value != text}
    return {**shown, "pieces": pieces(tokenizer, ids)} if streamed else shown


def truncated(tokenizer: Tokenizer, text: str, pair: str | None, side: Any, overflow: bool, **settings: Any) -> Any:
    """Returns the row of a text that is cut, or split into chunks."""
    other = copy.copy(tokenizer)
    other.truncation_side = side
    with warnings.catch_warnings(action="ignore", category=TruncationWarning):
        chunks = other(
            text, pair, truncation=settings["strategy"], max_length=settings["limit"], stride=settings["stride"],
            return_overflowing_tokens=overflow,
        )  # fmt: skip
    ids = [each[mask > 0].tolist() for each, mask in zip(chunks.input_ids, chunks.attention_mask, strict=True)]
    given = {"text": text} if pair is None else {"text": text, "pair": pair}
    return {**given, "truncation": {**settings, "side": side, "overflow": overflow}, "chunks": ids}


def rows(tokenizer: Tokenizer, name: str) -> Iterator[Any]:
    """Yields the rows of a tokenizer."""
    if name in vocabularies.SPLITS:
        others = {"split-characters": texts.SPACED, "split-never": texts.SPACED, "split-special": texts.SPACED[1:3]}
        for text in others.get(name, texts.SPLIT):
            yield row(tokenizer, text)
        return
    short = texts.SHORT[::3] if name in vocabularies.VARIANTS else texts.SHORT
    others = (*texts.SCRIPTS.values(), *texts.LONG) if name in vocabularies.FULL else texts.LONG[:1]
    newer = () if name in vocabularies.VARIANTS else texts.NEW
    for text in (*short, *others, *newer):
        yield row(tokenizer, text, streamed=text in texts.STREAMED)
    yield row(tokenizer, "one sentence, 2 words", special=False, streamed=True)
    added = list(dict.fromkeys(token.content for token in tokenizer.backend.get_added_tokens_decoder().values()))
    names = "".join(f"one {token} two{token}three  {token}  " for token in (*added[:4], *added[-2:]))
    yield row(tokenizer, names, streamed=True)
    yield row(tokenizer, names.upper())
    for text, pair in texts.PAIRS:
        yield row(tokenizer, text, pair)
    yield from _truncated_rows(tokenizer)
    random = np.random.default_rng(7)
    for count in (3, 12, 40):
        ids = random.integers(0, tokenizer.writer.vocab_size + 2, count).tolist()
        yield {"decode": ids, **_decoded(tokenizer, ids, None, True)}


def _truncated_rows(tokenizer: Tokenizer) -> Iterator[Any]:
    text, pair = texts.CORPUS[2], texts.CORPUS[4]
    room = len(tokenizer.encode(pair)) + 12
    yield truncated(tokenizer, text, None, "right", False, limit=12, strategy="longest_first", stride=0)
    yield truncated(tokenizer, text, None, "left", True, limit=20, strategy="only_first", stride=5)
    yield truncated(tokenizer, text, pair, "right", True, limit=room, strategy="only_first", stride=3)
    yield truncated(tokenizer, text, pair, "right", False, limit=21, strategy="longest_first", stride=0)
    yield truncated(tokenizer, text, pair, "left", False, limit=30, strategy="longest_first", stride=0)
    for limit in (20, 21):  # one of them leaves an odd number of tokens to two texts of the same length
        yield truncated(tokenizer, text, text, "right", False, limit=limit, strategy="longest_first", stride=0)
    room = len(tokenizer.encode(text)) + 12
    yield truncated(tokenizer, text, pair, "left", True, limit=room, strategy="only_second", stride=3)


def compact(source: Path, target: Path) -> None:
    """Writes a JSON file without spaces and line breaks."""
    target.write_text(dump(json.loads(source.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the files of a tokenizer that libraries in other languages read, in compact form."""
    tokenizer.save(folder)
    for path in folder.iterdir():
        if path.name in _OPENED:
            compact(path, path)
        else:
            path.unlink()


def write(folder: Path) -> None:
    """Writes all tokenizers."""
    for name, make in ALL.items():
        tokenizer = make()
        write_tokenizer(tokenizer, folder / name)
        lines = [dump(each) for each in rows(tokenizer, name)]
        (folder / name / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, kind in REFUSED.items():
        (folder / name).mkdir()
        for file, content in (
            ("tokenizer_config.json", {"tokenizer_class": kind, "unk_token": "<unk>"}),
            (
                "error.json",
                {"name": "TokenizerError", "contains": f"the rules of {kind} cannot be written as tokenizer.json"},
            ),
        ):
            (folder / name / file).write_text(dump(content) + "\n", encoding="utf-8")
