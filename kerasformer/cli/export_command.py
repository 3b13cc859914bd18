"""`kerasformer export`: a model becomes a bundle; and the list of runtimes in which bundles were tested."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

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
        typer.Option(help=f"Third-party runtime to export for: {', '.join(TARGETS)}.", autocompletion=one_of(*TARGETS)),
    ] = None,
    task: Task = None,
    capacity: Annotated[int | None, typer.Option(help="Tokens that a decoder's cache holds.")] = None,
    encoder_capacity: Annotated[
        int | None, typer.Option(help="ONNX, SavedModel: longest text of an encoder-decoder, in tokens.")
    ] = None,
    lengths: Annotated[
        list[int] | None, typer.Option(help="TFLite: text lengths of an encoder; may be repeated.")
    ] = None,
    prefill_lengths: Annotated[
        list[int] | None, typer.Option(help="TFLite: prompt tokens of a decoder's call; may be repeated; 8, 64.")
    ] = None,
    cache_lengths: Annotated[
        list[int] | None,
        typer.Option(help="TFLite: cache slots of a step on short texts; may be repeated; 128, 256; 0 for none."),
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="TFLite: texts of one step; may be repeated; 8; 0 for none.")
    ] = None,
    verify_lengths: Annotated[
        list[int] | None,
        typer.Option(help="TFLite: guessed tokens of one step; may be repeated; 4, 8; 0 for none."),
    ] = None,
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
    from kerasformer.bundle import fidelity_line

    require("keras", "export")
    lines = None
    if texts is not None:
        from kerasformer.evaluation import read_examples

        lines = read_examples(texts)
    from kerasformer.export import DecoderSignatures
    from kerasformer.export import export as export_model
    from kerasformer.export.progress_report import write_line
    from kerasformer.export.quantization.recipes import recipe_line

    sizes = {
        "prefill_lengths": prefill_lengths,
        "cache_lengths": cache_lengths,
        "rows": rows,
        "verify_lengths": verify_lengths,
    }
    given = {name: () if values == [0] else values for name, values in sizes.items() if values}
    written = export_model(
        source,
        destination,
        format,
        quantize,
        target=target,
        task=task,
        overwrite=overwrite,
        progress=write_line if progress_lines else not as_json,
        capacity=capacity,
        encoder_capacity=encoder_capacity,
        lengths=lengths or None,
        signatures=DecoderSignatures(**given) if given else None,
        profile=profile,
        opset=opset,
        tokenizer=tokenizer,
        texts=lines,
        calibration=calibration,
        max_size=max_size,
        max_latency=max_latency,
        min_agreement=min_agreement,
    )
    manifest = written.manifest
    if as_json:
        print_json(
            {"folder": str(written), "files": written.files, "recipe": manifest.recipe, "fidelity": written.fidelity}
        )
        return
    if "auto" in manifest.recipe:
        from kerasformer.export.quantization.auto import COLUMNS, search_rows

        table("Mixes that were tried", list(COLUMNS), search_rows(manifest.recipe["auto"]))
    table(str(written), ["file", "bytes"], [[name, f"{size:,}"] for name, size in written.files.items()])
    say(fidelity_line(written.fidelity))
    say(recipe_line(manifest.recipe, default=quantize == "none"))
