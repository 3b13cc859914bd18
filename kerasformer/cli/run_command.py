"""`kerasformer run`, which runs a model on texts from the command line or standard input."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any

import typer
from rich.markup import escape

from kerasformer.cli.command import PYTHON_NAMES
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
    table,
)
from kerasformer.errors import InputError, KerasformerError, SourceError
from kerasformer.files import decode, local_path, parse_json, read_text
from kerasformer.tasks import of_prefix


def _in_panel(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


_LENGTH, _SEARCH, _SAMPLING = "Generation: length", "Generation: search", "Generation: sampling"
_RULES, _SPEED = "Generation: constraints", "Speed"
_OUTPUT = "Output"


def run(
    context: typer.Context,
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
    question: Annotated[
        str | None, typer.Option(help="Question, for question-answering; the texts are the contexts.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Second text, for classifiers of pairs of texts.")] = None,
    query: Annotated[
        str | None,
        typer.Option(help="Query, by which the texts are ranked; for sentence-similarity and classifiers of pairs."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Class, for zero-shot-classification; repeat the option for each.")
    ] = None,
    hypothesis_template: Annotated[
        str | None, typer.Option(help="Sentence about a class for zero-shot-classification, with {} for its name.")
    ] = None,
    multi_label: Annotated[
        bool, typer.Option("--multi-label", help="Score each class of zero-shot-classification by itself.")
    ] = False,
    aggregation_strategy: Annotated[
        str | None,
        typer.Option(
            help="Grouping of tokens to entities for token-classification: none, simple, first, average or max."
        ),
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option(help="Prompt of the model to put before each text, for sentence-similarity.")
    ] = None,
    truncate_dim: Annotated[
        int | None, typer.Option(help="Number of first entries of each embedding to keep, for sentence-similarity.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help='Task prefix to put before each text, such as "summarize: ".')
    ] = None,
    src_lang: Annotated[str | None, typer.Option(help="Language of the texts, for translation.")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="Language of the results, for translation.")] = None,
    glossary: Annotated[
        str | None,
        typer.Option(
            help="File with a term and its translation in each line, separated by a tab, for translation with beams."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Read a text in parts: sentences or chunks, for translation; chunks of sentences, for summarization."
        ),
    ] = None,
    return_scores: Annotated[
        bool, typer.Option("--return-scores", help="Score each result of translation or summarization.")
    ] = False,
    truncation: Annotated[
        bool, typer.Option("--truncation", help="Read only the start of texts that are too long.")
    ] = False,
    chunk_length: Annotated[
        int | None, typer.Option(help="Length of the chunks that a long text is split into, in tokens.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Overlap of neighbouring chunks of a long text, in tokens.")
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help="Combination of the chunks' results: mean or max of scores; tokens or entities."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Number of classes to return, or of most probable tokens to sample from.")
    ] = None,
    max_new_tokens: Annotated[int | None, _in_panel(_LENGTH, "Maximum number of new tokens.")] = None,
    min_new_tokens: Annotated[int | None, _in_panel(_LENGTH, "Minimum number of new tokens.")] = None,
    stop: Annotated[list[str] | None, _in_panel(_LENGTH, "Stop when this text is generated; may be repeated.")] = None,
    max_time: Annotated[float | None, _in_panel(_LENGTH, "Stop after this time, in seconds.")] = None,
    num_beams: Annotated[int | None, _in_panel(_SEARCH, "Number of beams; 1 is greedy search.")] = None,
    num_return_sequences: Annotated[int | None, _in_panel(_SEARCH, "Number of results for each text.")] = None,
    length_penalty: Annotated[
        float | None, _in_panel(_SEARCH, "Exponent of the length penalty of beams; above 0 favours longer texts.")
    ] = None,
    temperature: Annotated[
        float | None, _in_panel(_SAMPLING, "Sampling temperature; lower values are more deterministic.")
    ] = None,
    top_p: Annotated[
        float | None,
        _in_panel(_SAMPLING, "Sample from the most probable tokens whose probabilities add up to this value."),
    ] = None,
    min_p: Annotated[
        float | None,
        _in_panel(_SAMPLING, "Sample from tokens with at least this fraction of the highest probability."),
    ] = None,
    seed: Annotated[int | None, _in_panel(_SAMPLING, "Random seed, for reproducible samples.")] = None,
    repetition_penalty: Annotated[
        float | None, _in_panel(_RULES, "Penalty for repeated tokens; above 1 makes them less likely.")
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, _in_panel(_RULES, "Length of token sequences that must not occur twice.")
    ] = None,
    choice: Annotated[
        list[str] | None, _in_panel(_RULES, "Allowed answer; repeat the option for each alternative.")
    ] = None,
    regex: Annotated[str | None, _in_panel(_RULES, "Regular expression that the output must match.")] = None,
    json_schema: Annotated[
        str | None, _in_panel(_RULES, "JSON schema that the output must follow: a file, or JSON.")
    ] = None,
    negative_prompt: Annotated[
        str | None, _in_panel(_RULES, "Prompt whose continuations are made less likely, with --guidance-scale.")
    ] = None,
    guidance_scale: Annotated[
        float | None, _in_panel(_RULES, "Strength of classifier-free guidance; above 1; try 1.5.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        _in_panel(_RULES, "Any field of GenerationConfig as name=value, the value as JSON; may be repeated.", "--set"),
    ] = None,
    prompt_lookup: Annotated[
        int | None,
        _in_panel(_SPEED, "Maximum number of tokens to guess at once, from earlier occurrences in the text."),
    ] = None,
    assistant: Annotated[
        str | None, _in_panel(_SPEED, "Smaller model with the same tokenizer, which guesses tokens ahead.")
    ] = None,
    threads: Annotated[int | None, _in_panel(_SPEED, "Number of CPU threads of a bundle's runtime.")] = None,
    stream: Annotated[bool, _in_panel(_OUTPUT, "Print the text while it is generated.", "--stream")] = False,
    explain: Annotated[bool, _in_panel(_OUTPUT, "Print the most probable tokens of each step.", "--explain")] = False,
    as_json: Annotated[bool, _in_panel(_OUTPUT, "Print all results as JSON at the end.", "--json")] = False,
    as_jsonl: Annotated[
        bool, _in_panel(_OUTPUT, "Print each result as a line of JSON as soon as it is available.", "--jsonl")
    ] = False,
) -> None:
    """Classify, compare or rank texts, answer questions or generate text.

    Bundles run without Keras. If the output is not a terminal, each line contains a text, its result and a score,
    separated by tabs; --json and --jsonl print complete results.
    """
    if stream and (as_json or as_jsonl or explain):
        raise InputError(
            "--stream prints only text. Received: --stream with --json, --jsonl or --explain. Leave one out."
        )
    inputs = _inputs(texts, file)
    settings = _settings(context.params)
    pipe = open_pipeline(task, source, threads)
    _check(pipe, settings, question, query)
    if stream and not hasattr(pipe, "stream"):
        raise InputError(f"--stream is for models that generate. Received: a model for {pipe.task}.")
    if adapter is not None:
        pipe.load_adapter(adapter)
    if question is not None and "stride" in settings:
        settings["doc_stride"] = settings.pop("stride")

    def answer(text: str) -> Any:
        if question is not None:
            return pipe(question=question, context=text, **settings)
        return pipe(text, **settings)

    def check_settings() -> None:
        # An iterator is read lazily, but the settings are checked at once.
        pipe(iter(()), **{name: value for name, value in settings.items() if name not in ("question", "pair")})

    answers = _Answers(inputs, answer, check_settings, as_jsonl)
    if query is not None:
        answers.answer = str  # only reads the texts
        documents = {number: each.input for number, each in enumerate(answers) if each.result is not None}
        ranking = pipe.rank(query, [document.text for document in documents.values()], **settings)
        _print_ranking(_with_numbers(ranking, documents), query, as_json or as_jsonl)
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
    elif on_terminal():
        rows = [row for each in answers for row in each.rows()]
        columns = ["text", "result", "score"] if any(len(row) == 3 for row in rows) else ["text", "result"]
        table(f"{pipe.task} on {pipe.engine}", columns, _without_repeated_texts(rows))
    else:
        for each in answers:
            for row in each.rows():
                print_row(row)
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

    def to_dict(self) -> dict[str, Any]:
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
    answer: Callable[[str], Any]
    check_settings: Callable[[], None]
    quiet: bool
    failed: bool = False

    def __iter__(self) -> Iterator[_Answer]:
        for each in self.inputs:
            if each.error is not None:
                yield self._failed(each, each.error)
                continue
            try:
                blank = each.is_line and not each.text.strip()
                answer = _Answer(each, None if blank else self.answer(each.text))
            except KerasformerError as error:
                if not self.failed:
                    self.check_settings()
                answer = self._failed(each, error)
            yield answer

    def _failed(self, each: _Input, error: KerasformerError) -> _Answer:
        self.failed = True
        message = str(error)
        if not self.quiet:
            print_error(": ".join(filter(None, [each.name, message])))
        return _Answer(each, error=message)


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


_NO_SETTINGS = frozenset("source texts file task adapter question query threads stream as_json as_jsonl set_".split())


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the pipeline call for the options that were set."""
    settings: dict[str, Any] = {
        PYTHON_NAMES.get(name, name): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name not in _NO_SETTINGS and not any(value is unset for unset in (None, False, ()))
    }
    if "json_schema" in settings:
        settings["json_schema"] = _schema(settings["json_schema"])
    if "glossary" in settings:
        settings["glossary"] = _glossary(settings["glossary"])
    return settings | dict(map(setting_of, options["set_"] or ()))


