"""What the sections of a card need to know about a bundle."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import Manifest, Role
from kerasformer.files.reading import JsonObject
from kerasformer.files.sources import read_json


def kind(manifest: Manifest) -> str | None:
    """Returns `"encoder"`, `"decoder"` or `"encoder-decoder"` by the roles of signatures, or `None`."""
    if manifest.of_role(Role.DECODE):
        return "encoder-decoder" if manifest.of_role(Role.ENCODE) else "decoder"
    return "encoder" if manifest.of_role(Role.FORWARD) else None


def limit(manifest: Manifest) -> int | None:
    """Returns the number of tokens that a text may have: that of a prompt and its answer together, for a decoder."""
    if manifest.of_role(Role.DECODE) and not manifest.info.is_encoder_decoder:
        return manifest.capacity
    return manifest.encoder_capacity or max(lengths_of(manifest), default=manifest.info.max_length)


def text_prefix(manifest: Manifest) -> str:
    """Returns what a program puts before a text: the prefix for the task, or the first one of the model's.

    A T5 that was exported for text2text-generation has a prefix for each task that it was trained for.
    """
    info = manifest.info
    return info.prefix or (info.sample_prefix if info.is_encoder_decoder else "")


def prefixed(manifest: Manifest, text: str) -> tuple[str, str | None]:
    """Returns a text with the prefix that a pipeline does not put before it, and the one to choose of several."""
    prefix, known = text_prefix(manifest), manifest.info.prefixes()
    if len(known) > 1:
        return text, prefix
    return (text if known else f"{prefix}{text}"), None


def tokenizer_settings(folder: Path) -> JsonObject:
    """Returns the content of `tokenizer_config.json`; empty for a bundle without a tokenizer."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def lacks_language(manifest: Manifest) -> bool:
    """Returns whether a multilingual model generates texts, and its settings do not select their language."""
    info = manifest.info
    generates = info.is_encoder_decoder and manifest.capacity is not None
    return generates and info.languages is not None and info.output_language is None


def lengths_of(manifest: Manifest) -> list[int]:
    """Returns the lengths, in tokens, for which an encoder was compiled; empty for ONNX, which supports any length."""
    signatures = manifest.of_role(Role.FORWARD) or manifest.of_role(Role.ENCODE)
    return sorted(signature.tokens for signature in signatures.values() if signature.tokens is not None)
