"""Exceptions of kerasformer. Each message states what is wrong, expected and received, and what to do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from kerasformer import telemetry
from kerasformer.process import quiet_runtimes


class KerasformerError(Exception):
    """Base class of all errors that this package raises deliberately."""


class InputError(KerasformerError, ValueError):
    """An argument, text or array that cannot be used."""


class SourceError(KerasformerError, ValueError):
    """A preset, folder or hub id that cannot be found, read or trusted."""


class UnsupportedConfigError(KerasformerError, ValueError):
    """A model configuration that this package does not implement."""


class CheckpointError(KerasformerError, ValueError):
    """Weights that are missing, left over, truncated or of the wrong shape; one error lists all problems."""


class MissingHeadError(CheckpointError):
    """A checkpoint without the head of the requested task."""


class TokenizerError(KerasformerError, ValueError):
    """A tokenizer that is missing, corrupt or of an unsupported kind."""


class ChatTemplateError(KerasformerError, ValueError):
    """A chat template that is missing, damaged or exceeds a limit, or a conversation that it refuses."""


@contextmanager
def tokenizer_errors(problem: str) -> Iterator[None]:
    """Converts errors of the library `tokenizers`, such as for damaged files, to a `TokenizerError`.

    It raises plain `Exception`s or panics with a `BaseException` whose class cannot be imported.

    Args:
        problem: Start of the error message.
    """
    try:
        yield
    except Exception as error:
        raise TokenizerError(f"{problem}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{problem}: {error}") from error


class CapacityError(KerasformerError, ValueError):
    """More tokens than the model or its cache can hold."""


class GenerationError(KerasformerError, ValueError):
    """Generation settings that contradict each other or that the engine does not support."""


class BundleError(KerasformerError, ValueError):
    """A bundle that is incomplete, modified, or written by a newer version."""


class ExportError(KerasformerError, RuntimeError):
    """A model that cannot be exported to the requested format."""


class ExportMismatchError(ExportError):
    """The exported artifact does not reproduce the Keras model within the recipe's limits.

    Attributes:
        received: The measured figures in one line; empty if the message has them alone.
    """

    received: str = ""


class TrainingError(KerasformerError, ArithmeticError):
    """A training whose loss is not a number any more."""


class MissingExtraError(KerasformerError, ImportError):
    """An optional dependency that is not installed; the message contains the command that installs it."""


_NEEDED_BY = {"keras": ("tensorflow", "jax", "torch")}
"""Backends of a module, at least one of which must be installed for it to be imported; its extra installs one."""

_LOUD = {"keras", "tensorflow"}
"""Modules whose import logs that there is no GPU, and the like."""


def require(module: str, extra: str) -> ModuleType:
    """Imports an optional dependency; ONNX Runtime is loaded without its telemetry, whichever dependency imports it.

    Args:
        module: Dotted module name, such as `"onnxruntime"`.
        extra: Extra of kerasformer that installs it, such as `"onnx"`.
    Raises:
        MissingExtraError: the module is not installed.
    """
    try:
        with ExitStack() as stack:
            if module not in sys.modules:
                stack.enter_context(telemetry.switched_off())
            if module in _LOUD - sys.modules.keys():
                stack.enter_context(quiet_runtimes())
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing, package = (error.name or "").split(".")[0], module.split(".")[0]
        if missing not in (package, *_NEEDED_BY.get(package, ())):
            raise
        name = module if missing == package else f"{missing}, the backend of {module},"
        raise MissingExtraError(
            f"{name} is required here and is not installed. Install it {installation(extra)}"
        ) from error


def installation(extra: str) -> str:
    """Returns how to install an extra of this package from where the package is from, which is no index of packages.

    An installation from a clone, an archive or a repository has recorded its address (`direct_url.json`, PEP 610).
    """
    import importlib.metadata
    import json
    from urllib.parse import urlparse
    from urllib.request import url2pathname

    try:
        recorded = importlib.metadata.distribution("kerasformer").read_text("direct_url.json")
        origin = json.loads(recorded or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"with: pip install 'kerasformer[{extra}] @ {origin['vcs_info'].get('vcs', 'git')}+{url}'"
    if url and not origin.get("dir_info", {}).get("editable"):
        return f"with: pip install 'kerasformer[{extra}] @ {url}'"
    clone = f"in {url2pathname(urlparse(url).path)}" if url else "in a clone of kerasformer's repository"
    return f'{clone} with: pip install -e ".[{extra}]"'
