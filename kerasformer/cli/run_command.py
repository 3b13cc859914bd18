"""`kerasformer run`: texts in, results out, with any source and every setting of generation."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape

from kerasformer.cli.command import PYTHON_NAMES, in_shell, options_of
from kerasformer.cli.console import (
    Source,
    Task,
    console,
    on_terminal,
    open_pipeline,
    print_json,
    print_json_line,
    print_row,
    table,
)
from kerasformer.errors import ArgumentStyle, InputError, KerasformerError, SourceError, argument
from kerasformer.files import local_path, parse_json, read_text


def _in_panel(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


_LENGTH, _SEARCH, _SAMPLING = "Generation: where it ends", "Generation: the search", "Generation: by chance"
_RULES, _SPEED = "Generation: what is said", "Speed"
_SHOWN = "What is shown"


def run(
    context: typer.Context,
    source: Source,
    texts: Annotated[
        list[str] | None, typer.Argument(help="The texts; without any, or with -, standard input: a text a line.")
    ] = None,
    task: Task = None,
    question: Annotated[str | None, typer.Option(help="For question-answering; the texts are contexts.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for classifiers that compare two.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Put before each text, for models that know tasks by it.")] = None,
    truncation: Annotated[
        bool, typer.Option("--truncation", help="Cut texts that are too long, instead of reading them in windows.")
    ] = False,
    window: Annotated[int | None, typer.Option(help="Tokens of a window of a long text.")] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens that neighbouring windows share.")] = None,
    top_k: Annotated[int | None, typer.Option(help="k classes; or samples among the k best tokens.")] = None,
    max_new_tokens: Annotated[int | None, _in_panel(_LENGTH, "Most tokens.")] = None,
    min_new_tokens: Annotated[int | None, _in_panel(_LENGTH, "Fewest tokens.")] = None,
    stop: Annotated[list[str] | None, _in_panel(_LENGTH, "Ends with this text; may be repeated.")] = None,
    max_time: Annotated[float | None, _in_panel(_LENGTH, "Ends after so many seconds.")] = None,
    num_beams: Annotated[int | None, _in_panel(_SEARCH, "Texts that are followed side by side; 1 is greedy.")] = None,
    num_return_sequences: Annotated[int | None, _in_panel(_SEARCH, "Results for each text.")] = None,
    length_penalty: Annotated[float | None, _in_panel(_SEARCH, "Beams: above 0 favours long texts.")] = None,
    temperature: Annotated[float | None, _in_panel(_SAMPLING, "Samples; below 1 is more cautious.")] = None,
    top_p: Annotated[float | None, _in_panel(_SAMPLING, "Samples from the nucleus of this mass.")] = None,
    min_p: Annotated[
        float | None, _in_panel(_SAMPLING, "Samples from tokens with this share of the best one's probability.")
    ] = None,
    seed: Annotated[int | None, _in_panel(_SAMPLING, "Samples the same every time.")] = None,
    repetition_penalty: Annotated[
        float | None, _in_panel(_RULES, "Above 1 makes tokens that were said less likely.")
    ] = None,
    no_repeat_ngram_size: Annotated[int | None, _in_panel(_RULES, "No run of so many tokens occurs twice.")] = None,
    choice: Annotated[list[str] | None, _in_panel(_RULES, "Says one of these; repeat it for each.")] = None,
    regex: Annotated[str | None, _in_panel(_RULES, "Says what this regular expression matches.")] = None,
    json_schema: Annotated[str | None, _in_panel(_RULES, "Says JSON of this schema: a file, or JSON.")] = None,
    negative_prompt: Annotated[str | None, _in_panel(_RULES, "Leads away from what follows this text.")] = None,
    guidance_scale: Annotated[float | None, _in_panel(_RULES, "How far to lead away; try 1.5.")] = None,
    set_: Annotated[
        list[str] | None,
        _in_panel(_RULES, "Any field of GenerationConfig as name=value, the value as JSON; may be repeated.", "--set"),
    ] = None,
    prompt_lookup: Annotated[
        int | None, _in_panel(_SPEED, "Guesses up to so many tokens at once from the text itself.")
    ] = None,
    assistant: Annotated[
        str | None, _in_panel(_SPEED, "A smaller model with the same tokens, which guesses ahead.")
    ] = None,
    threads: Annotated[int | None, _in_panel(_SPEED, "CPU threads of a bundle's runtime.")] = None,
    stream: Annotated[bool, _in_panel(_SHOWN, "Print the text as it is written.", "--stream")] = False,
    explain: Annotated[bool, _in_panel(_SHOWN, "Print the most probable tokens of each step.", "--explain")] = False,
    as_json: Annotated[bool, _in_panel(_SHOWN, "Print JSON, when all is done.", "--json")] = False,
    as_jsonl: Annotated[
        bool, _in_panel(_SHOWN, "Print a line of JSON for each text, as soon as it is answered.", "--jsonl")
    ] = False,
) -> None:
    """Classify, answer or generate; bundles need no Keras.

    In a pipe each line is a text, its result and a score, with tabs between; --json and --jsonl have all of a result.
    """
    if stream and (as_json or as_jsonl or explain):
        raise InputError("--stream prints text alone. Received: it with --json, --jsonl or --explain. Leave one out.")
    lines = _lines(texts)
    settings = _settings(context.params)
    pipe = open_pipeline(task, source, threads)
    _check(pipe, settings, question)

    def answer(line: str) -> Any:
        if question is not None:
            return pipe(question=question, context=line, **settings)
        return pipe(line, **settings)

    if stream:
        _stream(pipe, lines, settings)
    elif as_jsonl:
        _print_json_lines(lines, answer, partial(in_shell, options_of(context.command)))
    elif as_json:
        print_json([{"text": line, "result": _plain(answer(line))} for line in lines])
    elif explain:
        _print_explanations(lines, answer)
    elif on_terminal():
        rows = [row for line in lines for row in _rows(line, answer(line))]
        columns = ["text", "result", "score"] if any(len(row) == 3 for row in rows) else ["text", "result"]
        table(f"{pipe.task} on {pipe.engine}", columns, _without_repeated_texts(rows))
    else:
        for line in lines:
            for row in _rows(line, answer(line)):
                print_row(row)


def _lines(texts: Sequence[str] | None) -> Iterable[str]:
    """The texts that were given, or each line of standard input as it comes."""
    if texts and texts != ["-"]:
        return texts
    if not texts and sys.stdin.isatty():
        raise InputError('A text was expected. Received: none. Try: kerasformer run SOURCE "a text", or echo text |')
    return _lines_of_stdin()


def _lines_of_stdin() -> Iterator[str]:
    try:
        for line in sys.stdin:
            if line.strip():
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input must be UTF-8. Received: {error}. Try: iconv -t utf-8") from error


_NO_SETTINGS = frozenset("source texts task question threads stream as_json as_jsonl set_".split())


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What goes to the pipeline, from the options that were given."""
    settings: dict[str, Any] = {
        PYTHON_NAMES.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name not in _NO_SETTINGS and not any(value is nothing for nothing in (None, False, ()))
    }
    if "json_schema" in settings:
        settings["json_schema"] = _schema(settings["json_schema"])
    return settings | dict(map(_named, options["set_"] or ()))


