"""Sections of a card about the bundle: description, files, fidelity, inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path

from kerasformer.bundle import GPU, REFERENCES, Manifest, Role, Signature, TensorInfo, figure_rows
from kerasformer.bundle.interface import ADAPTERS, CACHES, CROSS_CACHES, Kind, without_row, without_sizes
from kerasformer.bundle.recipes import WHEN, fallback_text, stored_rows
from kerasformer.export.card.credits import Credits
from kerasformer.export.card.facts import kind, limit, text_prefix
from kerasformer.export.card.quoting import code, markdown
from kerasformer.files.reading import JsonObject

_ENGINES = {"tflite": "LiteRT", "onnx": "ONNX Runtime", "saved-model": "TensorFlow", "table": "NumPy"}
_RUNS_ON = {
    "tflite": "It runs on LiteRT 2 or later (formerly TensorFlow Lite), on Android, iOS, Linux, macOS, Windows and in "
    "browsers. All operators are built in.",
    "ort": "It runs on ONNX Runtime, and uses some operators of its domain `com.microsoft`. For other runtimes, export "
    'with `profile="portable"`.',
    "portable": "It runs on ONNX Runtime and other ONNX runtimes; quantized matrices may need operators of the domain "
    "`com.microsoft`.",
    "saved-model": "It runs on TensorFlow and TensorFlow Serving; weights and arithmetic are in float32.",
    "table": "It needs no runtime: `table.safetensors` has a vector for each token, and the embedding of a text is "
    "their mean.",
}
_GPU_EFFECTS = {
    "wrong": "other results",
    "unsupported": "left to the CPU, or an error",
    "aborts": "**ends the app**",
}
_ACTIVATIONS = {
    "float": "computes in float32",
    "dynamic": "quantizes activations to int8 at run time",
    "fast": "quantizes activations to int8 in the fastest way of the runtime",
    "static": "quantizes activations to int8 with scales that were measured beforehand",
}


def title(manifest: Manifest, credits: Credits) -> str:
    """Returns what the bundle is, where its weights are from, and how long a text may be."""
    info = manifest.info
    labels = f"\nLabels, in the order of their ids: {', '.join(map(code, info.labels))}.\n" if info.labels else ""
    name = f"{markdown(credits.name)}: " if credits.name else ""
    return f"""# {name}{markdown(info.model_type)} for {markdown(info.task)}

{credits.summary()}
A bundle for {_ENGINES[manifest.format]}, exported by kerasformer {manifest.versions.get("kerasformer", "")} with the
recipe {code(str(manifest.recipe.get("name")))}. {_RUNS_ON[manifest.profile or manifest.format]}
{_limit(manifest)}{labels}"""


def _limit(manifest: Manifest) -> str:
    """Returns how long a text may be, with a single number."""
    longest, prefix = limit(manifest), text_prefix(manifest)
    if longest is None:
        return ""
    if kind(manifest) == "decoder" or (manifest.capacity and not manifest.info.is_encoder_decoder):
        return f"\n**Prompt and answer together have at most {longest} tokens.**\n"
    counted = f"its special tokens and the prefix {code(prefix)}" if prefix else "its special tokens"
    return f"\n**A text has at most {longest} tokens, including {counted}.**\n"


def shipped(sizes: Mapping[str, int], folder: Path) -> str:
    """Returns the section with the files that an app ships, by name, and their sizes in bytes."""
    rows = [f"| {code(name, True)} | {size:,} |" for name, size in sizes.items()]
    rows += [f"| **together** | **{sum(sizes.values()):,}** |"] if len(rows) > 1 else []
    table = "\n".join(rows)
    references, unused = folder / REFERENCES, ""
    if references.exists():
        unused = f"`{REFERENCES}` ({references.stat().st_size:,} bytes) is only for `kerasformer verify`. "
    return f"""## What to ship

| file | bytes |
|---|--:|
{table}

