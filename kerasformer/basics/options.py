"""Options that are declared once: keys of a typed dictionary, each with its type, its check, its default and its help.

    class Options(TypedDict, total=False):
        # with a docstring that describes num_threads
        num_threads: Annotated[int | None, Option(integer(1))]

    @documented(Options)
    def pipeline(source: str, **options: Unpack[Options]) -> Pipeline: ...

Type checkers read the dictionary. The signature and the docstring that `help` shows, the check of the values, the
options of the command line and the tables of the documentation are made from it. Fields of a dataclass are declared in
the same way.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from kerasformer.basics.arguments import ANYTHING, Kind, check
from kerasformer.errors import InputError

_WIDTH = 120
"""Maximum length of the lines of a docstring."""

Function = TypeVar("Function", bound=Callable[..., Any])
Options = TypeVar("Options")


@dataclass(frozen=True)
class Option:
    """What is known about an option, beside its name and type.

    Attributes:
        kind: Values that it accepts, beside `None`, which is the same as not to pass it.
        default: Its value if it is not passed; `None` if none is needed, or if it depends on the model.
        formats: For an option of an export: the formats that have it; all of them if empty.
        in_shell: Whether the command line can set it.
        environment: Environment variable from which the command line takes it.
        help: What it does: one or more sentences, from the docstring of the class that declares it; empty in a Python
            without docstrings (`-OO`).
    """

    kind: Kind = ANYTHING
    default: Any = None
    formats: tuple[str, ...] = ()
    in_shell: bool = True
    environment: str | None = None
    help: str = ""


@cache
def declared(options: type) -> dict[str, tuple[Any, Option]]:
    """Returns the type and the description of each option, in their order.

    Args:
        options: A typed dictionary or a dataclass, whose docstring describes its keys or fields.
    """
    texts: dict[str, str] = {}
    for base in reversed(options.__mro__):
        texts |= _entries(inspect.cleandoc(base.__doc__ or ""))
    defaults = {field.name: {"default": field.default} for field in fields(options)} if is_dataclass(options) else {}
    result = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        plain, option = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, Option())
        result[name] = plain, replace(option, help=texts.get(name, ""), **defaults.get(name, {}))
    return result


def checked(options: type[Options], values: Mapping[str, object], purpose: str) -> Options:
    """Checks options and returns those that have a value, in plain form, with the defaults of the others.

    Args:
        options: Typed dictionary or dataclass that declares them.
        values: What the caller passed.
        purpose: What they are options of, for errors, such as `"an export"`.

    Raises:
        InputError: An option is unknown, or a value is not accepted.
    """
    known = declared(options)  # type: ignore[arg-type] # a class can be hashed
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise InputError(f"Unknown option of {purpose}. Expected one of {', '.join(known)}. Received: {name}{hint}")
    plain = {name: option.default for name, (_, option) in known.items()}
    plain |= {name: check(name, value, known[name][1].kind) for name, value in values.items() if value is not None}
    return options(**{name: value for name, value in plain.items() if value is not None})


def documented(*options: type) -> Callable[[Function], Function]:
    """Gives a function that ends with `**options` the signature and the documentation of each option.

    Args:
        options: Typed dictionary of the options, and those that it is derived from, which describe the keys that it
            inherits; or a dataclass whose fields are some of them and replace those of an object. In the docstring, the
            entry `options:` of the section `Args` is replaced by one entry for each.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *before, others = signature.parameters.values()
        replaces = is_dataclass(options[0])
        described = {name: each for declaration in options for name, each in declared(declaration).items()}
        known = {name: (hint, option.default) for name, (hint, option) in described.items()}
        if replaces:
            known = {name: (hint | None, None) for name, (hint, _) in known.items()}
        named = [
            inspect.Parameter(name, others.KEYWORD_ONLY, default=default, annotation=hint)
            for name, (hint, default) in known.items()
        ]
        parameters = [*before, *named, *([others] if replaces else [])]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = _with_entries(inspect.getdoc(function) or "", described)
        return function

    return decorate


def _entries(text: str) -> dict[str, str]:
    """Returns the entries of the arguments or attributes in a docstring."""
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)$", text, re.MULTILINE)
    return {name: " ".join(entry.split()) for name, entry in found}


def _with_entries(text: str, described: Mapping[str, tuple[Any, Option]]) -> str:
    """Replaces the entry `options:` of a docstring by one for each option."""
    entries = "\n".join(
        textwrap.fill(f"{name}: {option.help}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, (_, option) in described.items()
    )
    return re.sub(r"^ {4}options:.*(?:\n {5,}.*)*$", lambda _: entries, text, count=1, flags=re.MULTILINE)
