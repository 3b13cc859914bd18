"""Labelled texts in the forms of an evaluation: the tasks of GLUE, files of references, texts of several sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerasformer.basics.command_options import EvaluationOptions
from kerasformer.errors import InputError
from kerasformer.files.live import is_of
from kerasformer.files.reading import local_path
from kerasformer.pipelines import (
    Columns,
    Example,
    Examples,
    examples,
    is_plain,
    read_examples,
    read_lines,
    read_parallel,
)
from kerasformer.tools.evaluation.glue import glue_task
from kerasformer.tools.evaluation.sentences import sentences


def read_data(
    data: str | os.PathLike[str] | Sequence[Any], labels: Sequence[Any] | None, options: EvaluationOptions
) -> Examples:
    """Returns the examples of a file, or of a list of texts; arguments as for `evaluate`."""
    names = {name: options[name] for name in ("text_column", "label_column") if name in options}  # type: ignore[literal-required]
    references, glue = options.get("references"), options.get("glue")
    if not isinstance(data, str | os.PathLike):
        named = (glue_task(glue).columns if glue else Columns()).named(**names)
        columns = named if is_of(data, "datasets") or named.parts is not None else None
        read = Examples(examples(data, labels, columns))
    elif references:
        if names or glue:
            raise InputError(
                "Files of references are plain lines, without columns. "
                f"Received: {', '.join([*names, *(['glue'] if glue else [])])}. Leave it out"
            )
        read = Examples(read_parallel(Path(data), references))
    else:
        columns = glue_task(glue).columns if glue else Columns()
        read = read_examples(Path(data), **names, columns=columns, skip_bad=options.get("skip_bad", False))
    kept = Examples(read[: options.get("limit")])
    kept.skipped = read.skipped
    return kept


def text_to_text(texts: Sequence[Any], glue: str) -> list[Example]:
    """Returns the texts of a task of GLUE or SuperGLUE as T5 reads them, each with the text that T5 learns to write.

    A text with several right answers is there for each of them, and a noun phrase of WSC that is not the answer is left
    out.

    Args:
        texts: Texts with labels, see `examples`; or rows in the form of the published files.
        glue: Name of the task.

    Raises:
        InputError: there is no such task, or a text does not suit it.

    Reference: Raffel et al. 2020, arXiv:1910.10683, section 2.4 and appendix D.
    """
    task = glue_task(glue)
    read = examples(texts, columns=task.columns if task.columns.parts is not None else None)
    return [
        Example(task.written(example), target, location=example.location)
        for example in read
        for target in task.targets(example)
    ]


def read_documents(
    path: str | Path, text_column: str | None = None, label_column: str | None = None, *, skip_bad: bool = False
) -> Examples:
    """Reads a file of texts of several sentences.

    In a file of plain lines, blank lines separate the texts. Without blank lines, each line is a text; or, if no line
    has several sentences, the whole file is one text. Other files have a text in each row.

    Args:
        path: See `read_examples`, as for the other arguments.
        text_column: Column of the texts.
        label_column: Column of the labels.
        skip_bad: Whether rows that cannot be read are skipped.

    Raises:
        InputError: see `read_examples`.
    """
    read = read_examples(path, text_column, label_column, skip_bad=skip_bad)
    path = local_path(path, InputError)
    if not is_plain(path):
        return read
    by_location = {example.location: example.text for example in read}
    blocks: list[list[str]] = [[]]
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            blocks.append([])
        elif text := by_location.get(f"{path}, line {number}"):
            blocks[-1].append(text)
    blocks = [block for block in blocks if block]
    if len(blocks) == 1 and any(len(sentences(line)) > 1 for line in blocks[0]):
        blocks = [[line] for line in blocks[0]]
    found = Examples(Example("\n".join(block)) for block in blocks)
    found.skipped = read.skipped
    return found