def _named(pair: str) -> tuple[str, Any]:
    """A setting from `name=value`; a value that is no JSON is a text."""
    name, equals, value = pair.partition("=")
    if not (name and equals):
        raise InputError(f"--set must be name=value. Received: {pair!r}. Try --set early_stopping=true.")
    try:
        return name, parse_json(value, name)
    except SourceError:
        return name, value


def _schema(given: str) -> Any:
    """A JSON schema from a file, or from JSON."""
    try:
        is_json = given.lstrip().startswith("{") or given == "true"
        return parse_json(given if is_json else read_text(local_path(given)), "the schema")
    except SourceError as error:
        raise InputError(f"--json-schema must be a file of JSON, or JSON. Received: {given!r} ({error})") from error


_OF_READING = {"pair", "stride", "top_k", "truncation", "window"}


def _check(pipe: Any, settings: Mapping[str, Any], question: str | None) -> None:
    """Refuses what another task than the model's needs, and misses what its own needs."""
    if question is not None and pipe.task != "question-answering":
        raise InputError(f"{argument('question')} is for question-answering. Received: a model for {pipe.task}.")
    if question is None and pipe.task == "question-answering":
        raise InputError(f"question-answering needs {argument('question', ...)}; the texts are the contexts.")
    if hasattr(pipe, "stream"):
        return
    if foreign := sorted(set(settings) - _OF_READING):
        names = ", ".join(map(argument, foreign))
        raise InputError(f"{names}: only for models that generate. Received: a model for {pipe.task}.")


