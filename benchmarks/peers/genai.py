"""onnxruntime-genai in int8 and int4: with files of its own exporter, which does not know GPT-2, and with our files."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import LIBRARIES, Job
from benchmarks.peers.hugging_face import write_tokenizer
from benchmarks.shapes import VOCABULARY
from kerasformer.bench.own_models import size_mb
from kerasformer.bench.question import Facts, Question, Tokens

_CONFIG = "genai_config.json"
_CAPACITY = 1024
"""Slots of the cache, as in a kerasformer bundle by default."""


def write_config(bundle: Path, folder: Path) -> None:
    """Writes the configuration with which onnxruntime-genai runs an ONNX bundle of ours, as `target="genai"` does.

    That target also needs a tokenizer, which checkpoints with random weights lack.
    """
    from kerasformer.bundle import read
    from kerasformer.export.targets.genai import genai_config

    config = genai_config(read(bundle, check=False))
    files = Path(config["model"]["decoder"]["filename"]).parent
    if not (folder / files).exists():  # it refuses paths outside of its folder
        (folder / files).symlink_to(bundle / files)
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class Model:
    """A model of onnxruntime-genai."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def prepare(self) -> None:
        """Exports the checkpoint with `onnxruntime_genai.models.builder` and its default settings."""
        folder, precision = self._job.folder, self._job.variant.rpartition("-")[2]
        source = folder.with_name(f"{folder.name}-source")
        shutil.copytree(self._job.checkpoint, source, dirs_exist_ok=True)
        try:
            write_tokenizer(source)
            package = importlib.util.find_spec("onnxruntime_genai")
            builder = Path(str(package and package.origin)).parent / "models" / "builder.py"
            options = ["-p", precision, "-e", "cpu", "-i", str(source), "-o", str(folder), "-c", str(folder / "cache")]
            subprocess.run([sys.executable, str(builder), *options], check=True)
        finally:
            shutil.rmtree(source)
            shutil.rmtree(folder / "cache", ignore_errors=True)

    def import_runtime(self) -> None:
        """See `Subject.import_runtime`."""
        import onnxruntime_genai  # noqa: F401

    def load(self, threads: int | None) -> Facts:
        """See `Subject.load`."""
        import onnxruntime_genai as genai

        folder, shape = self._job.folder, self._job.shape
        settings = genai.Config(str(folder))
        if threads is not None:
            options = {"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}
            settings.overlay(json.dumps(options))
        self._model: Any = genai.Model(settings)
        # The checkpoint of a variant that runs our files is the bundle.
        files = self._job.checkpoint if self._job.variant in LIBRARIES["genai"].bundles else folder
        return Facts("onnxruntime-genai", shape.kind, shape.generates, _CAPACITY, size_mb=size_mb(files))

    def answer(self, question: Question, on_token: Callable[[], Any]) -> Tokens:
        """See `Subject.answer`."""
        import onnxruntime_genai as genai

        ids = question.ids(VOCABULARY)
        length = question.read + question.write
        settings = genai.GeneratorParams(self._model)
        # The cache has as many slots as the longest text.
        settings.set_search_options(
            do_sample=False, batch_size=question.batch, min_length=length, max_length=max(length, _CAPACITY)
        )
        generator = genai.Generator(self._model, settings)
        generator.append_tokens(ids)
        for _ in range(question.write):
            generator.generate_next_token()
            on_token()
        written = len(generator.get_sequence(0)) - question.read
        return Tokens(ids.size, question.batch * written)
