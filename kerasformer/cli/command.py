"""Base classes of the program and its commands: help in plain text with examples, and errors in one line."""

from __future__ import annotations

import os
import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from kerasformer.errors import KerasformerError
from kerasformer.extras import removed

_LISTED = re.compile(r"<list\[(.+?)\]>")
_REMOVED = {
    "anatomy": "kerasformer info SOURCE --anatomy",
    "batch": "python -m kerasformer.tools.integrations.batch",
    "compare": "kerasformer info SOURCE SOURCE for sizes, kerasformer bench for speed, kerasformer eval for quality",
    "prune": "kerasformer shrink --vocab 1, or kerasformer.zoo.prune_vocabulary in Python",
    "sweep": "kerasformer.sweep in Python",
}
"""What replaces commands of earlier versions."""


class Commands(TyperGroup):
    """The program, which names what replaces a command of an earlier version."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the arguments."""
        if args[0] in _REMOVED and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {args[0]} any more. Use {_REMOVED[args[0]]}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """Command with help in plain text, and with errors in one line."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; for an error of this package, prints one line and exits with status 1."""
        try:
            return super().invoke(ctx)
        except (KerasformerError, ModuleNotFoundError) as error:
            message = removed(error) if isinstance(error, ModuleNotFoundError) else error
            if message is None or os.environ.get("KERASFORMER_DEBUG"):
                raise
            from kerasformer.cli.console import print_error

            print_error(str(message))
            raise typer.Exit(1) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of the arguments, then of the options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                names, help = record
                heading = "Options" if isinstance(parameter, TyperOption) else "Arguments"
                sections[heading].append((_LISTED.sub(r"<\1>", names), help))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def examples(*lines: str) -> str:
    """Formats example lines as the epilog of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
