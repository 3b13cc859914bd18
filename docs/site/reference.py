"""The reference of the public names, from their signatures and docstrings."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import kerasformer as kf
from docs.site.docstrings import first_line, markdown
from docs.site.tables import contents, table
from kerasformer import engines, errors, export, generation, layers, pipelines, tokenization, zoo
from kerasformer.basics.options import declared
from kerasformer.bundle.export_options import ExportOptions
from kerasformer.tools import interpretability, server, training, viz

_MODEL_METHODS = ("generate", "stream", "export", "save_pretrained", "load_adapter", "enable_lora", "merge_adapter")


def pages() -> dict[str, str]:
    """Returns the pages of the reference and their index, by name."""
    modules = {name: getattr(kf, name) for name in kf.__all__ if inspect.ismodule(getattr(kf, name))}
    plain = [name for name in kf.__all__ if name not in modules and callable(getattr(kf, name))]
    listed = {
        "kerasformer": ("kerasformer", "What `import kerasformer as kf` has.", _members(kf, plain, from_base=True)),
        "pipelines": (
            "Pipelines",
            "The callables that `kf.pipeline` returns, one for each task.",
            _members(pipelines, sorted({kind.__name__ for kind in pipelines.PIPELINES.values()}), from_base=True),
        ),
        "zoo": ("kerasformer.zoo", first_line(zoo.__doc__), _members(zoo, zoo.__all__, from_base=True)),
        "layers": ("kerasformer.layers", _SHAPES, _members(layers, layers.__all__)),
        "training": ("kerasformer.tools.training", first_line(training.__doc__), _members(training, training.__all__)),
        "generation": (
            "kerasformer.generation",
            first_line(generation.__doc__),
            _members(generation, generation.__all__),
        ),
        "engines": (
            "kerasformer.engines",
            first_line(engines.__doc__),
            _members(engines, ["Forward", "ResumableStep", "SavedState", "Step", "open_engine"]),
        ),
        "tokenization": (
            "kerasformer.tokenization",
            first_line(tokenization.__doc__),
            _members(tokenization, [name for name in tokenization.__all__ if name not in kf.__all__]),
        ),
        "export": (
            "kerasformer.export",
            "Options of `model.export` and of `kerasformer export`. Lengths are in tokens, sizes in MB (1e6 bytes).",
            _options(ExportOptions) + _members(export, [name for name in export.__all__ if name != "ExportOptions"]),
        ),
        "server": (
            "Server options",
            "Options of `kerasformer serve` and fields of `kerasformer.tools.server.ServerOptions`.",
            _options(server.ServerOptions),
        ),
        "interpretability": (
            "kerasformer.tools.interpretability",
            first_line(interpretability.__doc__),
            _room(interpretability),
        ),
        "viz": ("kerasformer.tools.viz", first_line(viz.__doc__), _members(viz, viz.__all__)),
        "errors": ("kerasformer.errors", _ERRORS, _members(errors, _errors())),
    }
    for name, module in modules.items():
        if name not in listed:  # a room that was added to the public names
            listed[name] = (f"kerasformer.{name}", first_line(module.__doc__), _members(module, module.__all__))
    rows = [(f"[{title}]({name}.md)", about) for name, (title, about, _) in listed.items()]
    index = "# Reference\n\n" + _LETTERS + table(["module", "what it has"], rows) + contents(listed)
    written = {f"reference/{name}": f"# {title}\n\n{about}\n\n{text}" for name, (title, about, text) in listed.items()}
    return {"reference/index": index, **written}


_LETTERS = """\
Shapes are written with these letters: `B` batch, `T` query length, `S` key length, `H` heads, `D` size of a head, `E`
hidden size, `F` size of the feed-forward network, `V` vocabulary. Lengths are in tokens and times in seconds, unless a
name or a description has another unit.

