"""Demo on the shipped presets: Keras, LiteRT int8 and ONNX int8 answer the same texts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasformer.errors import require
from kerasformer.progress import StageProgress
from kerasformer.sample_texts import examples

KERAS = "Keras f32"
FORMATS = {"LiteRT int8": "tflite", "ONNX int8": "onnx"}


@dataclass(frozen=True)
class DemoWork:
    """A preset with pipeline settings; the inputs are the examples of its task."""

    preset: str
    task: str
    most: int | None = None
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Inputs by argument name."""
        return list(examples(self.task)["inputs"][: self.most])

    def answer(self, pipe: Any, given: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns what a pipeline answers to an input."""
        if "query" in given:
            return list(pipe.rank(given["query"], given["documents"], return_documents=True, **self.settings))
        return list(pipe(given["text"], **self.settings))


WORKS = (
    DemoWork("sentiment-bert", "text-classification"),
    DemoWork("story-gpt2", "text-generation", 2, {"max_new_tokens": 40, "do_sample": False}),
    DemoWork("summarizer-t5", "summarization", 2, {"max_new_tokens": 24, "num_beams": 1}),
    DemoWork("embedder-bert", "sentence-similarity"),
)


@dataclass(frozen=True)
class DemoRow:
    """Figures of one preset on one engine.

    Attributes:
        preset: Name of the preset.
        engine: Name of the engine, such as `"LiteRT int8"`.
        megabytes: Size of the model files in 10^6 bytes.
        speed: Speed for display, in ms/text or token/s.
        agreement: Share of answers (labels, or next tokens of given texts) equal to those of Keras, measured during
            export. `None` for Keras.
        generated: Share of freely generated tokens equal to those of Keras, measured during export. `None` for Keras
            and for a model that does not generate.
        same_words: Share of words or ranks in the demo's answers that equal that of the Keras answer at the
            same index. A single different token may change all the text after it. `None` for Keras.
        seconds: Time for all texts, median of three runs.
    """

    preset: str
    engine: str
    megabytes: float
    speed: str
    agreement: float | None
    generated: float | None
    same_words: float | None
    seconds: float


@dataclass(frozen=True)
class DemoExample:
    """Answers of all engines to one text, by engine."""

    preset: str
    text: str
    answers: dict[str, str]


@dataclass(frozen=True)
class DemoReport:
    """Result of the demo; `folder` contains the bundles."""

    folder: Path
    rows: list[DemoRow]
    examples: list[DemoExample]


def run(folder: Path, progress: StageProgress) -> DemoReport:
    """Exports the presets and runs their texts on each engine.

    Args:
        folder: Folder for the bundles; those of an earlier demo are replaced.
        progress: Called at each stage.

    Raises:
        MissingExtraError: Keras or a runtime is not installed.
    """
    for module in ("keras", "ai_edge_litert", "onnxruntime"):
        require(module, "all")
    rows: list[DemoRow] = []
    examples: list[DemoExample] = []
    for work in WORKS:
        done = _work(work, folder, progress)
        rows += done.rows
        examples += done.examples
    return DemoReport(folder.resolve(), rows, examples)


def _work(work: DemoWork, folder: Path, progress: StageProgress) -> DemoReport:
    from kerasformer.export import export
    from kerasformer.pipelines import pipeline
    from kerasformer.zoo import load

    progress(f"{work.preset}: load", 0, 0)
    model = load(work.preset)
    pipes: dict[str, tuple[Any, float, dict[str, Any]]] = {
        KERAS: (pipeline(model, work.task), model.count_params() * 4 / 1e6, {})
    }
    for engine, format in FORMATS.items():

        def report(stage: str, done: int, total: int, name: str = f"{work.preset}, {engine}") -> None:
            progress(f"{name}: {stage}", done, total)

        target = folder / f"{work.preset}-{format}"
        bundle = export(model, target, format, "int8", task=work.task, overwrite=True, progress=report)
        pipes[engine] = (bundle.pipeline(work.task), bundle.model_bytes / 1e6, bundle.fidelity)
    rows, answers = [], {}
    for engine, (pipe, megabytes, figures) in pipes.items():
        progress(f"{work.preset}: {engine}", 0, 0)
        answers[engine], seconds = _timed(pipe, work)
        same_words = None if engine == KERAS else _same_words(answers[KERAS], answers[engine])
        speed = _speed(pipe, work, answers[engine], seconds)
        shares = figures.get("agreement"), figures.get("generated"), same_words
        rows.append(DemoRow(work.preset, engine, megabytes, speed, *shares, seconds))
    examples = [
        DemoExample(work.preset, _text(given), {engine: results[index][0] for engine, results in answers.items()})
        for index, given in enumerate(work.inputs[:2])
    ]
    return DemoReport(folder, rows, examples)


def _timed(pipe: Any, work: DemoWork) -> tuple[list[tuple[str, list[str]]], float]:
    """Returns each text's answer, for display and as units to compare, and the median time of three runs."""
    answers = [_answer(work.answer(pipe, given)) for given in work.inputs]  # compiles and warms up
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for given in work.inputs:
            work.answer(pipe, given)
        times.append(time.perf_counter() - start)
    return answers, sorted(times)[1]


def _text(given: dict[str, Any]) -> str:
    return str(given["query"] if "query" in given else given["text"])


def _answer(result: list[dict[str, Any]]) -> tuple[str, list[str]]:
    if "corpus_id" in result[0]:
        return f"{result[0]['text']} ({result[0]['score']:.3f})", [str(document["corpus_id"]) for document in result]
    if "label" in result[0]:
        return f"{result[0]['label']} ({result[0]['score']:.3f})", [result[0]["label"]]
    text = next(value for key, value in result[0].items() if key.endswith("_text"))
    return text, text.split()


def _same_words(expected: list[tuple[str, list[str]]], received: list[tuple[str, list[str]]]) -> float:
    """Returns the share of units that are equal at the same index."""
    same = total = 0
    for (_, reference), (_, units) in zip(expected, received, strict=True):
        total += max(len(reference), len(units))
        same += sum(a == b for a, b in zip(reference, units, strict=False))
    return same / total


def _speed(pipe: Any, work: DemoWork, answers: list[tuple[str, list[str]]], seconds: float) -> str:
    if work.task not in ("text-generation", "summarization"):
        texts = sum(1 + len(given.get("documents", ())) for given in work.inputs)
        return f"{seconds / texts * 1e3:.1f} ms/text"
    tokens = sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text, _ in answers)
    if work.task == "text-generation":
        tokens -= sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text in map(_text, work.inputs))
    return f"{tokens / seconds:.0f} token/s"
