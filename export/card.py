"""The model card of a bundle: what it is, how faithful it is, and code that runs it, with its real names and shapes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest, Signature, TensorInfo
from kerasformer.export.auto import COLUMNS
from kerasformer.export.auto import in_words as in_words_of_auto
from kerasformer.export.targets import Target
from kerasformer.runtime.fidelity import in_words

_ENGINES = {
    "tflite": ("LiteRT", "litert"),
    "onnx": ("ONNX Runtime", "onnx"),
    "saved-model": ("TensorFlow", "tensorflow"),
}
_RUNS_ON = {
    "tflite": "LiteRT (formerly TensorFlow Lite) 2 and later runs it, on Android, iOS, Linux, macOS, Windows and in "
    "browsers; all operators are its own.",
    "ort": 'ONNX Runtime runs it; some operators are of its domain `com.microsoft`. Export with `profile="portable"` '
    "for other runtimes.",
    "portable": "ONNX Runtime and other runtimes of ONNX run it; quantized matrices may need operators of the domain "
    "`com.microsoft`.",
    "saved-model": "TensorFlow runs it, alone or in TensorFlow Serving; weights and arithmetic are in float32.",
}
_WHEN = {
    "none": "It answers as the Keras model does. Take it where size and speed do not matter, and to compare with.",
    "fp16": "Half the size at the same answers; arithmetic is in float32.",
    "int8": "A quarter of the size, and fast on processors: the recipe to begin with.",
    "int8_weights": "A quarter of the size, with activations in float: where `int8` loses too much.",
    "int8_static": "For accelerators that take integers alone. Calibrate it with texts of your own.",
    "int4": "An eighth of the size or little more. Compare it on texts of your own before you ship it.",
    "auto": "The storage of each part was chosen by what it costs in fidelity.",
}
_ACTIVATIONS = {
    "float": "computes in float32",
    "dynamic": "makes activations int8 while it runs, with scales of the values at hand",
    "static": "makes activations int8 with scales that were measured beforehand",
}


def write_card(folder: Path, manifest: Manifest, target: Target) -> None:
    """Writes `README.md` into the bundle."""
    parts = [_title(folder, manifest), _fidelity(manifest), _measured(manifest), _python(manifest), _tensors(manifest)]
    parts += [target.card(manifest), _kotlin(manifest), _swift(manifest), _javascript(manifest)]
    (folder / "README.md").write_text("\n".join(part for part in parts if part), encoding="utf-8")


def _title(folder: Path, manifest: Manifest) -> str:
    info = manifest.info
    files = sorted({signature.file for signature in manifest.signatures.values()})
    weights = sorted([*folder.rglob("*.onnx_data*"), *folder.glob("variables/*.data*")])
    files += [path.relative_to(folder).as_posix() for path in weights]
    sizes = {name: (folder / name).stat().st_size for name in files}
    rows = [f"| `{name}` | {_megabytes(size)} |" for name, size in sizes.items()]
    rows += [f"| **together** | {_megabytes(sum(sizes.values()))} |"] if len(rows) > 1 else []
    labels = f"\nLabels, by id: {', '.join(info.labels)}.\n" if info.labels else ""
    table = "\n".join(rows)
    return f"""# {info.model_type} for {info.task}

A bundle for {_ENGINES[manifest.format][0]}, made by kerasformer {manifest.versions.get("kerasformer", "")} with the
recipe `{manifest.recipe.get("name")}`. {_limits(manifest)}
{labels}
{_recipe(manifest)}

{_RUNS_ON[manifest.profile or manifest.format]}

