"""Writing of a bundle's model card, and of the programs and pages to which it links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.card import in_javascript, in_python, native
from kerasformer.export.card import token_section as tokens
from kerasformer.export.card.about import (
    adapters,
    fidelity,
    gpu,
    languages,
    measured,
    recipe,
    settings,
    shipped,
    tensors,
    title,
)
from kerasformer.export.card.credits import NONE, Credits
from kerasformer.export.card.program import FOLDER, ProgramFile, kind, limit
from kerasformer.export.targets import Target
from kerasformer.tokenization import has_tokenizer

TENSORS, TOKENS = "tensors.md", "tokens.md"
"""Names of the pages about inputs and outputs, and about tests of a tokenizer."""


def write_card(
    folder: Path, manifest: Manifest, target: Target, credits: Credits = NONE, added: Sequence[Path] = ()
) -> None:
    """Writes `README.md` and the folder `programs` into a bundle, with the checkpoint's own card and licence.

    The card tells what an app ships and how to run it; everything longer is a file beside it.

    Args:
        folder: Folder of the bundle, with all other files.
        manifest: Manifest of the bundle.
        target: Target of the bundle, which contributes a section.
        credits: Card and licence of the checkpoint.
        added: Files that the target added or changed.
    """
    # Without `tokenizer.json`, only programs that take token ids.
    portable = (folder / "tokenizer.json").exists() or not has_tokenizer(folder)
    programs = _programs(manifest, target, folder, portable)
    pages = {TENSORS: tensors(manifest), TOKENS: tokens.section(manifest, target, folder) if portable else ""}
    parts = [title(manifest, credits), shipped(manifest, target.shipped(manifest, folder, added), folder)]
    parts += [target.card(manifest, folder), in_python.with_this_package(manifest)]
    parts += [_table(manifest, programs, bool(pages[TOKENS])), "" if portable else tokens.WITHOUT_FILE]
    parts += [adapters(manifest), languages(manifest), settings(manifest)]
    parts += [recipe(manifest), fidelity(manifest), measured(manifest), gpu(manifest), _SEE]
    text = credits.front_matter(manifest.info.task) + "\n".join(part for part in parts if part)
    files = {name: page for name, page in pages.items() if page}
    for program in programs:
        files |= {program.name: program.source, **program.headers}
    (folder / FOLDER).mkdir(exist_ok=True)
    for path, content in {"README.md": text, **{f"{FOLDER}/{name}": file for name, file in files.items()}}.items():
        (folder / path).write_text(content, encoding="utf-8", errors="replace")
    credits.write(folder)


def _programs(manifest: Manifest, target: Target, folder: Path, portable: bool) -> list[ProgramFile]:
    """Returns the programs beside the card; none for a bundle with adapters in TFLite or with caches of int8."""
    # The programs pass no adapters, which a TFLite file requires, and caches of float32.
    if manifest.cache_dtype not in (None, "float32") or (adapters(manifest) and manifest.format == "tflite"):
        return []
    if not portable:
        return native.programs(manifest)
    texts = [in_javascript.program(manifest, target, folder), in_python.program(manifest)]
    return native.programs(manifest) + [program for program in texts if program is not None]


def _table(manifest: Manifest, programs: Sequence[ProgramFile], has_page: bool) -> str:
    """Returns the section that lists the programs."""
    if not programs:
        return ""
    rows = "\n".join(program.row for program in programs)
    what = "prompt" if kind(manifest) == "decoder" else "text"
    bound = "" if limit(manifest) is None else f"A {what} that is empty or too long is an error in each of them.\n"
    languages = [program.title.partition(" (")[0] for program in programs if program.name in _ON_TOKENS]
    test = f"\n[{FOLDER}/{TOKENS}]({FOLDER}/{TOKENS}) tests such a library." if has_page else ""
    return f"""## Programs

| language | program | needs |
|---|---|---|
{rows}

{bound}{_on_tokens(languages)}{test}
"""


_ON_TOKENS = ("TextModels.kt", "TextModels.swift", "main.cpp")
"""Programs that take token ids."""


def _on_tokens(languages: Sequence[str]) -> str:
    if not languages:
        return ""
    listed = f"{', '.join(languages[:-1])} and {languages[-1]} take" if languages[1:] else f"{languages[0]} takes"
    return f"{listed} token ids, for which an app uses a library that reads Hugging Face's `tokenizer.json`."


_SEE = f"[{FOLDER}/{TENSORS}]({FOLDER}/{TENSORS}) lists the inputs and outputs of all signatures.\n"
