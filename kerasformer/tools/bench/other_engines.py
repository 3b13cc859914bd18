"""Other engines that run the files of a bundle as they are, as subjects of a measurement."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerasformer import bundle
from kerasformer.errors import InputError, MissingExtraError
from kerasformer.tools.bench.own_models import size_mb
from kerasformer.tools.bench.question import Facts, Question, Subject, Tokens


class Genai:
    """A bundle in ONNX Runtime GenAI; implements `Subject`.

    Args:
        folder: Folder of a bundle for the target `genai`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def import_runtime(self) -> None:
        """Imports the runtime; see `Subject.import_runtime`."""
        _imported("onnxruntime_genai", "onnxruntime-genai")

    def load(self, threads: int | None) -> Facts:
        """Loads the model; see `Subject.load`."""
        import onnxruntime_genai as genai

        settings = genai.Config(str(self._folder))
        if threads is not None:
            options = {"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}
            settings.overlay(json.dumps(options))
        self._model: Any = genai.Model(settings)
        if (self._folder / "tokenizer.json").exists():  # not in bundles with random weights
            from kerasformer.tokenization import Tokenizer

            self._tokenizer = Tokenizer.load(self._folder)
        facts, self._vocab_size, self._capacity = _facts(self._folder, "onnxruntime-genai")
        return facts

    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        """Runs the model; see `Subject.answer`."""
        import onnxruntime_genai as genai

        ids = question.ids(self._vocab_size)
        if question.texts:
            ids = self._tokenizer(list(question.texts)).input_ids
        length = ids.shape[1] + question.write
        settings = genai.GeneratorParams(self._model)
        # No end token before the last one. The cache has as many slots as the longest text.
        limits = {"min_length": length, "max_length": max(length, self._capacity)}
        settings.set_search_options(do_sample=False, num_beams=1, batch_size=question.batch, **limits)
        generator = genai.Generator(self._model, settings)
        generator.append_tokens(ids.astype("int32"))
        for _ in range(question.write):
            generator.generate_next_token()
            on_token()
        written = len(generator.get_sequence(0)) - ids.shape[1]
        return Tokens(ids.size, question.batch * written)


class LitertLm:
    """A bundle in LiteRT-LM; implements `Subject`.

    It reads texts only, one at a time, and ends an answer at an end token.

    Args:
        folder: Folder of a bundle for the target `litert-lm`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def import_runtime(self) -> None:
        """Imports the runtime; see `Subject.import_runtime`."""
        litert_lm = _imported("litert_lm", "litert-lm-api")
        litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)

    def load(self, threads: int | None) -> Facts:
        """Loads the model; see `Subject.load`."""
        import litert_lm

        # Without files beside the bundle, and with the number of tokens of each answer.
        options: dict[str, Any] = {"cache_dir": ":nocache", "enable_benchmark": True}
        backend = litert_lm.Backend.CPU(thread_count=threads)
        self._engine: Any = litert_lm.Engine(str(self._folder / "model.litertlm"), backend=backend, **options)
        self._greedy = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)
        return _facts(self._folder, "LiteRT-LM")[0]

    def answer(self, question: Question, on_token: Callable[[], object]) -> Tokens:
        """Runs the model; see `Subject.answer`."""
        if len(question.texts) != 1:
            raise InputError(f"LiteRT-LM reads one text at a time. Received: {question}")
        settings = {"apply_prompt_template": False, "max_output_tokens": question.write}
        with self._engine.create_session(sampler_config=self._greedy, **settings) as session:
            session.run_prefill(list(question.texts))
            for _ in session.run_decode_async():
                on_token()
            counts = session.get_benchmark_info()
        return Tokens(counts.last_prefill_token_count, counts.last_decode_token_count)


def _imported(module: str, package: str) -> Any:
    """Imports the module of an engine.

    Raises:
        MissingExtraError: its package is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{package} is not installed. Install it with: pip install {package}")
    return importlib.import_module(module)


def _facts(folder: Path, engine: str) -> tuple[Facts, int, int]:
    """Returns properties of a decoder, the size of its vocabulary and its capacity."""
    manifest = bundle.read(folder, check=False)
    capacity, info = int(manifest.capacity or 0), manifest.info
    return Facts(engine, info.task, True, capacity, size_mb=size_mb(folder)), int(info.vocab_size or 0), capacity


@dataclass(frozen=True)
class Engine:
    """An engine for some bundles.

    Attributes:
        title: Its name.
        file: File that a bundle for it has.
        open: Opens a bundle as a subject.
    """

    title: str
    file: str
    open: Callable[[Path], Subject]


ENGINES = {
    "genai": Engine("onnxruntime-genai", "genai_config.json", Genai),
    "litert-lm": Engine("LiteRT-LM", "model.litertlm", LitertLm),
}
"""Engines by the name of the target that writes their files."""


def engines_of(folder: Path) -> list[str]:
    """Returns the names of the engines that a bundle of a decoder has files for."""
    if not bundle.read(folder, check=False).info.vocab_size:
        return []
    return [name for name, engine in ENGINES.items() if (folder / engine.file).exists()]