{unused}In Python, kerasformer opens only the complete folder.
"""


def recipe(manifest: Manifest) -> str:
    """Returns the section on how weights are stored and when to use this recipe, and on the memory of caches."""
    text = "\n\n".join(part for part in (_storage(manifest), _memory(manifest)) if part)
    return f"## Weights and memory\n\n{text}\n" if text else ""


def _storage(manifest: Manifest) -> str:
    recipe = manifest.recipe
    if "weights" not in recipe:
        return ""
    if rows := stored_rows(recipe):
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        heads = "| levels in the checkpoint | matrices | million values | stored as |\n|---|--:|--:|---|"
        return f"{WHEN['stored']} Activations: {_ACTIVATIONS[recipe['activations']]}.\n\n{heads}\n{table}"
    tables = "" if recipe["tables"] == recipe["weights"] else f", embedding tables as {recipe['tables']}"
    mixed = ", with exceptions for some matrices (`layers` in the manifest)" if recipe.get("layers") else ""
    activations = _ACTIVATIONS.get(recipe["activations"], recipe["activations"])
    when = WHEN.get(recipe.get("name", ""), "")
    lines = [f"It stores matrices as {recipe['weights']}{tables}{mixed}, and {activations}. {when}".strip()]
    if calibration := recipe.get("calibration"):
        lines.append(_calibrated_on(manifest, calibration))
    if reason := fallback_text(recipe):
        lines.append(markdown(reason))
    return "\n".join(lines)


def _calibrated_on(manifest: Manifest, calibration: JsonObject) -> str:
    """Returns what was measured on which texts."""
    recipe, subjects = manifest.recipe, []
    if recipe.get("activations") == "static" or recipe.get("rounding") != "calibrated":
        subjects.append("ranges of activations")
    if recipe.get("rounding") == "calibrated":
        subjects.append("inputs of products, with which kernels are rounded,")
    if manifest.cache_dtype == "int8":
        subjects = [*(subjects if recipe.get("weights") in ("int8", "int4") else []), "ranges of keys and values"]
    texts = f"{calibration.get('texts')} texts in English that ship with kerasformer; texts of the kind and in the "
    texts += "language that the model is used with are better (`calibration=`)"
    if calibration.get("given"):
        first = calibration.get("first")
        texts = f"{calibration.get('texts')} texts that were passed to the export"
        texts += f", the first of which begins: {code(first)}" if first else ""
    measured = " and ".join(subjects)
    return f"{measured[:1].upper()}{measured[1:]} were measured on {texts}."


def gpu(manifest: Manifest) -> str:
    """Returns the section on what a phone's GPU is known to compute wrongly or to leave to the CPU."""
    if manifest.gpu_findings is None:
        return ""
    findings = [finding for finding in manifest.gpu_findings if finding.effect != "reported"]
    measured = "what LiteRT 2.3's GPU delegate, measured on WebGPU, computes wrongly or leaves to the CPU"
    compare = "`kerasformer verify FOLDER --accelerator gpu` runs it there; compare it on the phone, too."
    if not findings:
        figures = ""
        if manifest.accelerator == GPU:
            figures = """
It was compared with Keras by float copies of its weights, since a GPU rounds no activations. A CPU rounds them to eight
bits where weights are integers, and may answer otherwise.
"""
        return f"""## On a phone's GPU

The file has nothing of {measured}. {compare}
{figures}"""
    rows = "\n".join(
        f"| {_GPU_EFFECTS[finding.effect]} | {markdown(finding.what)} | {finding.operators} | "
        f"{markdown(finding.example)} | {markdown(finding.source)} |"
        for finding in findings
    )
    return f"""## On a phone's GPU

The file was made for the CPU, and has some of {measured}. For a file without it, export with `accelerator="gpu"`.
{compare}

| effect | what the delegate does | operators | first of them | source |
|---|---|--:|---|---|
{rows}
"""


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def _memory(manifest: Manifest) -> str:
    """Returns the size of a cache and how it is computed."""
    caches, encoded = _caches(manifest, encoded=False), _caches(manifest, encoded=True)
    if not caches:
        return ""
    full = " once it is full" if manifest.format == "onnx" else ""
    text = f"During generation, the cache of each text takes {_megabytes(manifest.cache_bytes)} of memory{full}:\n"
    text += _product(caches, manifest.capacity)
    if encoded:
        text += f", and for the encoded text {_product(encoded, manifest.encoder_capacity)}"
    return f"{text}."


def _caches(manifest: Manifest, encoded: bool) -> list[TensorInfo]:
    """Returns the tensors of all layers' caches for one text: of the tokens so far, or of an encoded text."""
    kinds = CROSS_CACHES if encoded else CACHES
    steps = manifest.of_role(Role.DECODE, Role.VERIFY).values()
    candidates = ([step.inputs[name] for name in step.named(*kinds)] for step in steps)
    return min((caches for caches in candidates if caches), key=len, default=[])


