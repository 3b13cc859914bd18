"""How many functions of this package a call passes through: `python -m benchmarks.walk [BUNDLE]`.

Prints the frames between a call of a user and the place where it takes effect, with their files: a token of a bundle
(exported from a preset unless one is passed), also of a stream and of one that the server iterates over, an option of
the command line, an option of an export, and a tensor of a checkpoint.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import kerasformer as kf
from kerasformer import cli, zoo
from kerasformer.engines.litert.step import LiteRTStep
from kerasformer.export import job
from kerasformer.generation import GenerationConfig
from kerasformer.models import weights

ROOTS = {str(Path(module.__file__ or "").parent): module.__name__ for module in (kf, zoo, kf.export)}
"""Names of the package and of the folders that are mapped into it, by their paths."""


class Reached(Exception):
    """The place was reached, and nothing else is of interest."""


@contextmanager
def recorded(owner: Any, name: str, frames: list[traceback.FrameSummary]) -> Iterator[None]:
    """Records the frames of this package that lead to the first call of a function, and ends the call there."""
    original = getattr(owner, name)

    def record(*arguments: Any, **keywords: Any) -> Any:
        frames.extend(frame for frame in traceback.extract_stack()[:-1] if frame.filename.startswith(tuple(ROOTS)))
        raise Reached

    setattr(owner, name, record)
    try:
        yield
    finally:
        setattr(owner, name, original)


def walk(title: str, owner: Any, name: str, call: Callable[[], Any]) -> None:
    frames: list[traceback.FrameSummary] = []
    with recorded(owner, name, frames), suppress(Reached, SystemExit):
        call()
    print(f"\n{title}: {len(frames)} frames in {len({frame.filename for frame in frames})} files")
    for frame in frames:
        root = max((root for root in ROOTS if frame.filename.startswith(root)), key=len)
        print(f"  {ROOTS[root]}{frame.filename.removeprefix(root)}:{frame.lineno} {frame.name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(sys.argv[1]) if sys.argv[1:] else kf.export.export("story-gpt2", Path(folder, "out"))
        pipe = kf.pipeline(bundle)
        prompt, settings = "Once upon a time", {"max_new_tokens": 2}
        walk("A token of a bundle", LiteRTStep, "step", lambda: pipe(prompt, **settings))
        walk("A token of a stream", LiteRTStep, "step", lambda: pipe.stream(prompt, **settings).read())
        walk("A token of the server", LiteRTStep, "step", lambda: list(pipe.prompt(prompt, **settings).steps()))
    command = ["run", "story-gpt2", "Once", "--top-p", "0.9"]
    walk("An option of the command line", GenerationConfig, "replace", lambda: cli.app(command))
    walk(
        "An option of an export",
        job,
        "ExportJob",
        lambda: kf.load("story-gpt2").export("unused", opset=18, format="onnx"),
    )
    walk("A tensor of a checkpoint", weights, "_initialize", lambda: kf.load("story-gpt2"))


if __name__ == "__main__":
    main()
