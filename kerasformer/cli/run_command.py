"""`kerasformer run`, which runs a model on texts from the command line or standard input."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain
from typing import Annotated, Any

import typer
from rich.markup import escape

from kerasformer.basics.options import declared
from kerasformer.basics.tasks import ZERO_SHOT_TOKENS
from kerasformer.cli.console import (
    Source,
    Task,
    console,
    delayed_warnings,
    lines_of_stdin,
    on_terminal,
    open_pipeline,
    print_error,
    print_json,
    print_json_line,
    print_row,
    print_rows,
)
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.errors import InputError, KerasformerError, SourceError
from kerasformer.files.reading import decode, local_path, parse_json, read_text
from kerasformer.generation import GenerationConfig


@with_options([GenerationConfig], "max_new_tokens", "num_beams", "temperature", "top_p", "seed", shows_defaults=False)
def run(
    source: Source,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Input texts. If none are given, or with -, lines of standard input are read."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="File whose whole content is one input text; may be repeated. It must be UTF-8."),
    ] = None,
    task: Task = None,
    adapter: Annotated[
        str | None, typer.Option(help="Folder of a low-rank adapter of PEFT, with which the model is run.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            "--question",
            help="Question, for question-answering, whose contexts are the texts; or query, by which the texts are "
            "ranked, for sentence-similarity and classifiers of pairs.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Class, for zero-shot tasks, or type of entities; repeat the option for each."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue texts as they are, without the chat template of a model.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text while it is generated.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON at the end.")] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print each result as a line of JSON as soon as it is available.")
    ] = False,
    **options: Any,
) -> None:
    """Classify, compare or rank texts, answer questions or generate text.

    A model with a chat template answers each text; --raw continues it.

    --set passes any other argument of kerasformer.pipeline or of the pipeline's call, such as top_k, truncation,
    src_lang, stop_strings, json_schema or explain. Bundles run without Keras. If the output is not a terminal, each
    line contains a text, its result and a score, separated by tabs; --json and --jsonl print complete results.
    """
    settings = _settings({**options, "candidate_labels": label, "raw": raw or None})
    explain = bool(settings.get("explain"))
    if stream and (as_json or as_jsonl or explain):
        raise InputError(
            "--stream prints only text. Received: --stream with --json, --jsonl or explain. Leave one out."
        )
    inputs = _inputs(texts, file)
    from kerasformer.pipelines import GenerationPipeline, PipelineOptions

    opening = {name: settings.pop(name) for name in declared(PipelineOptions) if name in settings}
    pipe = open_pipeline(source, task, **opening)
    if pipe.task == "question-answering" and query is not None:
        settings["question"], query = query, None
    if pipe.task == ZERO_SHOT_TOKENS and "candidate_labels" in settings:
        settings["labels"] = settings.pop("candidate_labels")
    _check(pipe, settings, query)
    if stream and not isinstance(pipe, GenerationPipeline):
        raise InputError(f"--stream is for models that generate. Received: a model for {pipe.task}.")
    if adapter is not None:
        pipe.load_adapter(adapter)

    def answer(text: str) -> object:
        return pipe(context=text, **settings) if "question" in settings else pipe(text, **settings)

    def check_settings() -> None:
        # An iterator is read lazily, but the settings are checked at once.
        pipe(iter(()), **{name: value for name, value in settings.items() if name not in ("question", "pair")})

    answers = _Answers(inputs, answer, check_settings, as_jsonl)
    if query is not None:
        answers.answer = str  # only reads the texts
        documents = [(number, each.input) for number, each in enumerate(answers) if each.result is not None]
        ranking = pipe.rank(query, [document.text for _, document in documents], **settings)
        _print_ranking(ranking, documents, query, as_json or as_jsonl)
    elif stream:
        answers.answer = partial(_stream, pipe, settings)
        for each in answers:
            if each.result is None:  # _stream has not ended its line
                print()
    elif as_jsonl:
        for each in answers:
            print_json_line(each.to_dict())
    elif as_json:
        print_json([each.to_dict() for each in answers])
    elif explain:
        for each in answers:
            _print_explanation(each)
    else:
        rows: Iterable[list[str]] = (row for each in answers for row in each.rows())
        if on_terminal():
            rows = _without_repeated_texts(rows)
        print_rows(f"{pipe.task} on {pipe.engine}", ["text", "result", "score"], rows)
    if answers.failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Input:
    """A text from the command line, a file or standard input.

    Attributes:
        text: The text.
        name: Its name in errors, such as `"line 3"`; empty if it is the only one.
        file: File that contains it, if any.
        is_line: Whether it is a line of standard input.
        error: Why it cannot be read.
    """

    text: str
    name: str = ""
    file: str | None = None
    is_line: bool = False
    error: KerasformerError | None = None

    @property
    def label(self) -> str:
        """The file or, if there is none, the text."""
        return self.text if self.file is None else self.file

    @property
    def source(self) -> dict[str, str]:
        """The file or the text, for JSON."""
        return {"text": self.text} if self.file is None else {"file": self.file}


@dataclass(frozen=True)
class _Answer:
    """The result for an input: `None` for a blank line, or after an error."""

    input: _Input
    result: Any = None
    error: str | None = None

    def rows(self) -> list[list[str]]:
        """Returns a row for each result, or one with an empty result, so that each input has a row."""
        return _rows(self.input.label, self.result) or [[self.input.label, ""]]

    def to_dict(self) -> dict[str, object]:
        """Returns the result or the error, for JSON."""
        outcome = {"result": _plain(self.result)} if self.error is None else {"error": self.error}
        return {**self.input.source, **outcome}


@dataclass
class _Answers:
    """Answers inputs one after the other; an input that fails does not end the command.

    Attributes:
        inputs: The inputs.
        answer: Returns the result for a text.
        check_settings: Raises an error for settings that are invalid whatever the text; such an error ends the command.
        quiet: Whether not to print errors, because the output contains them.
        failed: Whether an input failed.
    """

    inputs: Iterable[_Input]
    answer: Callable[[str], object]
    check_settings: Callable[[], None]
    quiet: bool
    failed: bool = False

    def __iter__(self) -> Iterator[_Answer]:
        for each in self.inputs:
            try:
                if each.error is not None:
                    raise each.error
                blank = each.is_line and not each.text.strip()
                answer = _Answer(each, None if blank else self.answer(each.text))
            except KerasformerError as error:
                if each.error is None and not self.failed:
                    self.check_settings()
                self.failed, message = True, str(error)
                if not self.quiet:
                    print_error(": ".join(filter(None, [each.name, message])))
                answer = _Answer(each, error=message)
            yield answer


def _inputs(texts: Sequence[str] | None, files: Sequence[str] | None) -> Iterable[_Input]:
    """Returns the texts of the command line and those of files, or the lines of standard input as they arrive."""
    contents = [_Input(read_text(local_path(file)), file, file) for file in files or ()]
    if texts and texts != ["-"]:
        several = len(texts) + len(contents) > 1
        names = [f"text {number}" if several else "" for number in range(1, len(texts) + 1)]
        return [*map(_decoded, map(os.fsencode, texts), names), *contents]
    if not texts and contents:
        return contents
    if not texts and sys.stdin.isatty():
        raise InputError('A text was expected. Received: none. Try: kerasformer run SOURCE "a text", or echo text |')
    lines = (_decoded(line, f"line {number}", is_line=True) for number, line in enumerate(lines_of_stdin(), 1))
    return chain(lines, contents)


def _decoded(content: bytes, name: str, is_line: bool = False) -> _Input:
    try:
        return _Input(decode(content, "the text"), name, is_line=is_line)
    except SourceError as error:
        return _Input(content.decode(errors="replace"), name, is_line=is_line, error=error)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    settings = passed(options)
    if isinstance(settings.get("json_schema"), str):
        settings["json_schema"] = _schema(settings["json_schema"])
    return settings


def _schema(file: str) -> Any:
    try:
        return parse_json(read_text(local_path(file)), "the schema")
    except SourceError as error:
        raise InputError(f"json_schema must be a JSON file, or JSON. Received: {file!r} ({error})") from error


def _check(pipe: Any, settings: Mapping[str, Any], query: str | None) -> None:
    """Raises `InputError` for a missing option of the task, or for one that it does not have."""
    if "raw" in settings and pipe.task != "text-generation":
        raise InputError(f"--raw is for models that continue texts. Received: a model for {pipe.task}.")
    if pipe.task == "question-answering" and "question" not in settings:
        raise InputError("question-answering needs --question …; the texts are the contexts.")
    if query is not None and not hasattr(pipe, "rank"):
        raise InputError(
            "--query (--question) is for question-answering and for models that rank texts. "
            f"Received: a model for {pipe.task}."
        )
    if pipe.task == "zero-shot-classification" and "candidate_labels" not in settings:
        raise InputError("zero-shot-classification needs --label …, the name of a class.")
    if pipe.task == ZERO_SHOT_TOKENS and "labels" not in settings:
        raise InputError(f"{pipe.task} needs --label …, the name of a type of entities.")
    from kerasformer.pipelines import GenerationPipeline

    if isinstance(pipe, GenerationPipeline):
        return  # the settings of generation are checked with it
    calls = [pipe.__call__ if query is None else pipe.rank, getattr(pipe, "encode", None)]
    parameters = [inspect.signature(call).parameters.values() for call in calls if call is not None]
    named = inspect.Parameter.KEYWORD_ONLY
    known = {each.name: each for each in chain(*parameters) if each.kind is named or each.name == "labels"}
    for name in settings:
        if name not in {*known, "candidate_labels"}:
            near = get_close_matches(name, known, n=1)
            raise InputError(
                f"{pipe.task} has no option {name}. Expected one of {', '.join(known)}. Received: {name}"
                + (f". Did you mean {near[0]}?" if near else "")
            )


def _stream(pipe: Any, settings: Mapping[str, Any], text: str) -> str:
    """Prints a text while it is generated, a continuation after its prompt, and returns it."""
    continues = pipe.task == "text-generation" and not pipe.chats(
        settings.get("raw", False), settings.get("chat_template")
    )
    with delayed_warnings(), pipe.stream(text, **settings) as pieces:
        print(text if continues else "", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print(flush=True)
    return str(pieces.text)


def _print_ranking(
    ranking: Iterable[Mapping[str, Any]], documents: Sequence[tuple[int, _Input]], query: str, as_json: bool
) -> None:
    """Prints the texts with their scores, the best first; JSON has their numbers, which count blank lines, too."""
    ranked = [(*documents[each["corpus_id"]], each) for each in ranking]
    if as_json:
        result = [{**each, "corpus_id": number, **document.source} for number, document, each in ranked]
        print_json({"query": query, "result": result})
        return
    rows = [[document.label, f"{each['score']:.3f}"] for _, document, each in ranked]
    print_rows(query, ["text", "score"], rows)


def _print_explanation(answer: _Answer) -> None:
    if answer.result is None:
        print_row([""])
        return
    for explanation in answer.result if isinstance(answer.result, list) else [answer.result]:
        if on_terminal():
            console.print(f"[bold]{escape(answer.input.label)}[/]")
            console.print(explanation)
            continue
        print_row(explanation.columns)
        for step in explanation.lines:
            print_row([step.input, *("" if cell is None else cell for cell in explanation.cells(step))])


def _plain(answer: Any) -> Any:
    """Converts a result for JSON; an explanation becomes its text and its steps."""
    if isinstance(answer, list):
        return list(map(_plain, answer))
    if hasattr(answer, "lines"):
        return {"generated_text": answer.text, "steps": list(map(dataclasses.asdict, answer.lines))}
    return answer


def _rows(line: str, answer: Any) -> list[list[str]]:
    """Returns a row for each result: the text, the formatted result and, if there is one, its score."""
    if answer is None:
        return []
    if isinstance(answer, list):
        return [row for each in answer for row in _rows(line, each)]
    if not isinstance(answer, dict):
        return [[line, f"{getattr(answer, 'shape', '')} {str(answer)[:200]}".strip()]]
    if "labels" in answer:
        return [[line, label, f"{score:.3f}"] for label, score in zip(answer["labels"], answer["scores"], strict=True)]
    if "multi_vector" in answer:
        return [[line, kind, str(getattr(value, "shape", len(value)))] for kind, value in answer.items()]
    if all(isinstance(weight, float) for weight in answer.values()):
        return [[line, token, f"{weight:.3f}"] for token, weight in answer.items()]  # a sparse vector
    score = [f"{answer['score']:.3f}"] if "score" in answer else []
    return [[line, _readable(answer), *score]]


def _readable(answer: Mapping[str, Any]) -> str:
    texts = [value for key, value in answer.items() if key.endswith("_text") or key in ("answer", "sequence")]
    if texts:
        return str(texts[0])
    name = answer.get("label") or answer.get("entity_group") or answer.get("entity")
    return f"{name}: {answer['word']}" if "word" in answer else str(name)


def _without_repeated_texts(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Blanks the text of a row if it is that of the previous row."""
    previous = None
    for text, *others in rows:
        yield ["" if text == previous else text, *others]
        previous = text
