"""`kerasformer run`: texts in, results out, with any source and every setting of generation."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from kerasformer.cli_output import Source, Task, console, import_keras, print_json, table
from kerasformer.errors import InputError


def _in_panel(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


_LENGTH, _SEARCH, _SAMPLING = "Generation: where it ends", "Generation: the search", "Generation: by chance"
_RULES, _SPEED = "Generation: what is said", "Speed"
_SHOWN = "What is shown"


def run(
    context: typer.Context,
    source: Source,
    texts: Annotated[list[str], typer.Argument(help="The texts; - reads standard input, a text a line.")],
    task: Task = None,
    question: Annotated[str | None, typer.Option(help="For question-answering; the texts are contexts.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Put before each text, for models that know tasks by it.")] = None,
    truncation: Annotated[bool, typer.Option("--truncation", help="Cut texts that are too long.")] = False,
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
    threads: Annotated[int | None, _in_panel(_SPEED, "Of a bundle's runtime.")] = None,
    stream: Annotated[bool, _in_panel(_SHOWN, "Print the text as it is written.", "--stream")] = False,
    explain: Annotated[bool, _in_panel(_SHOWN, "Print the most probable tokens of each step.", "--explain")] = False,
    as_json: Annotated[bool, _in_panel(_SHOWN, "Print JSON instead of a table.", "--json")] = False,
) -> None:
    """Classify, answer or generate, with any source; bundles need no Keras."""
    from kerasformer import sources
    from kerasformer.pipelines import pipeline

    if stream and (as_json or explain):
        raise InputError("--stream prints text alone. Received: it with --json or --explain. Leave one out.")
    settings = _settings(context.params)
    if sources.kind(sources.resolve(source)) == "checkpoint":
        import_keras("tensorflow")
    lines = [line.rstrip("\n") for line in sys.stdin if line.strip()] if texts == ["-"] else texts
    pipe = pipeline(task, source, num_threads=threads)
    _check(pipe, settings)
    if stream:
        _stream(pipe, lines, settings)
        return
    answers = _answers(pipe, lines, question, settings)
    if as_json:
        print_json([{"text": line, "result": _plain(each)} for line, each in zip(lines, answers, strict=True)])
    elif explain:
        _print_explanations(lines, answers)
    else:
        rows = [[line, _readable(answer)] for line, answer in zip(lines, answers, strict=True)]
        table(f"{pipe.task} on {pipe.engine}", ["text", "result"], rows)


_NO_SETTINGS = frozenset("source texts task question threads stream as_json set_".split())
_ELSEWHERE = {"choice": "choices", "prompt_lookup": "prompt_lookup_num_tokens"}
"""Options with the name that a pipeline knows them by."""


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What goes to the pipeline, from the options that were given."""
    settings: dict[str, Any] = {
        _ELSEWHERE.get(name, name): list(value) if isinstance(value, tuple) else value
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
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _schema(given: str) -> Any:
    """A JSON schema from a file, or from JSON."""
    try:
        return json.loads(
            given if given.lstrip().startswith("{") or given == "true" else Path(given).read_text("utf-8")
        )
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"--json-schema must be a file of JSON, or JSON. Received: {given!r} ({error})") from error


def _check(pipe: Any, settings: Mapping[str, Any]) -> None:
    """Refuses settings of generation for a model that does not generate."""
    if hasattr(pipe, "stream"):
        return
    if foreign := sorted(set(settings) - {"top_k", "truncation"}):
        raise InputError(f"{', '.join(foreign)}: only for models that generate. Received: a model for {pipe.task}.")


def _answers(pipe: Any, lines: Sequence[str], question: str | None, settings: dict[str, Any]) -> list[Any]:
    if pipe.task != "question-answering":
        return [pipe(line, **settings) for line in lines]
    if question is None:
        raise InputError("question-answering needs --question; the texts are the contexts.")
    return [pipe(question=question, context=line, **settings) for line in lines]


def _stream(pipe: Any, lines: Sequence[str], settings: dict[str, Any]) -> None:
    """Prints each text as it is written, a continuation after its prompt."""
    if not hasattr(pipe, "stream"):
        raise InputError(f"--stream is for models that generate. Received: a model for {pipe.task}.")
    for line in lines:
        with pipe.stream(line, **settings) as pieces:
            print(line if pipe.task == "text-generation" else "", end="", flush=True)
            for piece in pieces:
                print(piece, end="", flush=True)
        print()


def _print_explanations(lines: Sequence[str], answers: Sequence[Any]) -> None:
    for line, answer in zip(lines, answers, strict=True):
        console.print(f"[bold]{escape(line)}[/]")
        for explanation in answer if isinstance(answer, list) else [answer]:
            console.print(explanation)


def _plain(answer: Any) -> Any:
    """A result as JSON knows it; an explanation as its text and its lines."""
    if isinstance(answer, list):
        return list(map(_plain, answer))
    if hasattr(answer, "lines"):
        return {"generated_text": answer.text, "steps": list(map(dataclasses.asdict, answer.lines))}
    return answer


def _readable(answer: Any) -> str:
    """A result in words."""
    if isinstance(answer, list):
        return "\n".join(map(_readable, answer))
    if not isinstance(answer, dict):
        return f"{getattr(answer, 'shape', '')} {str(answer)[:200]}".strip()
    texts = [value for key, value in answer.items() if key.endswith("_text") or key in ("answer", "sequence")]
    if texts:
        return str(texts[0]) + (f" ({answer['score']:.3f})" if "score" in answer else "")
    name = answer.get("label") or answer.get("entity_group") or answer.get("entity")
    word = f": {answer['word']}" if "word" in answer else ""
    return f"{name}{word} ({answer['score']:.3f})"