def _product(caches: list[TensorInfo], length: int | None) -> str:
    named: dict[str, str] = {Kind.STATE: "{} other states", Kind.RECURRENT: "{} recurrent states"}
    sizes = Counter(
        (info.kind if info.kind in named else None, info.shape[1], _slots(info, length), info.shape[3])
        for info in caches
    )
    return " + ".join(
        f"{f'{count // 2} layers × 2 (keys, values)' if kind is None else named[kind].format(count)} × {heads} heads × "
        f"{slots} × {size} × 4 bytes"
        for (kind, heads, slots, size), count in sizes.items()
    )


def _slots(info: TensorInfo, length: int | None) -> str:
    if info.kind == Kind.RECURRENT:
        return str(info.shape[2])
    return f"{length if info.margin is None else info.shape[2]} slots"


def languages(manifest: Manifest) -> str:
    """Returns the section about the languages of a multilingual model, if any, and how to set them."""
    info = manifest.info
    if info.languages is None or not info.is_encoder_decoder:
        return ""
    ids, place = info.languages.ids, "last" if info.languages.after else "first"
    source = "no language" if info.languages.src_lang is None else code(info.languages.src_lang)
    if info.output_language is None:
        change = code(f'model.tokenizer = model.tokenizer.for_languages(tgt_lang="{next(iter(ids))}")')
        written = f"**The language of the output is not set.** Each call names it, or set {change} and export again."
    else:
        written = f"The model writes {code(info.output_language)}, unless a call names another language."
    listed = ", ".join(f"{code(name)} {index}" for name, index in ids.items())
    return f"""## Languages

{written}

The tokenizer marks each input with {source}: the id of the language is the {place} one of the input. Calls name
languages with `src_lang` and `tgt_lang`, in Kotlin and Swift with `from` and `to`.

The languages and their ids: {listed}.
"""


def tensors(manifest: Manifest) -> str:
    """Returns the page with the inputs and outputs, with one table for signatures that differ only in sizes."""
    groups: dict[Hashable, list[str]] = {}
    for name, signature in manifest.signatures.items():
        groups.setdefault((signature.file, without_sizes(name), *map(frozenset, _stems(signature))), []).append(name)
    return "\n".join(["# Inputs and outputs\n", *(_group(manifest, names) for names in groups.values())])


def adapters(manifest: Manifest) -> str:
    """Returns the section about low-rank adapters, for a bundle with inputs for them."""
    infos = {key: info for signature in manifest.signatures.values() for key, info in signature.inputs.items()}
    matrices = {key: info for key, info in infos.items() if info.kind in ADAPTERS}
    if not matrices:
        return ""
    modules = dict.fromkeys(str(info.module) for info in matrices.values())
    kinds = ", ".join(code(name) for name in sorted({name.rsplit(".", 1)[-1] for name in modules}))
    tflite = manifest.format == "tflite"
    rank = min(min(int(size) for size in info.shape) for info in matrices.values())
    shapes = "`(r, in)` and `(out, r)`" if tflite else "`(in, r)` and `(r, out)`"
    omitted = "A program passes zeros to run the base model." if tflite else "They may be omitted: the base model runs."
    return (
        f"## Adapters\n\nThe bundle runs with adapters of PEFT (LoRA) up to rank {rank}, for {kinds} in "
        f'{len(modules)} modules:\n\n```python\npipe.load_adapter("folder")  # with adapter_config.json\n'
        f"pipe.set_adapter(None)  # the base model\n```\n\nThe inputs whose names contain `lora_A` and `lora_B` are "
        f"its matrices, {shapes}, padded with zeros to rank {rank}, and B times the scale of the adapter. {omitted}\n"
    )


def _stems(signature: Signature) -> tuple[list[str], list[str]]:
    """Returns the names of inputs and outputs without the numbers of rows."""
    inputs, outputs = ([without_row(name) for name in part] for part in (signature.inputs, signature.outputs))
    return inputs, outputs


