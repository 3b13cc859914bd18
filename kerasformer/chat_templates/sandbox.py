"""Jinja2 environment for templates from unknown sources: no attributes of Python, and limits on time and size.

Jinja2's sandbox blocks private attributes and changes of the caller's values, but a template may still compute without
end or fill the memory. Here every value that a template creates, and every text that it writes, is measured before it
is built, and loops and calls check the time. Operations whose size cannot be bounded in advance are not available.
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
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_CHARACTERS = 2_000_000
"""Maximum size of a value of a template, and of everything that it writes. No cache holds as many tokens."""
MAX_SECONDS = 2.0
"""Maximum processor time of a template, in seconds."""
_MAX_ITEMS = 100_000
_MAX_WIDTH = 1000
"""Maximum width of indented, justified or formatted text."""
_LOOPS_PER_CHECK = 64
_ITEM_SIZE = 8
"""Number of characters that an item counts as, since it takes as much memory and time."""

_FILTERS = frozenset(
    "abs attr batch capitalize count d default dictsort e escape first float format groupby indent int items join last "
    "length list lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string "
    "sum title tojson trim truncate unique upper wordcount".split()
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        "capitalize casefold center count endswith find format index isalnum isalpha isascii isdecimal isdigit islower "
        "isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind "
        "rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill".split()
    ),
    dict: frozenset("copy fromkeys get items keys values".split()),
    list: frozenset("copy count index".split()),
    tuple: frozenset("count index".split()),
    float: frozenset(["is_integer"]),
    int: frozenset(),
    bytes: frozenset(),
}
"""Methods of plain values that a template may call; those of `int` include `to_bytes`, which may fill the memory."""


class LimitError(TemplateError):
    """A template that exceeds a limit of time or size."""


class RefusalError(TemplateError):
    """A conversation that the template refuses with `raise_exception`."""


class _Budget:
    """What a run of a template has used: processor time and written characters."""

    def __init__(self) -> None:
        self._end = time.thread_time() + MAX_SECONDS
        self._written = 0

    def check_time(self) -> None:
        if time.thread_time() > self._end:
            raise LimitError(f"it runs for more than {MAX_SECONDS:g} seconds, the limit for loops and calls")

    def write(self, text: str) -> str:
        self._written += len(text) + 1
        if self._written > MAX_CHARACTERS:
            raise LimitError(f"it writes more than {MAX_CHARACTERS:,} characters, the limit")
        return text


_budget: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def limits() -> Iterator[None]:
    """Starts a run: its time and the size of its output are counted from here."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def measured(value: Any) -> Any:
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
        _check_size(size + len(stack), "a value")
    return value


def _check_size(size: int, what: str) -> None:
    if size > MAX_CHARACTERS:
        raise LimitError(f"it creates {what} of more than {MAX_CHARACTERS:,} characters, the limit")