| file | size |
|---|---|
{table}
{_memory(manifest)}"""


def _limits(manifest: Manifest) -> str:
    limits = []
    if manifest.capacity:
        limits.append(f"The cache holds {manifest.capacity} tokens, prompt and answer together.")
    if manifest.encoder_capacity:
        limits.append(f"The encoder reads up to {manifest.encoder_capacity} tokens.")
    elif manifest.info.max_length and not manifest.capacity:
        limits.append(f"Texts of up to {manifest.info.max_length} tokens.")
    return " ".join(limits)


def _recipe(manifest: Manifest) -> str:
    """How weights are stored, and when to take this recipe."""
    recipe = manifest.recipe
    if "weights" not in recipe:
        return ""
    tables = "" if recipe["tables"] == recipe["weights"] else f", embedding tables as {recipe['tables']}"
    mixed = ", some matrices otherwise (`layers` in the manifest)" if recipe.get("layers") else ""
    activations = _ACTIVATIONS.get(recipe["activations"], recipe["activations"])
    when = _WHEN.get(recipe.get("name", ""), "")
    lines = [f"**Recipe.** It stores matrices as {recipe['weights']}{tables}{mixed}, and {activations}. {when}".strip()]
    if calibration := recipe.get("calibration"):
        whose = (
            "texts that were given" if calibration.get("given") else "sentences of kerasformer, for lack of your own"
        )
        lines.append(f"Calibrated on {calibration.get('texts')} {whose}.")
    return "\n".join(lines)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def _memory(manifest: Manifest) -> str:
    """Bytes of a cache, and where they come from."""
    own, encoded = _caches(manifest, encoded=False), _caches(manifest, encoded=True)
    if not own:
        return ""
    grows = " once it is full" if manifest.format == "onnx" else ""
    text = f"While it generates, each text takes {_megabytes(manifest.cache_bytes)} of memory for its cache{grows}:\n"
    text += _product(own, manifest.capacity)
    if encoded:
        text += f", and for the encoded text {_product(encoded, manifest.encoder_capacity)}"
    return f"\n**Memory.** {text}.\n"


def _caches(manifest: Manifest, encoded: bool) -> list[TensorInfo]:
    """Keys and values of one text, of all layers: of the tokens so far, or of an encoded text."""
    steps = (signature for signature in manifest.signatures.values() if "logits" in signature.outputs)
    prefixes = ("cross_",) if encoded else ("kv_cache_",)
    found = (
        [
            info
            for name, info in signature.inputs.items()
            if (name.startswith("past_key_values.") and (".encoder." in name) == encoded) or name.startswith(prefixes)
        ]
        for signature in steps
    )
    return min((caches for caches in found if caches), key=len, default=[])


def _product(caches: list[TensorInfo], length: int | None) -> str:
    _, heads, _, size = caches[0].shape
    return f"{len(caches) // 2} layers × 2 (keys, values) × {heads} heads × {length} tokens × {size} × 4 bytes"


def _python(manifest: Manifest) -> str:
    extra = _ENGINES[manifest.format][1]
    call = 'pipe("Once upon a time", max_new_tokens=40)' if manifest.capacity else 'pipe("A text.")'
    if manifest.info.task == "question-answering":
        call = 'pipe(question="Who?", context="A text.")'
    absent = "Keras is" if manifest.format == "saved-model" else "Keras and TensorFlow are"
    return f"""## Python

`pip install "kerasformer[{extra}]"`; {absent} not needed.

