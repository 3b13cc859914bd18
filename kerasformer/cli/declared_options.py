"""Options of commands that are made from their declarations (`kerasformer.options`), and `--set` for all others."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer

from kerasformer.errors import InputError, SourceError
from kerasformer.files.reading import parse_json
from kerasformer.options import Option, declared

Function = TypeVar("Function", bound=Callable[..., None])


def with_options(options: type, *names: str) -> Callable[[Function], Function]:
    """Gives a command that ends with `**options` a command-line option for each of these names, and `--set`.

    Args:
        options: What declares the options, see `kerasformer.options.declared`.
        names: Options that have one of their own on the command line. `--set name=value` sets all others.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        known = declared(options)
        others = ", ".join(name for name in known if name not in names)
        help = f"Further argument as name=value, the value as JSON; may be repeated: {others}."
        further = [_parameter(name, *known[name]) for name in names]
        further.append(_keyword("set_", list[str] | None, None, typer.Option("--set", help=help)))
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *further)]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {each.name: each.annotation for each in parameters}
        return function

    return decorate


def passed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a command that were passed, with those of `--set`.

    Raises:
        InputError: `--set` is not `name=value`.
    """
    settings = dict(map(setting_of, options.get("set_") or ()))
    chosen = {name: value for name, value in options.items() if name != "set_" and not _is_unset(value)}
    return chosen | settings


def _is_unset(value: Any) -> bool:
    return value is None or value is False or value == []


def setting_of(pair: str) -> tuple[str, Any]:
    """Parses `name=value`; a value that is not JSON is a string."""
    name, equals, value = pair.partition("=")
    if not (name and equals):
        raise InputError(f"--set must be name=value. Received: {pair!r}. Try --set early_stopping=true.")
    name = name.replace("-", "_")
    try:
        return name, parse_json(value, name)
    except SourceError:
        return name, value


def _parameter(name: str, hint: Any, option: Option) -> inspect.Parameter:
    """Returns the parameter of a declared option: a flag, a value, or a value that may be repeated."""
    formats = f"{', '.join(option.formats)}: " if option.formats else ""
    help = f"{formats}{option.help}".replace("`", "")
    plain = next(each for each in _members(hint) if each is not types.NoneType)
    if plain is bool:
        return _keyword(name, bool, False, typer.Option(f"--{name.replace('_', '-')}", help=help))
    if get_origin(plain) in (Sequence, types.GenericAlias, list):
        (item,) = get_args(plain)
        return _keyword(name, list[item] | None, None, typer.Option(help=f"{help} May be repeated."))  # type: ignore[valid-type]
    return _keyword(name, (str if plain is Any else plain) | None, None, typer.Option(help=help))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _keyword(name: str, hint: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])