"""
_SHAPES = (
    "Layers in `keras.ops`, for any backend of Keras. Letters of shapes are explained in the [reference](index.md)."
)
_ERRORS = "Exceptions that the package raises deliberately; [causes and cures](../docs/errors.md) of each."


def _errors() -> list[str]:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    return [kind.__name__ for kind in kinds]


def _members(module: ModuleType, names: Iterable[str], from_base: bool = False) -> str:
    """Returns the entries of functions, classes and values of a module.

    Args:
        module: The module.
        names: Its public names.
        from_base: Whether methods of base classes of this package are listed, too.
    """
    texts = []
    for name in names:
        value, full = getattr(module, name), f"{module.__name__}.{name}"
        if inspect.isclass(value):
            texts.append(_class(full, value, from_base))
        elif callable(value) and getattr(value, "__name__", "") == name:
            texts.append(_entry("function", full, _signature(value), markdown(value.__doc__)))
    return "\n".join(f"## {text.partition(chr(0))[0]}\n\n{text.partition(chr(0))[2]}" for text in texts)


def _room(package: ModuleType) -> str:
    """Returns the entries of all modules of a package, which lists no public names itself."""
    texts = []
    for name in sorted(each.name for each in pkgutil.iter_modules(package.__path__)):
        module = importlib.import_module(f"{package.__name__}.{name}")
        own = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", "") == module.__name__ and callable(value)
        ]
        texts.append(_members(module, own))
    return "\n".join(texts)


def _class(full: str, kind: type, from_base: bool) -> str:
    parts = [markdown(kind.__doc__)]
    if not issubclass(kind, Exception):
        for name, member in _public(kind, from_base):
            parts.append(_member(name, member))
    word = "exception" if issubclass(kind, Exception) else "class"
    return _entry(word, full, "" if word == "exception" else _signature(kind), "\n\n".join(filter(None, parts)))


def _public(kind: type, from_base: bool) -> Iterator[tuple[str, Any]]:
    """Yields the documented public methods and properties."""
    seen = set[str]()
    for base in kind.__mro__ if from_base else [kind]:
        if not base.__module__.startswith("kerasformer"):
            continue
        for name, member in vars(base).items():
            call = name == "__call__"
            if (call or not name.startswith("_")) and name not in seen and getattr(_function(member), "__doc__", None):
                seen.add(name)
                if isinstance(member, (classmethod, staticmethod, property, functools.cached_property)) or callable(
                    member
                ):
                    yield name, member


def _function(member: Any) -> Any:
    return getattr(member, "__func__", member)


def _member(name: str, member: Any) -> str:
    function, text = _function(member), markdown(getattr(_function(member), "__doc__", ""))
    if inspect.isclass(function):
        return ""
    if isinstance(member, (property, functools.cached_property)):
        return f"::::{{py:property}} {name}\n:no-index:\n\n{text}\n::::"
    word = "classmethod" if isinstance(member, classmethod) else "method"
    signature = _signature(function, drop_first=not isinstance(member, staticmethod))
    return f"::::{{py:{word}}} {name}{signature}\n:no-index:\n\n{text}\n::::"


def _entry(word: str, full: str, signature: str, text: str) -> str:
    return f"{full.rpartition('.')[2]}\0:::::{{py:{word}}} {full}{signature}\n\n{text}\n:::::\n"


def _signature(value: Callable[..., Any], drop_first: bool = False) -> str:
    """Returns a signature in one line, with the defaults and without the modules of types."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = list(signature.parameters.values())[1 if drop_first else 0 :]
    shown = [
        each.replace(annotation=_annotation(each.annotation), default=_default(each.default)) for each in parameters
    ]
    result = _annotation(signature.return_annotation) if not inspect.isclass(value) else inspect.Signature.empty
    text = str(inspect.Signature(shown, return_annotation=result))
    return " ".join(text.split())


class _Text:
    """Text that is its own representation."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _annotation(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    words = ("kerasformer.", "collections.abc.", "typing.", "pathlib.", "numpy.")
    for word in words:
        text = _shortened(text, word)
    return _Text(text.replace("os.PathLike[str]", "PathLike"))


def _shortened(text: str, prefix: str) -> str:
    """Returns text without the modules of names that start with a prefix."""
    return re.sub(rf"\b{re.escape(prefix)}(?:\w+\.)*(\w+)", r"\1", text)


def _default(default: Any) -> Any:
    if default is inspect.Parameter.empty or isinstance(default, (str, int, float, bool, tuple, type(None))):
        return default
    return _Text(getattr(default, "__name__", "..."))


def _options(options: type) -> str:
    rows = [
        (f"`{name}`", f"`{option.default}`" if option.default not in (None, ()) else "", option.help)
        for name, (_, option) in declared(options).items()
    ]
    return table(["option", "default", "meaning"], rows) + "\n"
