"""Jinja2 environment for templates from unknown sources: no attributes of Python, and limits on time and size.

Jinja2's sandbox blocks private attributes, changes of the caller's values and long ranges, but a template may still
compute without end or fill the memory. Its hooks are used to check the time in loops, calls, filters and operators, and
the size of texts and results before they are built.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, TypeVar

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_Value = TypeVar("_Value")

MAX_CHARACTERS = 2_000_000
"""Maximum size of a value of a template, and of everything that it writes. No cache holds as many tokens."""
MAX_SECONDS = 2.0
"""Maximum processor time of a template, in seconds."""
GENERATION_MARK = "\U0010fffe"
"""Character before and after text within the tag `{% generation %}`, a code point that is never assigned."""
_MAX_WIDTH = 1000
"""Maximum width of indented or formatted text."""
_ITEM_SIZE = 8
"""Number of characters that an item counts as, since it takes as much memory and time."""

_FILTERS = frozenset(
    "abs attr batch capitalize count d default dictsort e escape first float format groupby indent int items join last "
    "length list lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string "
    "sum title tojson trim truncate unique upper wordcount".split()
)
_UNBOUNDED = frozenset(["expandtabs", "translate"])
"""Methods of texts whose result may be much larger than their arguments, and that no template needs."""


class LimitError(TemplateError):
    """A template that exceeds a limit of time or size."""


class RefusalError(TemplateError):
    """A conversation that the template refuses with `raise_exception`."""


_end: ContextVar[float] = ContextVar("end")


@contextmanager
def limits() -> Iterator[None]:
    """Starts a run, whose time is counted from here."""
    token = _end.set(time.thread_time() + MAX_SECONDS)
    try:
        yield
    finally:
        _end.reset(token)


def _check_time() -> None:
    if time.thread_time() > _end.get():
        raise LimitError(f"it runs for more than {MAX_SECONDS:g} seconds, the limit")


def _check_size(size: int, what: str = "a value") -> None:
    if size > MAX_CHARACTERS:
        raise LimitError(f"it creates {what} of more than {MAX_CHARACTERS:,} characters, the limit")


def written(pieces: Iterable[str]) -> str:
    """Joins what a template writes.

    Raises:
        LimitError: it is too long.
    """
    size, texts = 0, []
    for piece in pieces:
        size += len(piece) + 1
        _check_size(size, "text")
        texts.append(piece)
    return "".join(texts)


def measured(value: _Value) -> _Value:
    """Returns a value, unless its texts, items and digits together exceed the limit; also for shared and cyclic ones.

    Raises:
        LimitError: the value is too large.
    """
    size, stack = 0, [value]
    while stack:
        item = stack.pop()
        size += _ITEM_SIZE
        if isinstance(item, str | bytes):
            size += len(item)
        elif isinstance(item, int):
            size += item.bit_length() // 3
        elif isinstance(item, Mapping):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            stack += item
        elif isinstance(item, Namespace):
            stack += object.__getattribute__(item, "_Namespace__attrs").values()
        _check_size(size + len(stack))
    return value


def _format_size(text: object, *values: object, **named: object) -> int:
    """Returns a bound on the length of a formatted text, for `%` and for `str.format`."""
    if re.search(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^{}]*\{", str(text)):
        raise LimitError(f"it formats text with a width of more than {_MAX_WIDTH:,} characters, or a variable one")
    largest = max((len(str(value)) for value in (*values, *named.values())), default=0)
    fields = str(text).count("{") + str(text).count("%")
    return len(str(text)) + fields * (largest + _MAX_WIDTH)


def _indent_size(text: object, width: Any = 4, *others: object, **named: object) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (len(width) if isinstance(width, str) else int(width))


def _replace_size(text: object, old: object, new: object, count: object = None) -> int:
    text, old = str(text), str(old)
    return len(text) + (text.count(old) if old else len(text) + 1) * len(str(new))


def _join_size(separator: object, items: Iterable[object]) -> int:
    return sum(len(str(item)) + len(str(separator)) for item in items)


_SIZES: dict[str, Callable[..., int]] = {
    "format": _format_size,
    "format_map": lambda text, values: _format_size(text, **values),
    "indent": _indent_size,
    "replace": _replace_size,
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), lambda text, width, fill=" ": max(len(text), width)),
    **dict.fromkeys(("batch", "slice"), lambda items, count, fill=None: len(items) + count),
    "round": lambda number, precision=0, method="common": abs(precision) * MAX_CHARACTERS // _MAX_WIDTH,
}
"""Bounds on the size of the result of filters and methods whose result may be much larger than their arguments."""
_FILTER_SIZES = {**_SIZES, "join": lambda items, d="", attribute=None: _join_size(d, items)}
_METHOD_SIZES = {**_SIZES, "join": _join_size}


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a filter that checks time and sizes; it may have a first argument that Jinja passes."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        _check_time()
        args = (*args[:skipped], *map(_listed, args[skipped:]))
        measured(args[skipped:])
        if name in _FILTER_SIZES:
            _check_size(_FILTER_SIZES[name](*args[skipped:], **kwargs), f"text with the filter {name}")
        return measured(function(*args, **kwargs))

    return limited


def _listed(value: Any) -> Any:
    """Returns the items of an iterator as a list, so that they can be measured; other values unchanged."""
    return list(value) if isinstance(value, Iterator) else value


class _CodeGenerator(CodeGenerator):
    """Generates loops that check the time, and `~` that checks the size of the text."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - called by the name of the node
        timed = nodes.EnvironmentAttribute("timed", lineno=node.lineno)
        node.iter = nodes.Call(timed, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """The tag `{% generation %}`, which marks the text of an assistant."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Parses the tag and its content."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        # Its position in the output is not known yet.
        return f"{GENERATION_MARK}{caller()}{GENERATION_MARK}"


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Environment of chat templates, with the names that `transformers` provides, and with limits.

    Reference: `transformers.utils.chat_template_utils`.
    """

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=measured
        )
        filters = {**self.filters, "tojson": _to_json}
        self.filters = {name: _limited_filter(name, filters[name]) for name in _FILTERS}
        self.globals |= {
            "namespace": _MeasuredNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        del self.globals["lipsum"]

    @staticmethod
    def timed(values: Iterable[_Value]) -> Iterator[_Value]:
        """Yields the items of a loop, and checks the time."""
        for value in values:
            _check_time()
            yield value

    @staticmethod
    def concat(parts: Iterable[object]) -> str:
        """Joins the parts of a macro, a block or an operator `~`."""
        return written(part if isinstance(part, str) else str(measured(part)) for part in parts)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Refuses attributes of numbers and bytes, too, and methods whose result has no bound."""
        refused = isinstance(obj, int | bytes) or (isinstance(obj, str) and attr in _UNBOUNDED)
        return not refused and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: object, attribute: str) -> NoReturn:
        """Refuses an attribute at once, even if the template does not use it."""
        raise SecurityError(f"it reads the attribute {attribute!r} of {type(obj).__name__}, which is not allowed")

    def call(__self, __context: Context, __obj: object, *args: Any, **kwargs: Any) -> Any:  # noqa: B902, N805
        """Calls a function or method, after a check of time and sizes."""
        _check_time()
        args = tuple(map(_listed, args))
        measured([args, kwargs])
        method = getattr(__obj, "__wrapped__", __obj)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str) and name in _METHOD_SIZES:
            _check_size(_METHOD_SIZES[name](text, *args, **kwargs), f"text with {name}")
        return measured(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Computes a result that may be larger than its operands, if it is not too large."""
        _check_time()
        if operator == "%" and isinstance(left, str):
            _check_size(_format_size(left, *(right if isinstance(right, tuple) else (right,))), "text with %")
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_size(left.bit_length() * max(right, 0) // 3, "a number")
        elif operator == "*":
            for value, count in ((left, right), (right, left)):
                if isinstance(value, str | list | tuple) and isinstance(count, int):
                    _check_size(len(value) * max(count, 0))
        return measured(super().call_binop(context, operator, left, right))


class _MeasuredNamespace(Namespace):
    """The function `namespace`, through which a loop may let a value grow."""

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, measured(value))


def _raise_exception(message: object) -> NoReturn:
    raise RefusalError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_WIDTH or re.search(r"%[^a-zA-Z]*\d{3,}", form):
        raise LimitError("it formats a date with too many characters")
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson`, which does not escape HTML as that of Jinja does."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > _MAX_WIDTH:
        raise LimitError(f"it indents JSON by more than {_MAX_WIDTH:,} characters")
    encoder = json.JSONEncoder(indent=indent, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    return written(encoder.iterencode(value))