```python
import kerasformer as kf

pipe = kf.pipeline("{manifest.info.task}", "path/to/this/folder")
print({call})
```
"""


def _tensors(manifest: Manifest) -> str:
    """One table for signatures that differ in sizes alone."""
    groups: dict[Any, list[str]] = {}
    for name, signature in manifest.signatures.items():
        kind = re.sub(r"_\d+", "", name)
        groups.setdefault((signature.file, kind, *map(frozenset, _stems(signature))), []).append(name)
    return "\n".join(["## Inputs and outputs\n", *(_group(manifest, names) for names in groups.values())])


def _stems(signature: Signature) -> tuple[list[str], list[str]]:
    """Names of inputs and outputs, those of all rows of a batch as one."""
    inputs, outputs = ([_stem(name) for name in part] for part in (signature.inputs, signature.outputs))
    return inputs, outputs


def _stem(name: str) -> str:
    return re.sub(r"_row_\d+$", "", name)


def _group(manifest: Manifest, names: list[str]) -> str:
    """Inputs and outputs of signatures that differ in sizes alone."""
    signatures = [manifest.signatures[name] for name in names]
    letters: dict[tuple[int | str, ...], str] = {}
    tables = []
    for part in ("inputs", "outputs"):
        kinds = [{_stem(name): info for name, info in getattr(each, part).items()} for each in signatures]
        rows = [f"| `{name}` | {kinds[0][name].dtype} | {_shape(name, kinds, letters)} |" for name in _first(kinds[0])]
        caches = [len(_numbered(getattr(each, part))) for each in signatures]
        if any(caches):
            number = " or ".join(str(count) for count in dict.fromkeys(caches))
            rows.append(f"| … | | {number} caches in all, one of each kind a layer{_each_row(names)} |")
        tables.append("| name | type | shape |\n|---|---|---|\n" + "\n".join(rows))
    listed = ", ".join(f"`{name}`" for name in names)
    sizes = "".join(f"; {letter} = {', '.join(map(str, dims))}" for dims, letter in letters.items())
    verbs = ("takes", "gives") if len(names) == 1 else ("take", "give")
    return f"{listed} in `{signatures[0].file}`{sizes} {verbs[0]}\n\n{tables[0]}\n\nand {verbs[1]}\n\n{tables[1]}\n"


def _each_row(names: list[str]) -> str:
    return " and a row, named `…_row_0`, `…_row_1`, …" if any("_rows_" in name for name in names) else ""


def _numbered(tensors: dict[str, TensorInfo]) -> list[str]:
    """Names with the number of a layer."""
    return [name for name in tensors if re.search(r"[._]\d+", _stem(name))]


def _first(tensors: dict[str, TensorInfo]) -> list[str]:
    """Names, of those that each layer has the first layer's alone."""
    return [name for name in tensors if all(int(number) == 0 for number in re.findall(r"[._](\d+)", name))]


def _shape(name: str, kinds: list[dict[str, TensorInfo]], letters: dict[tuple[int | str, ...], str]) -> str:
    """A shape; a dimension that differs among the signatures is a letter."""
    dims = []
    for column in zip(*(kind[name].shape for kind in kinds), strict=True):
        same = len(set(column)) == 1
        dims.append(str(column[0]) if same else letters.setdefault(column, "NKLM"[min(len(letters), 3)]))
    return f"`[{', '.join(dims)}]`"


def _fidelity(manifest: Manifest) -> str:
    figures = manifest.fidelity
    if not figures:
        return ""
    rows = "\n".join(f"| {name} | {value} |" for name, value in in_words(figures))
    return f"""## Fidelity

Against the Keras model in float32, on {figures["answers"]} answers in this very file format and runtime:

| measure | value |
|---|---|
{rows}

Differences of logits are also given as a share of the largest one. `references.npz` holds the answers of the Keras
model, and `kerasformer verify path/to/this/folder` repeats the comparison on any device, without Keras;
`kerasformer verify path/to/this/folder --data FILE` measures the bundle on texts of your own.
"""


def _measured(manifest: Manifest) -> str:
    """What the recipe was found or calibrated with."""
    parts = []
    if "calibration" in manifest.recipe:
        texts, given = manifest.recipe["calibration"]["texts"], manifest.recipe["calibration"]["given"]
        whose = "" if given else " of kerasformer's own; texts of the model's kind would serve better"
        parts.append(f"The ranges of activations were measured on {texts} texts{whose}.\n")
    if "auto" in manifest.recipe:
        header = "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|"
        rows = "\n".join("| " + " | ".join(row) + " |" for row in in_words_of_auto(manifest.recipe["auto"]))
        parts.append(f"## How the recipe was found\n\nMixes of storages that were tried:\n\n{header}\n{rows}\n")
        layers = "\n".join(f"| `{pattern}` | {storage} |" for pattern, storage in manifest.recipe["layers"])
        usual = f"Matrices are stored in {manifest.recipe['weights']}, tables in {manifest.recipe['tables']}"
        parts.append(f"{usual}, but:\n\n| path | storage |\n|---|---|\n{layers}\n" if layers else f"{usual}.\n")
    return "\n".join(parts)


