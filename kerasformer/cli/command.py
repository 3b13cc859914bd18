"""Base class of all commands: help in plain text with examples, and errors that name options as in the shell."""

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

# Python arguments of options that have a shorter name.
PYTHON_NAMES = {
    "threads": "num_threads",
    "choice": "choices",
    "label": "candidate_labels",
    "prompt_lookup": "prompt_lookup_num_tokens",
    "stop": "stop_strings",
}
_SETTING = "set_"
_LISTED = re.compile(r"<list\[(.+?)\]>")


class Command(TyperCommand):
    """Command with help in plain text, and with errors that name options as in the shell."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; for an error of this package, prints one line and exits with status 1."""
        try:
            return super().invoke(ctx)
        except KerasformerError as error:
            if os.environ.get("KERASFORMER_DEBUG"):
                raise
            from kerasformer.cli.console import print_error

            print_error(error.message_in(partial(in_shell, options_of(self))))
            raise typer.Exit(1) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of the arguments, then of the options under the headings of their panels."""
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
    """Formats example lines as the epilog of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def options_of(command: Any) -> dict[str, str]:
    """Returns the options of a command by their Python argument names; `set_` is the option for all other settings."""
    return {
        PYTHON_NAMES.get(parameter.name, parameter.name): parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, TyperOption) and parameter.name
    }


def in_shell(options: Mapping[str, str], name: str, value: str | None) -> str:
    """Formats an argument as in the shell, such as `--overwrite`; as in Python if the command has no such option."""
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
    """Parses a Python literal; other text is returned unchanged."""
    try:
        return None if value is None else ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
