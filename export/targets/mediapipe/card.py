"""What the model card says of MediaPipe: the code for each platform, with the bundle's own names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kerasformer.bundle import PROBABILITIES, Manifest
from kerasformer.export.targets.mediapipe.plain_text import LANGUAGES, plain

_SEE = "https://ai.google.dev/edge/mediapipe/solutions/text"


@dataclass(frozen=True)
class _Words:
    """How a task is called, and how its result is taken apart, in each language."""

    name: str
    variable: str
    verb: str
    kotlin: str
    swift: str
    javascript: str
    python: str


_CLASSIFIER = _Words(
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
_EMBEDDER = _Words(
    "TextEmbedder",
    "embedder",
    "embed",
    """val vector = answer.embeddingResult().embeddings()[0].floatEmbedding()""",
    """let vector = answer.embeddingResult.embeddings[0].floatEmbedding""",
    """const vector = answer.embeddings[0].floatEmbedding;""",
    """print(answer.embeddings[0].embedding)""",
)


def section(manifest: Manifest, folder: Path) -> str:
    """A section for the model card."""
    (signature,) = manifest.signatures.values()
    words = _CLASSIFIER if PROBABILITIES in signature.outputs else _EMBEDDER
    file, length = signature.file, signature.inputs["input_ids"].shape[1]
    functions = plain(folder)
    text = _reads_otherwise(words) if functions else _READS_THE_SAME
    before = {name: _before(name, functions) for name in LANGUAGES}
    given = 'plain("A text.")' if functions else '"A text."'
    return "\n".join(
        (
            _about(words, file, length, text),
            _kotlin(words, file, before["kotlin"], given),
            _swift(words, before["swift"], given),
            _web(words, file, before["javascript"], given),
            _python(words, file, before["python"], given),
        )
    )


def _before(language: str, functions: dict[str, str]) -> str:
    """The function, in a block of its own where a program is the body of a function."""
    code = functions.get(language, "")
    return f"{code}```\n\n```{language}\n" if code and language in ("kotlin", "swift") else f"{code}\n" * bool(code)


_READS_THE_SAME = """The vocabulary (`spiece.model` in the file) makes the tokens of `tokenizer.json` of any text
without the sign U+2581 for a space; MediaPipe ends a text at a character U+0000."""


def _reads_otherwise(words: _Words) -> str:
    """What `plain` is for, and what it cannot mend."""
    return f"""**Give it `plain(text)`, not `text`.** MediaPipe lowercases A to Z and no other letter, keeps accents and
control characters, and splits at the spaces of ASCII alone: of the bare text "The café was naïve." this model would get
`[UNK]` or other pieces for two words. With the lines below, `{words.verb}` gets the tokens of `tokenizer.json`. What
still differs: a word of more than 100 bytes is unknown, where the tokenizer counts characters; U+FFFD is kept; and a
character that is newer than one of the Unicode tables may be a mark to one and a letter to the other."""


def _about(words: _Words, file: str, length: int | str, text: str) -> str:
    answer = (
        "Scores are probabilities, by the names of the classes."
        if words is _CLASSIFIER
        else "The vector is the mean over the tokens; `l2_normalize` in the options brings it to length 1."
    )
    return f"""## MediaPipe {words.name}

`{file}` is all that an app needs: tokenizer and names are inside. {answer}
A text is cut at {length} tokens, of which two stand around it. Special tokens that a text spells out are plain words.
Guides: {_SEE}.

{text}
"""


def _kotlin(words: _Words, file: str, before: str, given: str) -> str:
    return f"""### Kotlin

Gradle: `implementation("com.google.mediapipe:tasks-text:1.0.0")`; `{file}` in `src/main/assets`.

```kotlin
{before}val {words.variable} = {words.name}.createFromFile(context, "{file}")
val answer = {words.variable}.{words.verb}({given})
{words.kotlin}
```
"""


def _swift(words: _Words, before: str, given: str) -> str:
    return f"""### Swift

CocoaPods: `pod 'MediaPipeTasksText', '1.0.0'`.

```swift
{before}let options = {words.name}Options()
options.baseOptions.modelAssetPath = Bundle.main.path(forResource: "model", ofType: "tflite")!
let {words.variable} = try {words.name}(options: options)
let answer = try {words.variable}.{words.verb}(text: {given})
{words.swift}
```
"""


def _web(words: _Words, file: str, before: str, given: str) -> str:
    return f"""### JavaScript

`npm install @mediapipe/tasks-text`.

```javascript
import {{ FilesetResolver, {words.name} }} from "@mediapipe/tasks-text";

{before}const files = await FilesetResolver.forTextTasks("node_modules/@mediapipe/tasks-text/wasm");
const {words.variable} = await {words.name}.createFromModelPath(files, "{file}");
const answer = {words.variable}.{words.verb}({given});
{words.javascript}
```
"""


def _python(words: _Words, file: str, before: str, given: str) -> str:
    needed = "import unicodedata\n\n" if before else ""
    return f"""### Python

`pip install mediapipe`.

```python
{needed}from mediapipe.tasks.python import BaseOptions, text

{before}options = text.{words.name}Options(base_options=BaseOptions(model_asset_path="{file}"))
with text.{words.name}.create_from_options(options) as {words.variable}:
    answer = {words.variable}.{words.verb}({given})
    {words.python}
```
"""