def _group(manifest: Manifest, names: list[str]) -> str:
    """Returns the tables of signatures that differ only in sizes."""
    signatures = [manifest.signatures[name] for name in names]
    letters: dict[tuple[int | str, ...], str] = {}
    tables = []
    for part in ("inputs", "outputs"):
        kinds = [
            {without_row(name): info for name, info in getattr(signature, part).items()} for signature in signatures
        ]
        rows = [
            f"| {code(name, True)} | {kinds[0][name].dtype} | {_shape(name, kinds, letters)} |"
            for name in _first(kinds[0])
        ]
        if matrices := sum(info.kind in ADAPTERS for info in kinds[0].values()):
            rows.append(f"| … | float32 | {matrices} matrices of an adapter |")
        caches = [len(_numbered(getattr(signature, part))) for signature in signatures]
        if any(caches):
            number = " or ".join(str(count) for count in dict.fromkeys(caches))
            others = _other_shapes(kinds[0])
            rows.append(
                f"| … | | {number} caches in total, one of each kind for each layer{_each_row(signatures)}{others} |"
            )
        tables.append("| name | type | shape |\n|---|---|---|\n" + "\n".join(rows))
    listed = ", ".join(map(code, names))
    sizes = "".join(f"; {letter} = {', '.join(map(str, dims))}" for dims, letter in letters.items())
    heading = f"**{listed}** in {code(signatures[0].file)}{sizes}"
    return f"{heading}\n\nInputs:\n\n{tables[0]}\n\nOutputs:\n\n{tables[1]}\n"


def _each_row(signatures: list[Signature]) -> str:
    separate = any(info.row is not None for signature in signatures for info in signature.inputs.values())
    return " and each row (`…_row_0`, `…_row_1`, …)" if separate else ""


def _other_shapes(tensors: dict[str, TensorInfo]) -> str:
    """Lists the shapes of caches that differ from those of the first layer with a cache of their kind."""
    caches = [tensors[name] for name in _numbered(tensors)]
    first = {info.kind: info.shape for info in reversed(caches)}
    shapes = {
        info.shape: code(f"[{', '.join(map(str, info.shape))}]", True)
        for info in caches
        if info.shape != first[info.kind]
    }
    return f"; some are {' or '.join(shapes.values())}" if shapes else ""


def _numbered(tensors: dict[str, TensorInfo]) -> list[str]:
    """Returns the names of caches, which contain the number of a layer."""
    return [name for name, info in tensors.items() if info.layer is not None]


def _first(tensors: dict[str, TensorInfo]) -> list[str]:
    """Returns the names without those of further caches of a kind."""
    names = [name for name, info in tensors.items() if info.kind not in ADAPTERS]
    layers = {tensors[name].kind: tensors[name].layer for name in reversed(names)}
    return [name for name in names if tensors[name].layer in (None, layers[tensors[name].kind])]


def _shape(name: str, kinds: list[dict[str, TensorInfo]], letters: dict[tuple[int | str, ...], str]) -> str:
    """Returns a shape in which dimensions that differ among the signatures are letters."""
    dims = []
    for column in zip(*(tensors[name].shape for tensors in kinds), strict=True):
        same = len(set(column)) == 1
        dims.append(str(column[0]) if same else letters.setdefault(column, "NKLM"[min(len(letters), 3)]))
    return code(f"[{', '.join(dims)}]", True)


def fidelity(manifest: Manifest) -> str:
    """Returns the section with the figures of the comparison with Keras."""
    figures = manifest.fidelity
    if not figures:
        return ""
    rows = "\n".join(f"| {markdown(name)} | {markdown(value)} |" for name, value in figure_rows(figures))
    return f"""## Fidelity

These files in their runtime, compared with the Keras model in float32{_compared_on(figures)}.

| measure | value |
|---|---|
{rows}

The agreement is the share of answers equal to those of Keras. `references.npz` contains the answers of the Keras
model. `kerasformer verify path/to/this/folder` repeats the comparison on any device, without Keras, and
`kerasformer eval path/to/this/folder --data FILE` measures the bundle on your own texts.
"""


def _compared_on(figures: JsonObject) -> str:
    """Returns on which texts a bundle was compared; empty for bundles of earlier versions."""
    entry = figures.get("texts")
    if not entry:
        return ""
    if entry["given"]:
        return f", on {entry['count']} texts that were passed to the export"
    kind = "conversations in the model's chat template" if entry["chats"] else "texts"
    return f", on {entry['count']} {kind}, in English, that ship with kerasformer"
