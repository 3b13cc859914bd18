"""Writing of a bundle's model card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.card import in_cpp, in_javascript, in_kotlin, in_python, in_swift
from kerasformer.export.card import token_section as tokens
from kerasformer.export.card.about import adapters, introduction, languages, settings, tensors
from kerasformer.export.card.credits import NONE, Credits
from kerasformer.export.targets import Target
from kerasformer.tokenization import has_tokenizer


def write_card(
    folder: Path, manifest: Manifest, target: Target, credits: Credits = NONE, added: Sequence[Path] = ()
) -> None:
    """Writes `README.md` into a bundle, with the checkpoint's own card and licence beside it.

    Args:
        folder: Folder of the bundle, with all other files.
        manifest: Manifest of the bundle.
        target: Target of the bundle, which contributes a section.
        credits: Card and licence of the checkpoint.
        added: Files that the target added or changed.
    """
    # Without `tokenizer.json`, only programs that take token ids.
    portable = (folder / "tokenizer.json").exists() or not has_tokenizer(folder)
    parts = [*introduction(folder, manifest, credits, added), in_python.with_this_package(manifest)]
    parts += [] if portable else [tokens.WITHOUT_FILE]
    section = adapters(manifest)
    parts += [section]
    parts += [languages(manifest), settings(manifest), target.card(manifest, folder), tensors(manifest)]
    # The programs pass no adapters, which a TFLite file requires, and caches of float32.
    if manifest.cache_dtype in (None, "float32") and not (section and manifest.format == "tflite"):
        parts += [in_python.runtime_alone(manifest)] if portable else []
        parts += [in_kotlin.section(manifest), in_swift.section(manifest)]
        parts += [in_javascript.section(manifest, target, folder)] if portable else []
        parts += [in_cpp.section(manifest)]
    parts += [tokens.section(manifest, target, folder)] if portable else []
    parts += [credits.section()]
    text = credits.front_matter(manifest.info.task) + "\n".join(part for part in parts if part)
    (folder / "README.md").write_text(text, encoding="utf-8", errors="replace")
    credits.write(folder)
