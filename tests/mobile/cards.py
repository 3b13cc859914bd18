"""The code of model cards for the libraries for apps, of bundles for every task; the tests of each language read it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from kerasformer import bundle
from kerasformer.export.card import in_apps
from tests.code_blocks import blocks_of
from tests.mobile.vectors import FOLDER

CASES = {
    "text-classification": ("classes", None),
    "text-classification in TFLite": ("classes-tflite", None),
    "zero-shot-classification": ("topics", None),
    "text-ranking": ("ranking", None),
    "token-classification": ("entities", None),
    "zero-shot-token-classification": ("named-entities", None),
    "question-answering": ("answers", None),
    "fill-mask": ("gaps", None),
    "feature-extraction": ("vectors", None),
    "sentence-similarity": ("embeddings", None),
    "sentence-similarity without a runtime": ("static", None),
    "text-generation": ("story", None),
    "text-generation in TFLite": ("story-tflite", None),
    "conversation": ("chat", None),
    "text2text-generation": ("text-to-text", None),
    "summarization": ("text-to-text", "summarization"),
    "translation": ("text-to-text", "translation"),
    "translation into a language": ("languages-first", None),
    "translation with a prefix": ("prefixes", "translation"),
}
"""Folders of the vectors by what their code shows, and the task that the bundle is shown for, if it is another one."""


def folder_of(case: str) -> Path:
    """Returns the folder of a case's bundle."""
    return FOLDER / "tasks" / CASES[case][0]


def section(case: str) -> str:
    """Returns the section of the card."""
    folder, (_, task) = folder_of(case), CASES[case]
    manifest = bundle.read(folder)
    shown = manifest if task is None else replace(manifest, info=replace(manifest.info, task=task))
    return in_apps.section(shown, folder)


def codes(language: str) -> dict[str, str]:
    """Returns the code of each case that has code in a language."""
    found = {case: blocks_of(section(case), language) for case in CASES}
    return {case: code for case, (code,) in ((case, each) for case, each in found.items() if each)}


def shipped(bundle_folder: Path, destination: Path) -> Path:
    """Copies exactly the files that the card of a bundle tells an app to ship, with the sizes that it states."""
    card = (bundle_folder / "README.md").read_text(encoding="utf-8").split("## What to ship")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.*)` \| ([\d,]+) \|$", card, re.MULTILINE)
    for name, size in rows:
        path = destination / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle_folder / name, path)
        assert path.stat().st_size == int(size.replace(",", "")), name
    return destination