def _format_size(text: Any, *values: Any, **named: Any) -> int:
    """Returns a bound on the length of a formatted text, for `%` and for `str.format`."""
    if re.search(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^{}]*\{", str(text)):
        raise LimitError(f"it formats text with a width of more than {_MAX_WIDTH:,} characters, or a variable one")
    measured([values, named])
    largest = max((len(str(value)) for value in (*values, *named.values())), default=0)
    fields = str(text).count("{") + str(text).count("%")
    return len(str(text)) + fields * (largest + _MAX_WIDTH)


def _indent_size(text: Any, width: Any = 4, *others: Any, **named: Any) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (len(width) if isinstance(width, str) else int(width))


def _replace_size(text: Any, old: Any, new: Any, count: Any = None) -> int:
    text, old = str(text), str(old)
    return len(text) + (text.count(old) if old else len(text) + 1) * len(str(new))


def _join_size(separator: Any, items: Any) -> int:
    return int(sum(len(str(item)) + len(str(separator)) for item in items))


_SIZES: dict[str, Callable[..., int]] = {
    "format": _format_size,
    "indent": _indent_size,
    "replace": _replace_size,
    **dict.fromkeys(("center", "ljust", "rjust"), lambda text, width, fill=" ": max(len(text), width)),
    "zfill": lambda text, width: max(len(text), width),
    **dict.fromkeys(("batch", "slice"), lambda items, count, fill=None: len(items) + count),
    "round": lambda number, precision=0, method="common": abs(precision) * MAX_CHARACTERS // _MAX_WIDTH,
}
"""Bounds on the size of the result of filters and methods whose result may be much larger than their arguments."""


def _held(value: Any) -> Any:
    """Returns the items of an iterator as a list, so that they can be measured; other values unchanged."""
    if not isinstance(value, Iterator):
        return value
    items = []
    for item in value:
        items.append(item)
        _check_size(len(items), "a list")
    return measured(items)


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a filter that checks time and sizes; it may have a first argument that Jinja passes."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        _budget.get().check_time()
        args = (*args[:skipped], *map(_held, args[skipped:]))
        plain = args[skipped:]
        measured(plain)
        if name in _SIZES:
            _check_size(_SIZES[name](*plain, **kwargs), f"text with the filter {name}")
        elif name == "join":
            separator = kwargs.get("d", plain[1] if len(plain) > 1 else "")
            _check_size(_join_size(separator, plain[0]), "text with the filter join")
        return measured(function(*args, **kwargs))

    return limited


# Filters that need the context are not computed when the template is compiled.
@pass_context
def _each(context: Any, values: Iterable[Any]) -> Iterator[Any]:
    """Yields the items of a loop, and checks the time."""
    budget = _budget.get()
    for index, value in enumerate(values):
        if index % _LOOPS_PER_CHECK == 0:
            budget.check_time()
        yield value


@pass_context
def _written(context: Any, value: Any) -> str:
    return _budget.get().write(value if isinstance(value, str) else str(measured(value)))


@pass_context
def _joined(context: Any, values: tuple[Any, ...]) -> str:
    texts = [value if isinstance(value, str) else str(measured(value)) for value in values]
    _check_size(sum(map(len, texts)), "text")
    return "".join(texts)


_CHECKS: dict[str, Callable[..., Any]] = {
    " each": _each,
    " written": _written,
    " joined": _joined,
    " measured": measured,
}
"""Filters that `_Measures` inserts. No template can name them, since the names start with a space."""


class _Measures(NodeTransformer):
    """Inserts the checks into a parsed template: into loops, output, concatenations, lists and dictionaries."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - called by the name of the node
        self.generic_visit(node)
        node.iter = _filtered(node.iter, " each")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        parts = [nodes.Const(part.data) if isinstance(part, nodes.TemplateData) else part for part in node.nodes]
        node.nodes = [_filtered(part, " written") for part in parts]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.Tuple(node.nodes, "load", lineno=node.lineno), " joined")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, " measured")

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, " measured") if node.ctx == "load" else node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """The tag `{% generation %}`, which marks the text of an assistant."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        """Parses the tag and its content."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        # Its position in the output is not known yet.
        return f"{GENERATION_MARK}{caller()}{GENERATION_MARK}"


GENERATION_MARK = "\U0010fffe"
"""Character before and after text within the tag `{% generation %}`, a code point that is never assigned."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Environment of chat templates, with the names that `transformers` provides, and with limits.

    Reference: `transformers.utils.chat_template_utils`.
    """

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters = {name: _limited_filter(name, self.filters[name]) for name in _FILTERS}
        self.filters |= _CHECKS
        self.globals |= {
            "range": _range,
            "namespace": _TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        del self.globals["lipsum"]

    def template(self, source: str) -> Template:
        """Compiles a template.

        Raises:
            jinja2.TemplateSyntaxError: the template is not valid Jinja, or uses an unknown filter or tag.
        """
        tree = _Measures().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allows only the listed methods of plain values."""
        for kind, names in _METHODS.items():
            if isinstance(obj, kind):
                return attr in names and super().is_safe_attribute(obj, attr, value)
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuses an attribute at once, even if the template does not use it."""
        raise SecurityError(f"it reads the attribute {attribute!r} of {type(obj).__name__}, which is not allowed")

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902, N805
        """Calls a function or method, after a check of time and sizes."""
        _budget.get().check_time()
        method = getattr(__obj, "__wrapped__", __obj)
        if isinstance(method, BuiltinMethodType) and isinstance(method.__self__, str):
            if method.__name__ == "join":
                args = (_held(*args),)
                _check_size(_join_size(method.__self__, *args), "text with join")
            elif method.__name__ in _SIZES:
                size = _SIZES[method.__name__](method.__self__, *args, **kwargs)
                _check_size(size, f"text with {method.__name__}")
        return measured(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes a result that may be larger than its operands, if it is not too large."""
        budget = _budget.get()
        budget.check_time()
        if operator == "%" and isinstance(left, str):
            _check_size(_format_size(left, *(right if isinstance(right, tuple) else (right,))), "text with %")
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_size(left.bit_length() * max(right, 0) // 3, "a number")
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, str | list | tuple) and isinstance(other, int):
                    _check_size(len(one) * max(other, 0), "a value")
        return measured(super().call_binop(context, operator, left, right))


class _TemplateNamespace(Namespace):
    """The function `namespace`: attributes that a template can set, except private ones."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N805 - a template may pass self=
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"it sets the attribute {name!r}, which is private")


def _range(*limits: int) -> range:
    values = range(*limits)
    # The length of a range may exceed the integers of C.
    if values and abs(values[-1] - values[0]) // abs(values.step) >= _MAX_ITEMS:
        raise LimitError(f"range{limits if len(limits) > 1 else f'({limits[0]})'} has more than {_MAX_ITEMS:,} items")
    return values


def _raise_exception(message: Any) -> NoReturn:
    raise RefusalError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_WIDTH or re.search(r"%[^a-zA-Z]*\d{3,}", form):
        raise LimitError("it formats a date with too many characters")
    return datetime.now().strftime(form)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter `tojson`, which does not escape HTML as that of Jinja does."""
    for part in (indent, *(separators or ())):
        if (len(part) if isinstance(part, str) else part or 0) > _MAX_WIDTH:
            raise LimitError(f"it indents JSON by more than {_MAX_WIDTH:,} characters")
    settings: dict[str, Any] = {"ensure_ascii": ensure_ascii, "separators": separators, "sort_keys": sort_keys}
    pieces, size = [], 0
    for piece in json.JSONEncoder(indent=indent, **settings).iterencode(value):
        size += len(piece)
        _check_size(size, "JSON")
        pieces.append(piece)
    return "".join(pieces)
