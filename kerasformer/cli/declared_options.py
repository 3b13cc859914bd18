"""Options of commands, made from their declarations (`kerasformer.basics.options`), and `--set` for all others."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer

from kerasformer.basics.options import Option, declared
from kerasformer.files.reading import setting_of

Function = TypeVar("Function", bound=Callable[..., None])


def with_options(
    declarations: Sequence[type], *names: str, shows_defaults: bool = True
) -> Callable[[Function], Function]:
    """Gives a command that ends with `**options` a command-line option for each of these names, and `--set`.

    Args:
        declarations: What declares the options, see `kerasformer.basics.options.declared`.
        names: Options that have one of their own on the command line; all by default. `--set name=value` sets others.
        shows_defaults: Whether the help names the defaults; not if those of the model replace them.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {name: value for each in declarations for name, value in declared(each).items() if value[1].in_shell}
        parameters += [_parameter(name, *known[name], shows_defaults) for name in names or known]
        if others := ", ".join(name for name in known if names and name not in names):
            help = f"Another argument as name=value, with the value as JSON. May be repeated. Arguments: {others}."
            parameters.append(_keyword("set_", list[str] | None, None, typer.Option("--set", help=help)))
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
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
    return {name: value for name, value in options.items() if name != "set_" and value not in (None, [])} | settings


def _parameter(name: str, hint: Any, option: Option, shows_default: bool) -> inspect.Parameter:
    """Returns the parameter of a declared option: a flag, a value, or a value that may be repeated.

    It is `None` if it is not passed, since a model may have another default.
    """
    formats = f"{', '.join(option.formats)}: " if option.formats else ""
    help = f"{formats}{option.help}".replace("`", "")
    plain = next(each for each in _members(hint) if each is not types.NoneType)
    if plain is bool:
        flag = f"--{name.replace('_', '-')}"
        flags = f"{flag}/--no-{flag[2:]}" if option.default else flag
        return _keyword(name, bool | None, None, typer.Option(flags, help=help))
    if get_origin(plain) in (Sequence, types.GenericAlias, list):
        item = _members(get_args(plain)[0])[0]
        return _keyword(name, list[item] | None, None, typer.Option(help=f"{help} May be repeated."))  # type: ignore[valid-type]
    if shows_default and option.default is not None:
        help += f" [default: {option.default}]"
    value = typer.Option(help=help, envvar=option.environment)
    return _keyword(name, (str if plain is Any else plain) | None, None, value)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _keyword(name: str, hint: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])