def setting_of(pair: str) -> tuple[str, Any]:
    """Parses `name=value`; a value that is not JSON is a string."""
    name, equals, value = pair.partition("=")
    if not (name and equals):
        raise InputError(f"--set must be name=value. Received: {pair!r}. Try --set early_stopping=true.")
    try:
        return name, parse_json(value, name)
    except SourceError:
        return name, value


def _schema(value: str) -> Any:
    """Parses a JSON schema, given as JSON or as the path of a file."""
    try:
        is_json = value.lstrip().startswith("{") or value == "true"
        return parse_json(value if is_json else read_text(local_path(value)), "the schema")
    except SourceError as error:
        raise InputError(f"--json-schema must be a JSON file, or JSON. Received: {value!r} ({error})") from error


def _glossary(file: str) -> dict[str, str]:
    """Reads the terms of a file and their translations."""
    lines = [line.split("\t") for line in read_text(local_path(file)).splitlines() if line.strip()]
    for line in lines:
        if len(line) != 2:
            raise InputError(
                "Each line of a glossary must be a term and its translation, separated by a tab. Received: "
                f"{' '.join(line)!r}"
            )
    return {source: target for source, target in lines}


_SHORTENED = frozenset({"truncation"})
_IN_CHUNKS = frozenset({"chunk_length", "stride", "truncation"})
_COMBINED = _IN_CHUNKS | {"combine"}
_EMBEDDINGS = _IN_CHUNKS | {"truncate_dim"}

