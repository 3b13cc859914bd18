"""docs/coming_from.md: our column names what exists, its commands are commands, and its code runs on the presets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

import kerasformer as kf
from kerasformer import cli
from tests.code_blocks import blocks

PAGE = Path(__file__).parents[3] / "docs" / "coming_from.md"
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
OURS = [code for _, ours in ROWS for code in re.findall(r"`([^`]+)`", ours)]


def test_names_of_the_package_exist():
    for chain in {chain for code in OURS for chain in re.findall(r"\bkf((?:\.\w+)+)", code)}:
        value = kf
        for name in chain.removeprefix(".").split("."):
            value = getattr(value, name)
    methods = {name for code in OURS for name in re.findall(r"\bmodel\.(\w+)\(", code)}
    assert {"export", "fit", "generate", "enable_lora"} <= methods
    assert all(hasattr(kf.zoo.CausalLM, name) for name in methods)


def test_commands_are_commands():
    commands = typer.main.get_command(cli.app).commands
    lines = [shlex.split(code) for code in OURS if code.startswith("kerasformer ")]
    assert len(lines) >= 7
    for _, command, *arguments in lines:
        commands[command].make_context(command, arguments)


@pytest.mark.grid
def test_the_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(PAGE, "python"))
    exec(compile(code, PAGE.name, "exec"), {})
