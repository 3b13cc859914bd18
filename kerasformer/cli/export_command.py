"""`kerasformer export`: a model becomes a bundle; and the list of runtimes in which bundles were tested."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer import tested
from kerasformer.cli.console import Task, one_of, preset_names, print_json, say, table
from kerasformer.errors import require

# Of `kerasformer.export`, which would load Keras.
FORMATS = ("tflite", "onnx", "saved-model")
RECIPES = ("none", "fp16", "int8", "int8_weights", "int8_static", "int4", "auto")
TARGETS = ("mediapipe", "litert-lm", "litert-web", "transformers.js", "optimum", "genai", "saved-model")


def _list_targets(context: typer.Context, wanted: bool) -> None:
    """Prints what was tested where; `--json` is known by now, and what is missing is not yet asked for."""
    if not wanted:
        return
    found = tested.runtimes().values()
    if context.params.get("as_json"):
        print_json([asdict(runtime) for runtime in found])
        raise typer.Exit
    rows = [
        [runtime.name, task, ", ".join(_with_recipes(models))]
        for runtime in found
        for task, models in runtime.bundles.items()
    ]
    table("Bundles whose answers are those of Keras there, each by a test", ["runtime", "task", "models"], rows)
    table("Runtimes", ["export", "tested", "what it is"], [[r.option, r.version, r.summary] for r in found])
    raise typer.Exit


def _with_recipes(models: dict[str, list[str]]) -> list[str]:
    """Model types, each with the recipes other than `none` that were tested."""
    others = {name: [recipe for recipe in recipes if recipe != "none"] for name, recipes in models.items()}
    return [f"{name} ({', '.join(recipes)})" if recipes else name for name, recipes in others.items()]


def export(
    source: Annotated[
        str, typer.Argument(help="A checkpoint folder, a preset or a hub id.", autocompletion=preset_names)
    ],
    destination: Annotated[Path, typer.Argument(help="The folder to write.")],
    format: Annotated[
        str | None, typer.Option(help=f"{', '.join(FORMATS)}; tflite by default.", autocompletion=one_of(*FORMATS))
    ] = None,
    quantize: Annotated[str, typer.Option(help=f"{', '.join(RECIPES)}.", autocompletion=one_of(*RECIPES))] = "none",
    target: Annotated[
        str | None,
        typer.Option(
            help=f"A runtime of others that is to run it: {', '.join(TARGETS)}.", autocompletion=one_of(*TARGETS)
        ),
    ] = None,
    task: Task = None,
    capacity: Annotated[int | None, typer.Option(help="Tokens that a decoder's cache holds.")] = None,
    lengths: Annotated[list[int] | None, typer.Option(help="Text lengths of an encoder; may be repeated.")] = None,
    profile: Annotated[str | None, typer.Option(help="ONNX: ort or portable operators.")] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX: version of the standard operators.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="in-graph: an encoder's tokenizer in operators of TF Text too.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="Texts to compare with Keras on, maybe with labels: lines, TSV, CSV or JSONL.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line, for int8_static: ranges are measured on them.")
    ] = None,
    max_size: Annotated[float | None, typer.Option(help="auto: MB of the model files.")] = None,
    max_latency: Annotated[float | None, typer.Option(help="auto: milliseconds of a token or text, here.")] = None,
    min_agreement: Annotated[
        float | None, typer.Option(help="auto: least share of answers that are those of Keras; 0.98 by default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is there.")] = False,
    list_targets: Annotated[
        bool,
        typer.Option("--list-targets", callback=_list_targets, help="Say what was tested in which runtime, and end."),
    ] = False,
    progress_lines: Annotated[bool, typer.Option("--progress-lines", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON instead of a table.")] = False,
) -> None:
    """Write a verified bundle for LiteRT, ONNX Runtime or others."""
    from kerasformer import bundle

    require("keras", "export")
    lines = None
    if texts is not None:
        from kerasformer.evaluation import read_examples

        lines = read_examples(texts)
    from kerasformer.export import export as export_model
    from kerasformer.export.progress_report import write_line
    from kerasformer.export.quantization.recipes import recipe_line

    folder = export_model(
        source,
        destination,
        format,
        quantize,
        target=target,
        task=task,
        overwrite=overwrite,
        capacity=capacity,
        lengths=lengths or None,
        profile=profile,
        opset=opset,
        tokenizer=tokenizer,
        texts=lines,
        calibration=calibration,
        max_size=max_size,
        max_latency=max_latency,
        min_agreement=min_agreement,
        progress=write_line if progress_lines else not as_json,
    )
    manifest = bundle.read(folder)
    sizes = {name: (folder / name).stat().st_size for name in manifest.files}
    if as_json:
        print_json({"folder": str(folder), "files": sizes, "recipe": manifest.recipe, "fidelity": manifest.fidelity})
        return
    if "auto" in manifest.recipe:
        from kerasformer.export.quantization.auto import COLUMNS, search_rows

        table("Mixes that were tried", list(COLUMNS), search_rows(manifest.recipe["auto"]))
    table(str(folder), ["file", "bytes"], [[name, f"{size:,}"] for name, size in sizes.items()])
    say(fidelity_line(manifest.fidelity))
    say(recipe_line(manifest.recipe, default=quantize == "none"))


def fidelity_line(figures: dict[str, Any]) -> str:
    """How faithful a bundle is, in a line."""
    generated = figures.get("generated")
    free = "" if generated is None else f", generated tokens equal {generated:.1%}"
    ties, rest = figures.get("near_ties"), ""
    if ties is not None:
        decided = f", {figures['decided_agreement']:.2%} of the others agree" if ties < figures["answers"] else ""
        rest = f" ({ties} are near ties{decided})"
    return (
        f"Against Keras on {figures['answers']} answers: agreement {figures['agreement']:.2%}{rest}, largest error "
        f"{figures['max_error']:.2g} of the scale{free}"
    )
