"""`kerasformer export`, which writes bundles and lists the runtimes in which they were tested."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kerasformer import tested
from kerasformer.cli.console import Task, one_of, preset_names, print_json, say, table
from kerasformer.errors import require
from kerasformer.process import free_tensors

# Copies of values of `kerasformer.export`, whose import would load Keras.
FORMATS = ("tflite", "onnx", "saved-model")
RECIPES = (
    "none",
    "fp16",
    "int8",
    "int8_fast",
    "int8_weights",
    "int8_static",
    "int4",
    "int4_mixed",
    "int4_channel",
    "auto",
)
TARGETS = ("mediapipe", "litert-lm", "litert-web", "transformers.js", "optimum", "genai", "saved-model")


def _merged(source: str, task: str | None, adapter: str) -> Any:
    """Loads a model and merges an adapter into its weights."""
    from kerasformer.zoo import load

    model = load(source, task)
    model.load_adapter(adapter)
    model.merge_adapter()
    return model


def _targets(values: list[str] | None) -> str | list[str] | None:
    """Returns a single value that is not a name as a regular expression, and names as a list."""
    if values and len(values) == 1 and not values[0].replace("_", "").replace(".", "").isalnum():
        return values[0]
    return values or None


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


def export(
    source: Annotated[
        str, typer.Argument(help="A checkpoint folder, GGUF file, preset or hub id.", autocompletion=preset_names)
    ],
    destination: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[
        str | None,
        typer.Option(help=f"File format: {', '.join(FORMATS)}; tflite by default.", autocompletion=one_of(*FORMATS)),
    ] = None,
    quantize: Annotated[
        str, typer.Option(help=f"Quantization recipe: {', '.join(RECIPES)}.", autocompletion=one_of(*RECIPES))
    ] = "none",
    target: Annotated[
        str | None,
        typer.Option(help=f"Third-party runtime to export for: {', '.join(TARGETS)}.", autocompletion=one_of(*TARGETS)),
    ] = None,
    task: Task = None,
    adapter: Annotated[
        str | None, typer.Option(help="Folder of a low-rank adapter of PEFT, which is merged into the weights first.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(help="Capacity of a decoder's cache in tokens, including the prompt.")
    ] = None,
    encoder_capacity: Annotated[
        int | None, typer.Option(help="ONNX, SavedModel: maximum input length of an encoder-decoder in tokens.")
    ] = None,
    lengths: Annotated[
        list[int] | None, typer.Option(help="TFLite: input length of an encoder in tokens; may be repeated.")
    ] = None,
    prefill_lengths: Annotated[
        list[int] | None,
        typer.Option(
            help="TFLite: number of prompt tokens that a decoder processes in one call; may be repeated; 8 and 64 by "
            "default."
        ),
    ] = None,
    cache_lengths: Annotated[
        list[int] | None,
        typer.Option(
            help="TFLite: shorter cache length in slots, for faster steps on short texts; may be repeated; 128 and 256 "
            "by default; 0 for none."
        ),
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            help="TFLite: number of texts that one step processes together; may be repeated; 8 by default; 0 for none."
        ),
    ] = None,
    verify_lengths: Annotated[
        list[int] | None,
        typer.Option(
            help="TFLite: number of guessed tokens that one step checks; may be repeated; 4 and 8 by default; "
            "0 for none."
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="ONNX: ort for fused operators of ONNX Runtime, portable for standard operators only."),
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX: opset version of the standard operators.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="in-graph adds an encoder's tokenizer to the model, with TF Text operators.")
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option(help="Largest rank of the low-rank adapters that the bundle can be run with.")
    ] = None,
    lora_targets: Annotated[
        list[str] | None,
        typer.Option(
            help="Module that adapters may change, by its name in transformers; may be repeated. All linear layers by "
            "default. A single value may be a regular expression for whole paths."
        ),
    ] = None,
    cache_dtype: Annotated[
        str | None,
        typer.Option(help="int8 stores the caches of a decoder in a quarter of the bytes of float32, the default."),
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(help="TFLite: gpu writes a file that LiteRT's GPU delegate runs as the CPU does; cpu by default."),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="File of texts to compare with Keras on, optionally with labels: plain lines, TSV, CSV or JSONL."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="int8, int8_fast, int8_static, int4, int4_mixed, int4_channel, auto, --cache-dtype int8: file of "
            "texts to measure inputs of products, or keys and values, on, one per line."
        ),
    ] = None,
    max_size: Annotated[float | None, typer.Option(help="auto: maximum size of the model files in MB.")] = None,
    max_latency: Annotated[
        float | None, typer.Option(help="auto: maximum latency per token or text on this machine, in milliseconds.")
    ] = None,
    min_agreement: Annotated[
        float | None, typer.Option(help="auto: minimum share of answers equal to those of Keras; 0.98 by default.")
    ] = None,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="If the files of the recipe differ too much from Keras, use the smallest more faithful recipe.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    list_targets: Annotated[
        bool,
        typer.Option(
            "--list-targets", callback=_list_targets, help="List the models tested in each runtime, and exit."
        ),
    ] = False,
    progress_lines: Annotated[bool, typer.Option("--progress-lines", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON instead of a table.")] = False,
) -> None:
    """Export a model to a bundle, and verify the bundle.

    Bundles run in LiteRT, ONNX Runtime or the runtime that --target specifies.
    """
    from kerasformer.bundle import fidelity_line

    free_tensors()
    require("keras", "export")
    lines = None
    if texts is not None:
        from kerasformer.evaluation import read_examples

        lines = read_examples(texts)
    from kerasformer.export import DecoderSignatures
    from kerasformer.export import export as export_model
    from kerasformer.export.progress_report import write_line
    from kerasformer.export.quantization.recipes import fallback_text, recipe_line

    sizes = {
        "prefill_lengths": prefill_lengths,
        "cache_lengths": cache_lengths,
        "rows": rows,
        "verify_lengths": verify_lengths,
    }
    signatures = {name: () if values == [0] else values for name, values in sizes.items() if values}
    written = export_model(
        source if adapter is None else _merged(source, task, adapter),
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
        signatures=DecoderSignatures(**signatures) if signatures else None,
        profile=profile,
        opset=opset,
        tokenizer=tokenizer,
        lora_rank=lora_rank,
        lora_targets=_targets(lora_targets),
        cache_dtype=cache_dtype,
        accelerator=accelerator,
        texts=lines,
        calibration=calibration,
        max_size=max_size,
        max_latency=max_latency,
        min_agreement=min_agreement,
        fallback=fallback or None,
    )
    manifest = written.manifest
    if as_json:
        print_json(
            {"folder": str(written), "files": written.files, "recipe": manifest.recipe, "fidelity": written.fidelity}
        )
        return
    if "auto" in manifest.recipe:
        from kerasformer.export.quantization.auto import COLUMNS, search_rows

        table("Candidates of the search", list(COLUMNS), search_rows(manifest.recipe["auto"]))
    table(str(written), ["file", "bytes"], [[name, f"{size:,}"] for name, size in written.files.items()])
    say(fidelity_line(written.fidelity))
    say(recipe_line(manifest.recipe, default=quantize == "none"))
    if note := fallback_text(manifest.recipe):
        say(note)
