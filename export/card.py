"""The model card of a bundle: what it is, how faithful it is, and code that runs it, with its real names and shapes."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import Manifest, Signature, TensorInfo

_ENGINES = {"tflite": ("LiteRT", "litert"), "onnx": ("ONNX Runtime", "onnx")}


def write_card(folder: Path, manifest: Manifest) -> None:
    """Writes `README.md` into the bundle."""
    parts = [_title(folder, manifest), _python(manifest), _tensors(manifest), _fidelity(manifest)]
    parts += [_kotlin(manifest), _swift(manifest), _javascript(manifest)]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def _title(folder: Path, manifest: Manifest) -> str:
    engine = _ENGINES[manifest.format][0]
    files = sorted({signature.file for signature in manifest.signatures.values()})
    rows = "\n".join(f"| `{name}` | {(folder / name).stat().st_size / 1e6:.2f} MB |" for name in files)
    limits = []
    if manifest.capacity:
        limits.append(f"The cache holds {manifest.capacity} tokens, prompt and answer together.")
    if manifest.encoder_capacity:
        limits.append(f"The encoder reads up to {manifest.encoder_capacity} tokens.")
    elif manifest.info.max_length and not manifest.capacity:
        limits.append(f"Texts of up to {manifest.info.max_length} tokens.")
    labels = f"\nLabels, by id: {', '.join(manifest.info.labels)}.\n" if manifest.info.labels else ""
    return f"""# {manifest.info.model_type} for {manifest.info.task}

A bundle for {engine}, made by kerasformer {manifest.versions.get("kerasformer", "")} with the recipe
`{manifest.recipe.get("name")}`. {" ".join(limits)}
{labels}
| file | size |
|---|---|
{rows}
"""


def _python(manifest: Manifest) -> str:
    extra = _ENGINES[manifest.format][1]
    call = 'pipe("Once upon a time", max_new_tokens=40)' if manifest.capacity else 'pipe("A text.")'
    if manifest.info.task == "question-answering":
        call = 'pipe(question="Who?", context="A text.")'
    return f"""## Python

`pip install "kerasformer[{extra}]"`; Keras and TensorFlow are not needed.

```python
import kerasformer as kf

pipe = kf.pipeline("{manifest.info.task}", "path/to/this/folder")
print({call})
```
"""


def _row(name: str, info: TensorInfo) -> str:
    return f"| `{name}` | {info.dtype} | `[{', '.join(map(str, info.shape))}]` |"


def _few(tensors: dict[str, TensorInfo]) -> list[str]:
    """Rows of a table, with one row for all layers' caches of a kind."""
    rows, caches = [], 0
    for name, info in tensors.items():
        if any(part.isdigit() for part in name.replace(".", "_").split("_")):
            caches += 1
            if "0" not in name.replace(".", "_").split("_"):
                continue
        rows.append(_row(name, info))
    return [*rows, *([f"| … | | {caches} caches in all, one of each kind a layer |"] if caches else [])]


def _tensors(manifest: Manifest) -> str:
    parts = ["## Inputs and outputs\n"]
    for name, signature in manifest.signatures.items():
        header = "| name | type | shape |\n|---|---|---|"
        inputs, outputs = ("\n".join(_few(part)) for part in (signature.inputs, signature.outputs))
        parts.append(
            f"`{name}` in `{signature.file}` takes\n\n{header}\n{inputs}\n\nand gives\n\n{header}\n{outputs}\n"
        )
    return "\n".join(parts)


def _fidelity(manifest: Manifest) -> str:
    figures = manifest.fidelity
    if not figures:
        return ""
    generated = figures.get("generated")
    free = "" if generated is None else f" Of freely generated tokens {generated:.1%} are the same."
    return f"""## Fidelity

Compared with the Keras model in float32 on {figures["answers"]} answers: the most probable one is the same in
{figures["agreement"]:.2%}; the largest difference of a logit is {figures["max_error"]:.2g} of the scale, the mean
{figures["mean_error"]:.2g}.{free} `references.npz` holds the answers of the Keras model, and
`kerasformer verify path/to/this/folder` repeats the comparison on any device.
"""


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
    return f"""## JavaScript (transformers.js)

```javascript
import {{ pipeline, env }} from "@huggingface/transformers";
env.allowRemoteModels = false;
env.localModelPath = "models/";
const pipe = await pipeline("{manifest.info.task}", "this-folder", {{ dtype: "{_dtype(signature.file)}" }});
console.log(await pipe("A text."));
```
"""


def _dtype(file: str) -> str:
    """What transformers.js calls the suffix of the file."""
    return "q8" if file.endswith("_quantized.onnx") else "fp32"
