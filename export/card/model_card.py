"""Writing of a bundle's model card, and of the page about its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.card import in_apps, in_python, token_section
from kerasformer.export.card.about import (
    adapters,
    fidelity,
    gpu,
    languages,
    measured,
    recipe,
    shipped,
    tensors,
    title,
)
from kerasformer.export.card.credits import NONE, Credits
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
    parts = [title(manifest, credits), shipped(manifest, target.shipped(manifest, folder, added), folder)]
    parts += [target.card(manifest, folder), in_python.section(manifest, folder), in_apps.section(manifest, folder)]
    parts += [token_section.section(target, folder), adapters(manifest), languages(manifest)]
    parts += [recipe(manifest), fidelity(manifest), measured(manifest), gpu(manifest), _SEE]
    text = credits.front_matter(manifest.info.task) + "\n".join(part for part in parts if part)
    for name, content in {"README.md": text, TENSORS: tensors(manifest)}.items():
        (folder / name).write_text(content, encoding="utf-8", errors="replace")
    credits.write(folder)


_SEE = f"[{TENSORS}]({TENSORS}) lists the inputs and outputs of all signatures.\n"
