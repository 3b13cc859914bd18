"""The section about speed in the card of a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import fill

from kerasformer import bundle
from kerasformer.files.publishing import MANIFEST, link_or_copy, publish, staging
from kerasformer.tools.bench.report import markdown, note, tables
from kerasformer.tools.bench.run import BenchReport

_CARD, _HEADING = "README.md", "## Speed"


def write_speed(folder: Path, report: BenchReport) -> None:
    """Writes the figures of the engines that ran a bundle into its card, `README.md`, and which is the fastest.

    An earlier section of this kind is replaced. A program that opens the bundle meanwhile sees the old or the new one.

    Args:
        folder: Folder of the bundle.
        report: Report of `bench([folder])`, also with `engines=True`.

    Raises:
        BundleError: the folder is not a complete bundle, or not writable.
    """
    manifest = bundle.read(folder)
    text = _with_section((folder / _CARD).read_text(encoding="utf-8"), _section(report))
    with staging(folder) as new:
        for name in manifest.files.keys() - {_CARD, MANIFEST}:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(folder / name, new / name)
        (new / _CARD).write_text(text, encoding="utf-8")
        bundle.write(new, replace(manifest, files={**manifest.files, _CARD: bundle.sha256(new / _CARD)}))
        publish(new, folder, overwrite=True)


def _with_section(card: str, section: str) -> str:
    """Returns a card with this section, in the place of an earlier one or at the end."""
    before, heading, rest = card.partition(f"\n{_HEADING}\n")
    _, following, after = rest.partition("\n## ") if heading else ("", "", "")
    return f"{before.rstrip()}\n\n{_HEADING}\n\n{section}" + following + after


def _section(report: BenchReport) -> str:
    names = [subject.engine for subject in report.subjects]
    if len(names) > 1:
        names[0] = f"kerasformer on {names[0]}"
    best = sorted((subject.works[0].best_s, name) for subject, name in zip(report.subjects, names, strict=True))
    alone = "In a process of its own; `kerasformer bench --card` measures again, in every engine that reads the files"
    several = "The same files and inputs in turns (`kerasformer bench --card`)"
    lines = [fill(f"{several if len(best) > 1 else alone}: {note(report)}.", 120), ""]
    if len(best) > 1:
        (first, fastest), (second, next_one) = best[:2]
        lines += [f"**The fastest is {fastest}**: {second / first:.2f} times as fast as {next_one}.", ""]
    for engine, reason in report.not_measured.items():
        lines += [f"{engine} was not measured: {reason}", ""]
    for title, _, rows in tables(report):
        lines += [markdown(title, ["figure", "unit", *names], [row for row in rows if row[0] != "engine"])]
    return "\n".join(lines)
