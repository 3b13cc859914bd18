"""Writing of a bundle's model card, and of the page about its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kerasformer.bundle import MANIFEST, Manifest, encoded
from kerasformer.export.card import in_apps, in_python, token_section
from kerasformer.export.card.credits import NONE, Credits
from kerasformer.export.card.page import adapters, fidelity, gpu, languages, recipe, shipped, tensors, title
from kerasformer.export.targets import Target

TENSORS = "tensors.md"
"""Name of the page about inputs and outputs."""


def write_card(
    folder: Path, manifest: Manifest, target: Target, credits: Credits = NONE, added: Sequence[Path] = ()
) -> None:
    """Writes `README.md` and `tensors.md` into a bundle, with the checkpoint's own card and licence.

    The card tells what an app ships and how to run it, in a few lines of each language.

    Args:
        folder: Folder of the bundle, with all other files.
        manifest: Manifest of the bundle.
        target: Target of the bundle, which contributes a section.
        credits: Card and licence of the checkpoint.
        added: Files that the target added or changed.
    """
    credits.write(folder)
    apps = in_apps.section(manifest, folder)
    files, sizes = target.shipped(manifest, folder, added), {}
    if apps and not target.name:  # the libraries for apps are the runtime of a bundle without a target
        sizes[MANIFEST] = _size_of_manifest(folder, manifest)
        files += in_apps.tokenizer_files(folder)
    sizes |= {name: (folder / name).stat().st_size for name in (*files, *credits.files)}
    parts = [title(manifest, credits), shipped(sizes, folder)]
    parts += [target.card(manifest, folder), in_python.section(manifest, folder), apps]
    parts += [token_section.section(target, folder), adapters(manifest), languages(manifest)]
    parts += [recipe(manifest), fidelity(manifest), gpu(manifest), _SEE]
    text = credits.front_matter(manifest.info.task) + "\n".join(part for part in parts if part)
    for name, content in {"README.md": text, TENSORS: tensors(manifest)}.items():
        (folder / name).write_text(content, encoding="utf-8", errors="replace")


def _size_of_manifest(folder: Path, manifest: Manifest) -> int:
    """Returns the size in bytes of the manifest that will be written, whose checksums all have the same length."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    files = dict.fromkeys(names | {"README.md", TENSORS}, "0" * 64)
    return len(encoded(replace(manifest, files=files)).encode())


_SEE = f"[{TENSORS}]({TENSORS}) lists the inputs and outputs of all signatures.\n"
