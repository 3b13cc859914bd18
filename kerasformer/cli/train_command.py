"""`kerasformer train`, which trains a model as a recipe describes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerasformer.cli.console import say
from kerasformer.extras import require
from kerasformer.files.reading import setting_of
from kerasformer.process import keep_memory


def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe, a TOML file.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="New folder for the model.", show_default=False)],
    data: Annotated[Path, typer.Option(help="Folder of the files that the recipe names.")] = Path(),
    picture: Annotated[
        Path | None, typer.Option(help="Picture of the curve, ending in .png or .svg; needs the extra viz.")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard; needs the extra train.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Another value, as table.key=value. May be repeated.")
    ] = None,
) -> None:
    """Train a model as a recipe describes, and save it in Hugging Face's format.

    The state is kept in a folder beside OUT, with the suffix .training, until the model is saved: after a kill, the
    same command continues where it was.
    """
    require("keras", "train")
    from kerasformer.tools.training.recipe import Recipe, train

    changes = dict(map(setting_of, set_ or ()))
    with keep_memory():
        train(Recipe.read(recipe, changes), data, out, picture=picture, tensorboard=tensorboard, verbose=2)
    say(f"Saved to {out}")
