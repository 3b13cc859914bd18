"""Programs of a card, and what all of them need to know about a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.bundle.interface import DECODE, DECODER_MODEL, MODEL, forward_name
from kerasformer.decoding.setting_names import GenerationSettings
from kerasformer.files.reading import JsonObject

FOLDER = "programs"
"""Folder of a bundle with the programs and pages to which its card links."""


@dataclass(frozen=True)
class ProgramFile:
    """A program beside the card.

    Attributes:
        name: Name of the file in `FOLDER`.
        title: Language and platform.
        needs: What to install for it, in Markdown.
        source: Content of the file.
        headers: Contents of files that it includes, by name.
    """

    name: str
    title: str
    needs: str
    source: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def row(self) -> str:
        """Row of the card's table of programs."""
        return f"| {self.title} | [{FOLDER}/{self.name}]({FOLDER}/{self.name}) | {self.needs} |"


def source(name: str) -> str:
    """Returns the text of a program that reads the manifest when it runs, and is the same for every bundle."""
    return (Path(__file__).parent / "programs" / name).read_text(encoding="utf-8")


def kind(manifest: Manifest) -> str | None:
    """Returns `"encoder"`, `"decoder"` or `"encoder-decoder"` by the signatures, or `None` for any other model."""
    if manifest.of_role(Role.DECODE):
        return "encoder-decoder" if manifest.of_role(Role.ENCODE) else "decoder"
    # The programs call encoders by the names of our exports, which differ from those of some targets.
    names = [forward_name(length) for length in lengths_of(manifest)]
    return "encoder" if MODEL in manifest.signatures or (names and names[0] in manifest.signatures) else None


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


def main_file(manifest: Manifest) -> str:
    """Returns the model file that computes the answers."""
    return step(manifest).file


def forbidden_tokens(settings: GenerationSettings) -> list[int]:
    """Returns the tokens that generation settings forbid, except those that only some sequences forbid."""
    words = settings.get("bad_words_ids") or ()
    return [*(settings.get("suppress_tokens") or ()), *(word[0] for word in words if len(word) == 1)]


_NEUTRAL_SETTINGS = frozenset(
    "bos_token_id decoder_start_token_id eos_token_id max_length max_matching_ngram_size max_new_tokens "
    "num_assistant_tokens pad_token_id prompt_lookup_num_tokens seed".split()
)
"""Generation settings that the programs apply, or that do not change which tokens are chosen."""


def lacks_language(manifest: Manifest) -> bool:
    """Returns whether a multilingual model generates texts, and its settings do not select their language."""
    info = manifest.info
    return info.is_encoder_decoder and info.languages is not None and info.output_language is None


def unapplied_settings(manifest: Manifest) -> JsonObject:
    """Returns the generation settings of the model that the programs do not apply."""
    settings, applied = manifest.info.generation, {*_NEUTRAL_SETTINGS, "suppress_tokens"}
    if manifest.info.is_encoder_decoder:
        applied.add("forced_bos_token_id")
    if len(forbidden_tokens({"bad_words_ids": settings.get("bad_words_ids")})) == len(
        settings.get("bad_words_ids") or ()
    ):
        applied.add("bad_words_ids")
    return {name: value for name, value in settings.items() if name not in applied}


def lengths_of(manifest: Manifest) -> list[int]:
    """Returns the lengths, in tokens, for which an encoder was compiled; empty for ONNX, which supports any length."""
    signatures = manifest.of_role(Role.FORWARD) or manifest.of_role(Role.ENCODE)
    return sorted(signature.tokens for signature in signatures.values() if signature.tokens is not None)


def step(manifest: Manifest) -> Signature:
    """Returns the signature that computes the answers: a decoder's plain step, or an encoder's shortest length."""
    if steps := manifest.of_role(Role.DECODE):
        return next(steps[name] for name in (DECODE, DECODER_MODEL, MODEL) if name in steps)
    return min(manifest.of_role(Role.FORWARD).values(), key=lambda signature: signature.tokens or 0)
