"""Documentation pages: links are valid, and commands are accepted by the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from kerasformer import cli
from tests import option_table
from tests.code_blocks import blocks

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = [
    ROOT / name for name in ("CHANGELOG.md", "benchmarks/RESULTS.md", "kerasformer/tools/web/page/library/README.md")
]
LINK = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_links_lead_to_files_and_sections(page):
    targets = {a or b for a, b in LINK.findall(page.read_text(encoding="utf-8"))}
    for target in (target for target in targets if "://" not in target):
        path, _, section = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not section or section in sections(linked), target


def sections(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_commands(page):
    commands = typer.main.get_command(cli.app).commands
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines += [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    for part in (part.strip() for line in lines for part in re.split(r"\||&&|;", line.partition(" #")[0])):
        typed = shlex.split(part)
        if typed[:1] == ["kerasformer"] and typed[1] in commands and "--list-targets" not in typed:
            commands[typed[1]].make_context(typed[1], typed[2:])


def test_the_table_of_options_is_up_to_date():
    assert option_table.main([]) == 0, f"run: {option_table.COMMAND}"