def _stream(pipe: Any, lines: Iterable[str], settings: dict[str, Any]) -> None:
    """Prints each text as it is written, a continuation after its prompt."""
    if not hasattr(pipe, "stream"):
        raise InputError(f"--stream is for models that generate. Received: a model for {pipe.task}.")
    for line in lines:
        with pipe.stream(line, **settings) as pieces:
            print(line if pipe.task == "text-generation" else "", end="", flush=True)
            for piece in pieces:
                print(piece, end="", flush=True)
        print()


def _print_json_lines(lines: Iterable[str], answer: Callable[[str], Any], style: ArgumentStyle) -> None:
    """A line of JSON for each text; one that cannot be answered has an error, and the others go on."""
    failed = False
    for line in lines:
        try:
            print_json_line({"text": line, "result": _plain(answer(line))})
        except KerasformerError as error:
            failed = True
            print_json_line({"text": line, "error": error.message_in(style)})
    if failed:
        raise typer.Exit(1)


def _print_explanations(lines: Iterable[str], answer: Callable[[str], Any]) -> None:
    for line in lines:
        found = answer(line)
        for explanation in found if isinstance(found, list) else [found]:
            if on_terminal():
                console.print(f"[bold]{escape(line)}[/]")
                console.print(explanation)
                continue
            print_row(explanation.columns)
            for step in explanation.lines:
                print_row([step.input, *("" if cell is None else cell for cell in explanation.cells(step))])


def _plain(answer: Any) -> Any:
    """A result as JSON knows it; an explanation as its text and its lines."""
    if isinstance(answer, list):
        return list(map(_plain, answer))
    if hasattr(answer, "lines"):
        return {"generated_text": answer.text, "steps": list(map(dataclasses.asdict, answer.lines))}
    return answer


def _rows(line: str, answer: Any) -> list[list[str]]:
    """A row for each result: the text, the result in words and, where there is one, its score."""
    if isinstance(answer, list):
        return [row for each in answer for row in _rows(line, each)]
    if not isinstance(answer, dict):
        return [[line, f"{getattr(answer, 'shape', '')} {str(answer)[:200]}".strip()]]
    score = [f"{answer['score']:.3f}"] if "score" in answer else []
    return [[line, _readable(answer), *score]]


def _readable(answer: Mapping[str, Any]) -> str:
    """A result in words."""
    texts = [value for key, value in answer.items() if key.endswith("_text") or key in ("answer", "sequence")]
    if texts:
        return str(texts[0])
    name = answer.get("label") or answer.get("entity_group") or answer.get("entity")
    return f"{name}: {answer['word']}" if "word" in answer else str(name)


def _without_repeated_texts(rows: Sequence[list[str]]) -> list[list[str]]:
    """The same rows; of several results for a text, only the first shows the text."""
    before = [None, *(row[0] for row in rows)]
    return [["" if row[0] == last else row[0], *row[1:]] for row, last in zip(rows, before, strict=False)]
