"""Protection against malicious tokenizer files, whose rules could make a text grow without bound.

A chain of replacement rules can double a text at each step, so that a file of a few kilobytes exhausts the memory at
its first use. The format does not forbid this. The steps are therefore tried one after another on short probes before
the tokenizer is used.
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

_MAX_STEPS = 256
_MAX_GROWTH = 64  # the longest replacement of one character in Unicode has 18 characters
_PROBE_LENGTH = 256
# Characters of each length in UTF-8, half-width and composed characters, and those that normalization lengthens most.
_PROBES = ("aA1 é ½ 語 ﷺ 😀 ΐ ｶﾞ", "\t\n . ``''")
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def check_rules(backend: tokenizers.Tokenizer) -> None:
    """Checks that the rules of a tokenizer neither make texts grow without bound nor lose them.

    Args:
        backend: Tokenizer that has not been used on any text.

    Raises:
        TokenizerError: too many steps, a text that becomes more than 64 times as long, or a template that does not
            contain each text exactly once.
    """
    rules = _rules(backend)
    steps = {part: list(_steps(rules.get(part), plural)) for part, plural in _PARTS.items()}
    for part, rows in steps.items():
        if len(rows) > _MAX_STEPS:
            raise TokenizerError(f"{part} must have at most {_MAX_STEPS} steps. Received: {len(rows)}")
        for row in rows:
            _check_replacement(row, part)
    _check_growth([_normalizing(row) for row in steps["normalizer"]], steps["normalizer"], "normalizer")
    _check_growth([_splitting(row) for row in steps["pre_tokenizer"]], (), "pre_tokenizer")
    _check_growth([_decoding(row) for row in steps["decoder"]], steps["decoder"], "decoder")
    for template in _steps(rules.get("post_processor"), "processors"):
        _check_template(template)


def _rules(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """Returns the rules in the format of `tokenizer.json`, without the vocabulary."""
    bare = tokenizers.Tokenizer(models.BPE())
    for part in (*_PARTS, "post_processor"):
        if getattr(backend, part) is not None:
            setattr(bare, part, getattr(backend, part))
    rules: dict[str, object] = json.loads(bare.to_str())
    return rules


def _steps(rule: Any, plural: str) -> Iterator[dict[str, Any]]:
    """Yields a rule or, for a sequence, the rules that it contains."""
    if rule is None:
        return
    if rule.get("type") == "Sequence":
        for part in rule.get(plural, []):
            yield from _steps(part, plural)
    else:
        yield rule


def _check_replacement(rule: dict[str, Any], part: str) -> None:
    """Limits the length of the replacement of a rule."""
    content = rule.get("content")
    longest = len(content) if isinstance(content, str) else 0
    if "precompiled_charsmap" in rule:
        longest = _longest_replacement(rule["precompiled_charsmap"], part)
    pattern = rule.get("pattern")
    replaced = len(pattern.get("String", "")) if isinstance(pattern, dict) else 0
    limit = _MAX_GROWTH * max(replaced, 1)
    if longest > limit:
        raise TokenizerError(
            f"{part}: a replacement may be at most {_MAX_GROWTH} times as long as the replaced text. Expected at most "
            f"{limit} characters. Received: {longest}"
        )


def _longest_replacement(charsmap: Any, part: str) -> int:
    """Returns the length of the longest replacement in SentencePiece's table: a trie with its size, then strings."""
    try:
        table = base64.b64decode(charsmap or "", validate=True)
    except (TypeError, binascii.Error) as error:
        raise TokenizerError(f"{part}: precompiled_charsmap must be base64: {error}") from error
    strings = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    return max(len(string.decode("utf-8", "replace")) for string in strings)


def _check_growth(steps: list[Callable[[str], str]], rules: Any, part: str) -> None:
    """Applies the steps to short texts: fixed ones, and the patterns and replacements of the rules."""
    rule_probes = [_probe(rule) for rule in rules]
    for probe in dict.fromkeys([*_PROBES, *filter(None, rule_probes)]):
        text = probe
        for step in steps:
            text = step(text)
            if len(text) > _MAX_GROWTH * len(probe):
                raise TokenizerError(
                    f"{part}: all steps together may make a text at most {_MAX_GROWTH} times as long. "
                    f"Received: {len(text)} characters from {len(probe)}, {probe[:20]!r}"
                )


def _probe(rule: dict[str, Any]) -> str:
    pattern = rule.get("pattern")
    strings = [value for value in pattern.values() if isinstance(value, str)] if isinstance(pattern, dict) else []
    return f"{''.join(strings)[:_PROBE_LENGTH]}{str(rule.get('content') or '')[:_PROBE_LENGTH]}"


def _step_object(part: str, rule: dict[str, Any]) -> Any:
    """Creates the object of one step; the library can only load complete tokenizers."""
    content = json.loads(tokenizers.Tokenizer(models.BPE()).to_str()) | {part: rule}
    return getattr(tokenizers.Tokenizer.from_str(json.dumps(content)), part)


def _normalizing(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _step_object("normalizer", rule)
    return lambda text: str(step.normalize_str(text))


def _splitting(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _step_object("pre_tokenizer", rule)
    return lambda text: "".join(piece for piece, _ in step.pre_tokenize_str(text))


def _decoding(rule: dict[str, Any]) -> Callable[[str], str]:
    step = _step_object("decoder", rule)
    return lambda text: str(step.decode([text]))


def _check_template(rule: dict[str, Any]) -> None:
    """Checks that a template contains each text once; otherwise the library would silently lose or repeat it."""
    if rule.get("type") != "TemplateProcessing":
        return
    for name, expected in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = rule.get(name, [])
        received = [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece]
        if sorted(received) != expected:
            raise TokenizerError(
                f"the template {name!r} must contain each text exactly once: {' and '.join(expected)}. "
                f"Received: {' and '.join(received) or 'none'}"
            )