_OPTIONS: dict[str, frozenset[str]] = {
    "feature-extraction": _IN_CHUNKS,
    "fill-mask": _SHORTENED | {"top_k"},
    "question-answering": frozenset({"chunk_length", "stride", "top_k"}),
    "sentence-similarity": _EMBEDDINGS | {"prompt_name"},
    "text-classification": _COMBINED | {"pair", "top_k"},
    "token-classification": _COMBINED | {"aggregation_strategy"},
    "zero-shot-classification": _COMBINED | {"candidate_labels", "hypothesis_template", "multi_label"},
}
"""Options of each task that does not generate; those of generation are checked with its settings."""
_TO_TEXT = frozenset("prefix src_lang tgt_lang split chunk_length return_scores truncation top_k".split())
_FROM_TEXT = {
    "summarization": _TO_TEXT,
    "text2text-generation": _TO_TEXT,
    "translation": _TO_TEXT | {"glossary"},
}
"""Options of the tasks from text to text."""
_FOR_RANKING = {"sentence-similarity": _EMBEDDINGS | {"top_k"}, "text-classification": _COMBINED | {"top_k"}}
_FOR_GENERATION = frozenset({"top_k", "truncation"})
"""Options that generation shares with other tasks."""


def _check(pipe: Any, settings: Mapping[str, Any], question: str | None, query: str | None) -> None:
    """Raises `InputError` for options that the task of the model does not support, or for a missing question."""
    if question is not None and pipe.task != "question-answering":
        raise InputError(f"--question is for question-answering. Received: a model for {pipe.task}.")
    if question is None and pipe.task == "question-answering":
        raise InputError("question-answering needs --question …; the texts are the contexts.")
    if query is not None and not hasattr(pipe, "rank"):
        raise InputError(f"--query is for models that rank texts. Received: a model for {pipe.task}.")
    if pipe.task == "zero-shot-classification" and "candidate_labels" not in settings:
        raise InputError("zero-shot-classification needs --label …, the name of a class.")
    for_others = frozenset().union(*_OPTIONS.values(), *_FROM_TEXT.values()) - _FOR_GENERATION
    if hasattr(pipe, "stream"):
        unsupported = set(settings) & (for_others - _FROM_TEXT.get(of_prefix(pipe.task), frozenset()))
    else:
        unsupported = set(settings) - (_OPTIONS if query is None else _FOR_RANKING)[pipe.task]
    if unsupported:
        names = ", ".join(sorted(unsupported))
        purpose = (
            "not for this task" if unsupported <= for_others | _FOR_GENERATION else "only for models that generate"
        )
        raise InputError(f"{names}: {purpose}. Received: a model for {pipe.task}.")


