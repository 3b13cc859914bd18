"""Optional dependencies, which the extras of this package install, and its own tools, which can be removed."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from types import ModuleType

from kerasformer import telemetry
from kerasformer.errors import MissingExtraError
from kerasformer.process import quiet_runtimes

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


def tool(module: str) -> ModuleType:
    """Imports a module of `kerasformer.tools`, for a part of the package that works without it.

    Args:
        module: Dotted name, such as `"kerasformer.tools.gguf"`.
    Raises:
        MissingExtraError: Its folder is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise removed(error) or error from None


def removed(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Returns an error that says which folder is missing, if the missing module is one of `kerasformer.tools`."""
    if not (error.name or "").startswith("kerasformer.tools"):
        return None
    folder = str(error.name).replace(".", "/")
    return MissingExtraError(
        f"The folder {folder} is required here and is not part of this installation. Install kerasformer again, with it"
    )


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
