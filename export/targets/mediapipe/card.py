"""Section of the model card for MediaPipe: programs for each platform, with the names of the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kerasformer.bundle import PROBABILITIES, Manifest
from kerasformer.export.targets.mediapipe.plain_text import LANGUAGES, plain
from kerasformer.export.targets.model_outputs import embeddings

_SEE = "https://ai.google.dev/edge/mediapipe/solutions/text"


@dataclass(frozen=True)
class _Task:
    """Names of a MediaPipe task, and code that reads its result in each language."""

    name: str
    variable: str
    verb: str
    kotlin: str
    swift: str
    javascript: str
    python: str


_CLASSIFIER = _Task(
    "TextClassifier",
    "classifier",
    "classify",
    """val best = answer.classificationResult().classifications()[0].categories()[0]
println("${best.categoryName()} ${best.score()}")""",
    """let best = answer.classificationResult.classifications[0].categories[0]
print(best.categoryName ?? "", best.score)""",
    """const [best] = answer.classifications[0].categories;
console.log(best.categoryName, best.score);""",
    """best = answer.classifications[0].categories[0]
    print(best.category_name, best.score)""",
)
_EMBEDDER = _Task(
    "TextEmbedder",
    "embedder",
    "embed",
    """val vector = answer.embeddingResult().embeddings()[0].floatEmbedding()""",
    """let vector = answer.embeddingResult.embeddings[0].floatEmbedding""",
    """const vector = answer.embeddings[0].floatEmbedding;""",
    """print(answer.embeddings[0].embedding)""",
)


def section(manifest: Manifest, folder: Path) -> str:
    """Returns the section of the model card."""
    (signature,) = manifest.signatures.values()
    task = _CLASSIFIER if PROBABILITIES in signature.outputs else _EMBEDDER
    file, length = signature.file, signature.inputs["input_ids"].shape[1]
    functions = plain(folder)
    remark = _needs_plain(task) if functions else _SAME_TOKENS
    before = {name: _before(name, functions) for name in LANGUAGES}
    argument = 'plain("A text.")' if functions else '"A text."'
    return "\n".join(
        (
            _about(task, manifest, file, length, remark),
            _kotlin(task, file, before["kotlin"], argument),
            _swift(task, before["swift"], argument),
            _web(task, file, before["javascript"], argument),
            _python(task, file, before["python"], argument),
        )
    )


def _before(language: str, functions: dict[str, str]) -> str:
    """Returns the function `plain`, in a separate block if the program belongs into the body of a function."""
    code = functions.get(language, "")
    return f"{code}```\n\n```{language}\n" if code and language in ("kotlin", "swift") else f"{code}\n" * bool(code)


_SAME_TOKENS = """MediaPipe produces the tokens of `tokenizer.json` for all texts without the characters U+2581 and
U+0000."""


def _needs_plain(task: _Task) -> str:
    """Returns what `plain` is for, and the differences that remain."""
    return f"""**Pass `plain(text)`, not `text`.** MediaPipe lowercases only A to Z, keeps accents and control
characters, and splits only at ASCII spaces: in the text "The café was naïve.", two words would become `[UNK]` or wrong
pieces. With the function below, `{task.verb}` gets the tokens of `tokenizer.json`, with these exceptions: a word of
more than 100 bytes is unknown, where the tokenizer counts characters; U+FFFD is kept; and for recently added Unicode
characters, the character tables of the two may differ."""


def _about(task: _Task, manifest: Manifest, file: str, length: int | str, remark: str) -> str:
    answer = "The embedding is the mean over the tokens; with the option `l2_normalize` its norm is 1."
    if task is _CLASSIFIER:
        answer = "Scores are probabilities with the names of the classes."
    elif manifest.info.embedding is not None:
        answer = embeddings(manifest.info.embedding).strip()
    return f"""## MediaPipe {task.name}

`{file}` is the only file that an app needs: it contains the tokenizer and all names. {answer}
Texts are truncated to {length} tokens, including two special ones. Special tokens written in a text are not recognized.
Guides: {_SEE}.
Texts stay on the device, but MediaPipe for Android sends usage metrics to Google
([terms](https://developers.google.com/mediapipe/legal/tos)).

{remark}
"""


def _kotlin(task: _Task, file: str, before: str, argument: str) -> str:
    return f"""### Kotlin

Gradle: `implementation("com.google.mediapipe:tasks-text:1.0.0")`; put `{file}` into `src/main/assets`.

```kotlin
{before}val {task.variable} = {task.name}.createFromFile(context, "{file}")
val answer = {task.variable}.{task.verb}({argument})
{task.kotlin}
```
"""


def _swift(task: _Task, before: str, argument: str) -> str:
    return f"""### Swift

CocoaPods: `pod 'MediaPipeTasksText', '1.0.0'`.

```swift
{before}let options = {task.name}Options()
options.baseOptions.modelAssetPath = Bundle.main.path(forResource: "model", ofType: "tflite")!
let {task.variable} = try {task.name}(options: options)
let answer = try {task.variable}.{task.verb}(text: {argument})
{task.swift}
```
"""


def _web(task: _Task, file: str, before: str, argument: str) -> str:
    return f"""### JavaScript

`npm install @mediapipe/tasks-text`.

```javascript
import {{ FilesetResolver, {task.name} }} from "@mediapipe/tasks-text";

{before}const files = await FilesetResolver.forTextTasks("node_modules/@mediapipe/tasks-text/wasm");
const {task.variable} = await {task.name}.createFromModelPath(files, "{file}");
const answer = {task.variable}.{task.verb}({argument});
{task.javascript}
```
"""


def _python(task: _Task, file: str, before: str, argument: str) -> str:
    imports = "import unicodedata\n\n" if before else ""
    return f"""### Python

`pip install mediapipe`.

```python
{imports}from mediapipe.tasks.python import BaseOptions, text

{before}options = text.{task.name}Options(base_options=BaseOptions(model_asset_path="{file}"))
with text.{task.name}.create_from_options(options) as {task.variable}:
    answer = {task.variable}.{task.verb}({argument})
    {task.python}
```
"""
