"""`kerasformer demo`: Keras, LiteRT int8 and ONNX int8 answer the same texts with the shipped presets."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.bundle.sample_texts import examples
from kerasformer.cli.console import Json, Stages, print_json, say, table
from kerasformer.extras import require

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


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the exported bundles.")] = Path("demo-bundles"),
    as_json: Json = False,
) -> None:
    """Run the presets in Keras, LiteRT and ONNX Runtime.

    Each preset is exported in int8; answers, sizes and speeds are compared.
    """
    for module in ("keras", "ai_edge_litert", "onnxruntime"):
        require(module, "all")
    done: list[DemoRow] = []
    answers: dict[str, list[list[str]]] = {}
    with Stages(quiet=as_json) as stages:
        for work in WORKS:
            rows, shown = _compared(work, folder, stages)
            done += rows
            answers |= shown
    if as_json:
        print_json([asdict(row) for row in done])
        return
    for title, shown_rows in answers.items():
        table(title, ["engine", "answer"], shown_rows)
    figures = [
        [
            *(row.preset, row.engine, f"{row.megabytes:.2f}", row.speed),
            *("–" if share is None else f"{share:.1%}" for share in (row.agreement, row.generated, row.same_words)),
        ]
        for row in done
    ]
    shares = ["given texts", "free tokens", "same words"]
    table("Kerasformer on this machine", ["preset", "engine", "MB", "speed", *shares], figures)
    say("Given texts: share of labels, or of next tokens of given texts, equal to those of Keras.")
    say("Free tokens: share of freely generated tokens equal to those of Keras, which diverge after a difference.")
    say("Same words: share of equal words in the answers above.")
    folder = folder.resolve()
    say(f"The bundles are in {folder}. Try: kerasformer run {folder / 'sentiment-bert-tflite'} TEXT")


def _compared(work: DemoWork, folder: Path, stages: Stages) -> tuple[list[DemoRow], dict[str, list[list[str]]]]:
    """Exports a preset and runs its texts on each engine; also returns two texts, each with the answers of all."""
    from kerasformer.export import export
    from kerasformer.pipelines import pipeline
    from kerasformer.zoo import load

    stages(f"{work.preset}: load", 0, 0)
    model = load(work.preset)
    pipes: dict[str, tuple[Any, float, dict[str, Any]]] = {
        KERAS: (pipeline(model, work.task), model.count_params() * 4 / 1e6, {})
    }
    for engine, format in FORMATS.items():

        def report(stage: str, done: int, total: int, name: str = f"{work.preset}, {engine}") -> None:
            stages(f"{name}: {stage}", done, total)

        target = folder / f"{work.preset}-{format}"
        bundle = export(model, target, format, "int8", task=work.task, overwrite=True, progress=report)
        pipes[engine] = (bundle.pipeline(work.task), bundle.model_bytes / 1e6, bundle.fidelity)
    rows, answers = [], {}
    for engine, (pipe, megabytes, figures) in pipes.items():
        stages(f"{work.preset}: {engine}", 0, 0)
        answers[engine], seconds = _timed(pipe, work)
        same_words = None if engine == KERAS else _same_words(answers[KERAS], answers[engine])
        speed = _speed(pipe, work, answers[engine], seconds)
        shares = figures.get("agreement"), figures.get("generated"), same_words
        rows.append(DemoRow(work.preset, engine, megabytes, speed, *shares, seconds))
    shown = {
        f"{work.preset}: {_text(given)}": [[engine, results[index][0]] for engine, results in answers.items()]
        for index, given in enumerate(work.inputs[:2])
    }
    return rows, shown


def _timed(pipe: Any, work: DemoWork) -> tuple[list[tuple[str, list[str]]], float]:
    """Returns each text's answer, for display and as units to compare, and the median time of three runs."""
    answers = [_answer(work.answer(pipe, given)) for given in work.inputs]  # compiles and warms up
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for given in work.inputs:
            work.answer(pipe, given)
        times.append(time.perf_counter() - start)
    return answers, statistics.median(times)


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
    pairs = [(reference, units) for (_, reference), (_, units) in zip(expected, received, strict=True)]
    same = sum(a == b for reference, units in pairs for a, b in zip(reference, units, strict=False))
    return same / sum(max(len(reference), len(units)) for reference, units in pairs)


def _speed(pipe: Any, work: DemoWork, answers: list[tuple[str, list[str]]], seconds: float) -> str:
    if work.task not in ("text-generation", "summarization"):
        texts = sum(1 + len(given.get("documents", ())) for given in work.inputs)
        return f"{seconds / texts * 1e3:.1f} ms/text"
    tokens = sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text, _ in answers)
    if work.task == "text-generation":
        tokens -= sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text in map(_text, work.inputs))
    return f"{tokens / seconds:.0f} token/s"