def _stream(pipe: Any, settings: Mapping[str, Any], text: str) -> str:
    """Prints a text while it is generated, a continuation after its prompt, and returns it."""
    with delayed_warnings(), pipe.stream(text, **settings) as pieces:
        print(text if pipe.task == "text-generation" else "", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print(flush=True)
    return str(pieces.text)


def _with_numbers(
    ranking: Iterable[Mapping[str, Any]], documents: Mapping[int, _Input]
) -> list[tuple[_Input, dict[str, Any]]]:
    """Returns the ranked documents with their numbers among all inputs, of which blank lines are not ranked."""
    numbers = list(documents)
    ranked = [{**each, "corpus_id": numbers[each["corpus_id"]]} for each in ranking]
    return [(documents[each["corpus_id"]], each) for each in ranked]


def _print_ranking(ranking: Sequence[tuple[_Input, Mapping[str, Any]]], query: str, as_json: bool) -> None:
    """Prints the texts with their scores, the best first."""
    if as_json:
        print_json({"query": query, "result": [{**each, **document.source} for document, each in ranking]})
        return
    rows = [[document.label, f"{each['score']:.3f}"] for document, each in ranking]
    if on_terminal():
        table(query, ["text", "score"], rows)
        return
    for row in rows:
        print_row(row)


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
    score = [f"{answer['score']:.3f}"] if "score" in answer else []
    return [[line, _readable(answer), *score]]


def _readable(answer: Mapping[str, Any]) -> str:
    """Formats a result."""
    texts = [value for key, value in answer.items() if key.endswith("_text") or key in ("answer", "sequence")]
    if texts:
        return str(texts[0])
    name = answer.get("label") or answer.get("entity_group") or answer.get("entity")
    return f"{name}: {answer['word']}" if "word" in answer else str(name)


def _without_repeated_texts(rows: Sequence[list[str]]) -> list[list[str]]:
    """Blanks the text of a row if it is that of the previous row."""
    previous = [None, *(row[0] for row in rows)]
    return [["" if row[0] == text else row[0], *row[1:]] for row, text in zip(rows, previous, strict=False)]
