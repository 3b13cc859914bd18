"""What several tests read: made once, by whichever worker needs it first, in a folder that all workers share.

The folder lives as long as a run of the tests, or longer if `KERASFORMER_TEST_SHARED` names one that exists. Bundles
are named by what they were made of, so that those of another model or of changed sources are not found.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

import kerasformer as kf

FOLDER = "KERASFORMER_TEST_SHARED"
"""The environment variable that tells workers the folder; without it, `tests/conftest.py` makes and removes one."""
_PACKAGES = ("keras", "tensorflow", "ai-edge-litert", "onnx", "onnxruntime", "tf2onnx")


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The shared folder `name`, which `make` writes if no worker has yet; tests must not change it.

    What a worker that was killed, or whose disk was full, has left is removed and made again.

    Raises:
        OSError: The folder cannot be written; the error names it.
    """
    folder = Path(os.environ[FOLDER]) / name
    with FileLock(f"{folder}.lock"):  # the system releases it when a process dies
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                make(unfinished)
            except OSError as error:
                free = shutil.disk_usage(folder.parent).free
                error.add_note(f"while {unfinished} was written; {free / 1e6:,.0f} MB are free there")
                raise
            unfinished.rename(folder)
    return folder


def exported(model: Any, format: str, recipe: Any = "none", **options: Any) -> Path:
    """The bundle that `export` makes of a model, made once for all tests with equal arguments; they must not change it.

    Args:
        model: A model of the zoo.
        format: Format of the bundle.
        recipe: The recipe, or its name.
        options: Further options of `export`.
    """
    from kerasformer.models.weights_digest import WeightsDigest  # imports Keras, after its backend was chosen

    made_of = (
        type(model).__name__, model.config, WeightsDigest(model)(), _tokenizer(model), format, recipe,
        sorted(options.items()), sources(),
    )  # fmt: skip
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    name = f"{model.config.model_type}-{model.task}-{format}-{getattr(recipe, 'name', recipe)}-{digest}"
    return once(name, lambda folder: kf.export.export(model, folder, format, recipe, **options))


def _tokenizer(model: Any) -> str:
    """Returns a digest of the tokenizer's files."""
    if model.tokenizer is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        model.tokenizer.save(folder)
        return _digest(sorted(Path(folder).iterdir()))


@cache
def sources() -> str:
    """Returns a digest of the package and of the versions of what exports depend on."""
    files = [
        file for package in (kf, kf.export, kf.zoo) for file in sorted(Path(package.__path__[0]).rglob("*.py"))
    ]  # fmt: skip
    return _digest(files) + "".join(map(version, _PACKAGES))


def _digest(files: list[Path]) -> str:
    content = hashlib.sha256()
    for file in files:
        content.update(file.name.encode() + file.read_bytes())
    return content.hexdigest()
