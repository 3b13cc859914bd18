"""The whole path on the shipped presets: Keras, LiteRT int8 and ONNX int8 answer the same texts."""

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
    """A preset with texts for it."""

    preset: str
    task: str
    texts: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)


def _texts(task: str) -> tuple[str, ...]:
    return tuple(example["text"] for example in examples(task)["inputs"])


WORKS = (
    DemoWork("sentiment-bert", "text-classification", _texts("text-classification")),
    DemoWork(
        "story-gpt2", "text-generation", _texts("text-generation")[:2], {"max_new_tokens": 40, "do_sample": False}
    ),
    DemoWork("summarizer-t5", "summarization", _texts("summarization")[:2], {"max_new_tokens": 24, "num_beams": 1}),
)


@dataclass(frozen=True)
class DemoRow:
    """One preset on one engine.

    Attributes:
        megabytes: Size of the model files in 10^6 bytes.
        speed: Words for the time that a text or token takes.
        agreement: Share of answers, a label or the next token of a given text, that are those of Keras; measured when
            the bundle was made. `None` for Keras itself.
        same_words: Share of the words of the demo's own answers that are the same and stand at the same place: where
            one token differs, a generated text goes another way from there on. `None` for Keras itself.
        seconds: For all texts, the median of three runs.
    """

    preset: str
    engine: str
    megabytes: float
    speed: str
    agreement: float | None
    same_words: float | None
    seconds: float


@dataclass(frozen=True)
class DemoExample:
    """What the engines say to one text."""

    preset: str
    text: str
    answers: dict[str, str]


@dataclass(frozen=True)
class DemoReport:
    """All of the demo; `folder` holds the bundles."""

    folder: Path
    rows: list[DemoRow]
    examples: list[DemoExample]


def run(folder: Path, progress: StageProgress) -> DemoReport:
    """Exports the presets and runs their texts on each engine.

    Args:
        folder: Where the bundles go; those of an earlier demo are replaced.
        progress: Is told each stage.

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
    pipes = {KERAS: (pipeline(work.task, model), model.count_params() * 4 / 1e6, None)}
    for engine, format in FORMATS.items():

        def tell(stage: str, done: int, total: int, name: str = f"{work.preset}, {engine}") -> None:
            progress(f"{name}: {stage}", done, total)

        place = folder / f"{work.preset}-{format}"
        bundle = export(model, place, format, "int8", task=work.task, overwrite=True, progress=tell)
        pipes[engine] = (bundle.pipeline(work.task), bundle.model_bytes / 1e6, bundle.fidelity["agreement"])
    rows, answers = [], {}
    for engine, (pipe, megabytes, agreement) in pipes.items():
        progress(f"{work.preset}: {engine}", 0, 0)
        answers[engine], seconds = _timed(pipe, work)
        same_words = None if engine == KERAS else _same_words(answers[KERAS], answers[engine])
        speed = _speed(pipe, work, answers[engine], seconds)
        rows.append(DemoRow(work.preset, engine, megabytes, speed, agreement, same_words, seconds))
    examples = [
        DemoExample(work.preset, text, {engine: given[index][0] for engine, given in answers.items()})
        for index, text in enumerate(work.texts[:2])
    ]
    return DemoReport(folder, rows, examples)


def _timed(pipe: Any, work: DemoWork) -> tuple[list[tuple[str, list[str]]], float]:
    """Each text's answer, as it reads and as the units that are compared; and the median time of three runs."""
    answers = [_answer(pipe(text, **work.settings)) for text in work.texts]  # compiles and warms up
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        for text in work.texts:
            pipe(text, **work.settings)
        times.append(time.perf_counter() - begin)
    return answers, sorted(times)[1]


def _answer(result: list[dict[str, Any]]) -> tuple[str, list[str]]:
    if "label" in result[0]:
        return f"{result[0]['label']} ({result[0]['score']:.3f})", [result[0]["label"]]
    text = next(value for key, value in result[0].items() if key.endswith("_text"))
    return text, text.split()


def _same_words(expected: list[tuple[str, list[str]]], received: list[tuple[str, list[str]]]) -> float:
    """Share of units that stand at the same place."""
    same = total = 0
    for (_, wanted), (_, given) in zip(expected, received, strict=True):
        total += max(len(wanted), len(given))
        same += sum(a == b for a, b in zip(wanted, given, strict=False))
    return same / total


def _speed(pipe: Any, work: DemoWork, answers: list[tuple[str, list[str]]], seconds: float) -> str:
    if work.task == "text-classification":
        return f"{seconds / len(work.texts) * 1e3:.1f} ms/text"
    tokens = sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text, _ in answers)
    if work.task == "text-generation":
        tokens -= sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text in work.texts)
    return f"{tokens / seconds:.0f} token/s"
