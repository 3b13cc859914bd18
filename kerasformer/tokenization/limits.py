"""What a tokenizer file may do to a text: each step may lengthen it a little, all of them together not without end.

A chain of replacing rules can double a text at every step, so that a file of a few kilobytes takes all memory at its
first use. Nothing in the format forbids that; so the steps are tried one after another on short probes, before the
tokenizer sees a text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any

import tokenizers
from tokenizers import models

from kerasformer.errors import TokenizerError

_MOST_STEPS = 256
_MOST_GROWTH = 64  # the longest of Unicode's own replacements has 18 characters for one
_PROBE_LENGTH = 256
# One character of each length in UTF-8, half-width and composed ones, and those that normal forms lengthen most.
_PROBES = ("aA1 é ½ 語 ﷺ 😀 ΐ ｶﾞ", "\t\n . ``''")
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def check_rules(backend: tokenizers.Tokenizer) -> None:
    """Refuses a tokenizer whose rules would make a text grow without bound, or lose it.

    Args:
        backend: Not yet used on any text.

    Raises:
        TokenizerError: more steps than any tokenizer has, text that grows more than 64 times, or a template that does
            not hold each text once.
    """
    rules = _rules(backend)
    steps = {part: list(_steps(rules.get(part), plural)) for part, plural in _PARTS.items()}
    for part, rows in steps.items():
        if len(rows) > _MOST_STEPS:
            raise TokenizerError(f"{part} must have at most {_MOST_STEPS} steps. Received: {len(rows)}")
        for row in rows:
            _check_replacement(row, part)
    _check_growth([_normalizing(row) for row in steps["normalizer"]], steps["normalizer"], "normalizer")
    _check_growth([_splitting(row) for row in steps["pre_tokenizer"]], (), "pre_tokenizer")
    _check_growth([_decoding(row) for row in steps["decoder"]], steps["decoder"], "decoder")
    for template in _steps(rules.get("post_processor"), "processors"):
        _check_template(template)


def _rules(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """All but the vocabulary, as `tokenizer.json` spells it."""
    bare = tokenizers.Tokenizer(models.BPE())
    for part in (*_PARTS, "post_processor"):
        if getattr(backend, part) is not None:
            setattr(bare, part, getattr(backend, part))
    rules: dict[str, Any] = json.loads(bare.to_str())
    return rules


def _steps(rule: Any, plural: str) -> Iterator[dict[str, Any]]:
    """A rule, or the rules in turn that it consists of."""
    if rule is None:
        return
    if rule.get("type") == "Sequence":
        for part in rule.get(plural, []):
            yield from _steps(part, plural)
    else:
        yield rule


def _check_replacement(rule: dict[str, Any], part: str) -> None:
    """Bounds what a single rule writes at each place where it fits."""
    content = rule.get("content")
    longest = len(content) if isinstance(content, str) else 0
    if "precompiled_charsmap" in rule:
        longest = _longest_replacement(rule["precompiled_charsmap"], part)
    pattern = rule.get("pattern")
    replaced = len(pattern.get("String", "")) if isinstance(pattern, dict) else 0
    most = _MOST_GROWTH * max(replaced, 1)
    if longest > most:
        raise TokenizerError(
            f"{part}: a rule may replace text by at most {_MOST_GROWTH} times its length. Expected at most {most} "
            f"characters. Received: {longest}"
        )


def _longest_replacement(charsmap: Any, part: str) -> int:
    """Characters of the longest replacement in SentencePiece's table: a trie with its size, then strings."""
    try:
        table = base64.b64decode(charsmap or "", validate=True)
    except (TypeError, binascii.Error) as error:
        raise TokenizerError(f"{part}: precompiled_charsmap must be base64: {error}") from error
    strings = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    return max(len(string.decode("utf-8", "replace")) for string in strings)


def _check_growth(steps: list[Callable[[str], str]], rules: Any, part: str) -> None:
    """Tries the steps in turn on short texts: usual ones, and what the rules themselves look for and write."""
    own = [_probe(rule) for rule in rules]
    for probe in dict.fromkeys([*_PROBES, *filter(None, own)]):
        text = probe
        for step in steps:
            text = step(text)
            if len(text) > _MOST_GROWTH * len(probe):
                raise TokenizerError(
                    f"{part}: its steps together may make a text at most {_MOST_GROWTH} times as long. "
                    f"Received: {len(text)} characters from {len(probe)}, {probe[:20]!r}"
                )


def _probe(rule: dict[str, Any]) -> str:
    pattern = rule.get("pattern")
    sought = "".join(value for value in pattern.values() if isinstance(value, str)) if isinstance(pattern, dict) else ""
    return f"{sought[:_PROBE_LENGTH]}{str(rule.get('content') or '')[:_PROBE_LENGTH]}"


def _alone(part: str, rule: dict[str, Any]) -> Any:
    """One step of a tokenizer as an object: the library reads whole tokenizers alone."""
    content = json.loads(tokenizers.Tokenizer(models.BPE()).to_str()) | {part: rule}
    return getattr(tokenizers.Tokenizer.from_str(json.dumps(content)), part)


def _normalizing(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _alone("normalizer", rule)
    return lambda text: str(step.normalize_str(text))


def _splitting(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _alone("pre_tokenizer", rule)
    return lambda text: "".join(piece for piece, _ in step.pre_tokenize_str(text))


def _decoding(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _alone("decoder", rule)
    return lambda text: str(step.decode([text]))


def _check_template(rule: dict[str, Any]) -> None:
    """Each text must stand once in what is put around it: the library loses or repeats it otherwise, in silence."""
    if rule.get("type") != "TemplateProcessing":
        return
    for name, wanted in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = rule.get(name, [])
        found = [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece]
        if sorted(found) != wanted:
            raise TokenizerError(
                f"the template {name!r} must hold each text once, {' and '.join(wanted)}. "
                f"Received: {' and '.join(found) or 'none'}"
            )
