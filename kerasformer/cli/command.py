"""What all commands share: help in plain text with examples, and errors that name options as a shell does."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from kerasformer.errors import KerasformerError, in_python

# Options whose name is shorter than that of the argument in Python.
PYTHON_NAMES = {
    "threads": "num_threads",
    "choice": "choices",
    "prompt_lookup": "prompt_lookup_num_tokens",
    "stop": "stop_strings",
}
_SETTING = "set_"
_LISTED = re.compile(r"<list\[(.+?)\]>")


class Command(TyperCommand):
    """A command whose help is plain text, and whose errors are in the words of the shell."""

    def invoke(self, ctx: Any) -> Any:
        """Runs it; an error of this package is one line, and exit status 1."""
        try:
            return super().invoke(ctx)
        except KerasformerError as error:
            if os.environ.get("KERASFORMER_DEBUG"):
                raise
            from kerasformer.cli.console import print_error

            print_error(error.message_in(partial(in_shell, options_of(self))))
            raise typer.Exit(1) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options under the heading of their panel."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                names, help = record
                default = "Options" if isinstance(parameter, TyperOption) else "Arguments"
                panel = getattr(parameter, "rich_help_panel", None) or default
                sections.setdefault(panel, []).append((_LISTED.sub(r"<\1>", names), help))
        for panel, records in sections.items():
            with formatter.section(panel):
                formatter.write_dl(records)


def examples(*lines: str) -> str:
    """The end of a command's help: what a user may type, a line each."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def options_of(command: Any) -> dict[str, str]:
    """The options of a command by the names that their arguments have in Python; `set_` is the one for all others."""
    return {
        PYTHON_NAMES.get(parameter.name, parameter.name): parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, TyperOption) and parameter.name
    }


def in_shell(options: Mapping[str, str], name: str, value: str | None) -> str:
    """An argument as the shell has it: `--overwrite` for `overwrite=True`; Python's where the command has no such."""
    if name not in options:
        return _as_setting(options, name, value)
    flag = options[name]
    plain = _plain(value)
    if value is None or plain is True:
        return flag
    if plain is None or plain is False:
        return f"no {flag}"
    values = plain if isinstance(plain, list | tuple) else [plain]
    return " ".join(f"{flag} {'…' if each == '…' else shlex.quote(str(each))}" for each in values)


def _as_setting(options: Mapping[str, str], name: str, value: str | None) -> str:
    from kerasformer.decoding import GenerationConfig

    if _SETTING not in options or name not in {field.name for field in fields(GenerationConfig)}:
        return in_python(name, value)
    plain = _plain(value)
    return f"{options[_SETTING]} {name}={'…' if value in (None, '…') else json.dumps(plain, default=str)}"


def _plain(value: str | None) -> Any:
    """The value itself, from Python; what is no literal stays text."""
    try:
        return None if value is None else ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
