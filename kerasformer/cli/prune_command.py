"""`kerasformer prune`, which cuts a model to the tokens that texts need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer.cli.console import Json, Stages, Task, preset_names, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.command_options import PruningOptions
from kerasformer.errors import InputError, require


@with_options([PruningOptions])
def prune(
    source: Annotated[
        str, typer.Argument(help="A checkpoint folder, GGUF file, preset or hub id.", autocompletion=preset_names)
    ],
    destination: Annotated[Path, typer.Argument(help="Folder to write, which must be empty or not exist.")],
    texts: Annotated[
        list[Path],
        typer.Option(
            help="File of sample texts, inputs and outputs of the model: plain lines, TSV, CSV or JSONL; may be "
            "repeated."
        ),
    ],
    task: Task = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Cut a model to the tokens that texts need.

    The result is a checkpoint in Hugging Face's format with a smaller vocabulary. Texts whose tokens are all kept have
    the same tokens and results as before.
    """
    require("keras", "tensorflow")
    from kerasformer import zoo
    from kerasformer.models.variables import release_weights

    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise InputError(f"An empty folder was expected, or none, in which to write the model. Received: {destination}")
    samples = [text for path in texts for text in _texts(path)]
    with Stages(quiet=as_json) as stages:
        model = zoo.load(source, task, keep_dtype=True)
        release_weights(model)
        stages("prune", 0, 0)
        pruned = zoo.prune_vocabulary(model, samples, **passed(options))
        pruned.model.save_pretrained(destination)
    figures = pruned.to_dict()
    if as_json:
        print_json({"folder": str(destination), **figures})
        return
    table(str(destination), ["figure", "before", "after"], _rows(figures))
    say(f"{figures['unchanged_texts']:,} of {figures['texts']:,} texts have the same tokens as before.")
    if dropped := figures["dropped_characters"]:
        say(f"Texts with any of {dropped:,} characters, which have no token any more, are refused.")


def _rows(figures: dict[str, int]) -> list[list[str]]:
    names = {
        "tokens": "tokens of the vocabulary",
        "parameters": "parameters",
        "text_tokens": "tokens of the texts",
        "unknown": "unknown tokens in the texts",
    }
    return [[text, *(f"{figures[f'{name}_{when}']:,}" for when in ("before", "after"))] for name, text in names.items()]


def _texts(path: Path) -> list[str]:
    """Returns all texts of a file: inputs, questions, second texts, and labels that are texts."""
    from kerasformer.evaluation import read_examples

    texts: list[str] = []
    for example in read_examples(path):
        labels = example.label if isinstance(example.label, list | tuple) else [example.label]
        parts = [example.text, example.question, example.pair, *labels]
        texts += [part for part in parts if isinstance(part, str) and part]
    return texts