def _shortest(manifest: Manifest) -> tuple[str, Signature]:
    """The signature that the examples show: one step of a decoder, or the shortest text."""
    name = "decode" if "decode" in manifest.signatures else next(iter(manifest.signatures))
    return name, manifest.signatures[name]


def _kotlin(manifest: Manifest) -> str:
    if manifest.format != "tflite":
        return ""
    name, signature = _shortest(manifest)
    file = signature.file
    ids = [key for key, info in signature.inputs.items() if info.dtype == "int32"]
    inputs = "\n".join(f'    "{key}" to IntBuffer.allocate({_count(signature.inputs[key])}),' for key in ids)
    caches = (
        ""
        if len(ids) == len(signature.inputs)
        else "\n// Add the caches by their names; give each output buffer back as the input of the next call."
    )
    output = "logits" if "logits" in signature.outputs else next(iter(signature.outputs))
    return f"""## Kotlin (Android)

Gradle: `implementation("com.google.ai.edge.litert:litert:2.+")`.

```kotlin
val interpreter = Interpreter(FileUtil.loadMappedFile(context, "{file}"))
val inputs = mapOf<String, Any>(
{inputs}
){caches}
val answer = FloatBuffer.allocate({_count(signature.outputs[output])})
interpreter.runSignature(inputs, mapOf<String, Any>("{output}" to answer), "{name}")
```
"""


def _count(info: TensorInfo) -> int:
    total = 1
    for dim in info.shape:
        total *= dim if isinstance(dim, int) else 1
    return total


def _swift(manifest: Manifest) -> str:
    if manifest.format != "tflite":
        return ""
    name, signature = _shortest(manifest)
    first = next(iter(signature.inputs))
    output = "logits" if "logits" in signature.outputs else next(iter(signature.outputs))
    return f"""## Swift (iOS)

CocoaPods: `pod 'TensorFlowLiteSwift'`.

```swift
let interpreter = try Interpreter(modelPath: Bundle.main.path(forResource: "model", ofType: "tflite")!)
let runner = try interpreter.signatureRunner(with: "{name}")
try runner.allocateTensors()
try runner.copy(ids.withUnsafeBytes {{ Data($0) }}, toInputNamed: "{first}")  // Int32, and so every other input
try runner.invoke()
let answer = try runner.output(named: "{output}").data.withUnsafeBytes {{ Array($0.bindMemory(to: Float32.self)) }}
```
"""


def _javascript(manifest: Manifest) -> str:
    if manifest.format == "saved-model":
        return ""
    name, signature = _shortest(manifest)
    if manifest.format == "tflite":
        first, info = next(iter(signature.inputs.items()))
        shape = ", ".join(map(str, info.shape))
        return f"""## JavaScript (LiteRT.js)

```javascript
import {{ loadLiteRt, loadAndCompile, Tensor }} from "@litertjs/core";
await loadLiteRt("wasm/");
const model = await loadAndCompile("{signature.file}", {{ accelerator: "wasm" }});
const answer = await model.run("{name}", {{ {first}: new Tensor(new Int32Array({_count(info)}), [{shape}]), /* … */ }});
```
"""
    options = _options(signature.file, manifest.info.is_encoder_decoder)
    if options is None:
        return ""
    return f"""## JavaScript (transformers.js)

```javascript
import {{ pipeline, env }} from "@huggingface/transformers";
env.allowRemoteModels = false;
env.localModelPath = "models/";
const pipe = await pipeline("{manifest.info.task}", "this-folder", {{ {options} }});
console.log(await pipe("A text."));
```
"""


# What transformers.js calls the endings of file names.
_DTYPES = {"": "fp32", "_fp16": "fp16", "_int8": "int8", "_quantized": "q8", "_q4": "q4"}


def _options(file: str, encoder_decoder: bool) -> str | None:
    """What transformers.js is told to find a file; `None` where it knows no way to."""
    name, _, ending = Path(file).stem.partition("model")
    dtype = _DTYPES.get(ending.removeprefix("_merged"))
    if dtype is not None:
        return f'dtype: "{dtype}"'
    return None if encoder_decoder or name else f'dtype: "fp32", model_file_name: "{Path(file).stem}"'
