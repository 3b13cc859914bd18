"""`kerasformer export`, which writes bundles and lists the runtimes in which they were tested."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerasformer.basics.command_options import SearchLimits
from kerasformer.bundle import ExportOptions, check_destination, tested
from kerasformer.cli.console import Checkpoint, one_of, print_json, say, table
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.cli.measurement import measured, speed_line
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.process import free_tensors

if TYPE_CHECKING:
    from kerasformer.tools.search import Candidate

COLUMNS = ["parts", "MB", "agreement in Keras", "in the runtime", "ms", ""]
NAMES = ("litert", "onnx", "saved_model", "table")
# A copy of values of `kerasformer.export`, whose import would load Keras.
RECIPES = tuple(
    "none fp16 int8 int8_fast int8_weights int8_static int4 int4_mixed int4_distilled int4_channel stored auto".split()
)


def _merged(source: str, task: str | None, adapter: str) -> Any:
    from kerasformer.zoo import load

    model = load(source, task)
    model.load_adapter(adapter)
    model.merge_adapter()
    return model


def _found(model: Any, destination: Path, format: str | None, settings: dict[str, Any], as_json: bool) -> Any:
    """Searches for a recipe and shows the candidates; settings are then those of the export alone."""
    from kerasformer.export import uses_calibration
    from kerasformer.tools.search import candidates

    check_destination(destination, settings.get("overwrite", False))  # a search takes minutes
    tried = candidates(model, format, **settings)
    for name in SearchLimits.__annotations__:
        settings.pop(name, None)
    recipe = next(each.recipe for each in tried if each.chosen)
    if not uses_calibration(recipe, settings.get("cache_dtype")):
        settings.pop("calibration", None)
    if not as_json:
        table("Candidates of the search", COLUMNS, map(_row, tried))
    return recipe


def _row(candidate: Candidate) -> list[str]:
    figures = candidate.agreement, candidate.verified
    return [
        ", ".join(f"{count} {storage}" for storage, count in candidate.parts.items()),
        f"{candidate.megabytes:.2f}",
        *("" if figure is None else f"{figure:.2%}" for figure in figures),
        "" if candidate.latency is None else f"{candidate.latency:.2f}",
        "chosen" if candidate.chosen else "refused" if candidate.refused else "",
    ]


def _list_targets(context: typer.Context, requested: bool) -> None:
    """Prints the tested runtimes and exits; `--json` has been parsed, missing arguments are not yet reported."""
    if not requested:
        return
    runtimes = tested.runtimes().values()
    if context.params.get("as_json"):
        print_json([asdict(runtime) for runtime in runtimes])
        raise typer.Exit
    rows = [
        [runtime.name, task, ", ".join(_with_recipes(models))]
        for runtime in runtimes
        for task, models in runtime.bundles.items()
    ]
    table("Models tested against Keras in each runtime", ["runtime", "task", "models"], rows)
    table("Runtimes", ["export", "tested", "description"], [[r.option, r.version, r.summary] for r in runtimes])
    raise typer.Exit


def _with_recipes(models: dict[str, list[str]]) -> list[str]:
    """Formats model types with their tested recipes other than `none`."""
    others = {name: [recipe for recipe in recipes if recipe != "none"] for name, recipes in models.items()}
    return [f"{name} ({', '.join(recipes)})" if recipes else name for name, recipes in others.items()]


@with_options(
    [ExportOptions, SearchLimits],
    "target",
    "task",
    "capacity",
    "lengths",
    "calibration",
    "texts",
    "max_size",
    "outputs",
    "overwrite",
)
def export(
    source: Checkpoint,
    destination: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[
        str | None,
        typer.Option(help=f"File format: {', '.join(NAMES)}; litert by default.", autocompletion=one_of(*NAMES)),
    ] = None,
    quantize: Annotated[
        str | None,
        typer.Option(
            help=f"Quantization recipe: {', '.join(RECIPES)}; stored by default for a quantized GGUF file, else none.",
            autocompletion=one_of(*RECIPES),
        ),
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(help="Folder of a low-rank adapter of PEFT, which is merged into the weights first.")
    ] = None,
    list_targets: Annotated[
        bool,
        typer.Option(
            "--list-targets", callback=_list_targets, help="List the models tested in each runtime, and exit."
        ),
    ] = False,
    measure: Annotated[
        bool, typer.Option(help="Measure speed and memory on this machine, for the card and the last lines.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON instead of a table.")] = False,
    **options: Any,
) -> None:
    """Export a model to a bundle, and verify the bundle.

    Bundles run in LiteRT, ONNX Runtime or the runtime that --target specifies.
    """
    from kerasformer.bundle import agreement_text, browser_warning

    free_tensors()
    require("keras", "export")
    from kerasformer.bundle.recipes import fallback_text, recipe_line
    from kerasformer.export import export as export_model

    settings = {"progress": not as_json, **passed(options)}
    model = source if adapter is None else _merged(source, settings.get("task"), adapter)
    recipe: Any = quantize
    if quantize == "auto":
        recipe = _found(model, destination, format, settings, as_json)
    elif limits := ", ".join(name for name in SearchLimits.__annotations__ if name in settings):
        raise InputError(f"{limits} is only for --quantize auto. Received: --quantize {quantize or 'none'}")
    written = export_model(model, destination, format, recipe, **settings)
    manifest, figures = written.manifest, measured(written.path, quiet=as_json) if measure else None
    if as_json:
        found = {"files": written.files, "recipe": manifest.recipe, "fidelity": written.fidelity}
        print_json({"folder": str(written), **found, "speed": None if figures is None else asdict(figures)})
        return
    table(str(written), ["file", "bytes"], [[name, f"{size:,}"] for name, size in written.files.items()])
    say(f"{written.model_bytes / 1e6:.1f} MB; {agreement_text(written.fidelity)}. README.md there has all figures.")
    if figures is not None:
        say(f"{speed_line(figures)}.")
    say(recipe_line(manifest.recipe, default=manifest.recipe["name"] == "none"))
    if note := fallback_text(manifest.recipe):
        say(note)
    if settings.get("target") in (None, "transformers.js") and (note := browser_warning(manifest, str(source))):
        say(note)
