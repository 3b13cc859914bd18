"""What the model card says of MediaPipe: the code for each platform, with the bundle's own names."""

from __future__ import annotations

from dataclasses import dataclass

from kerasformer.bundle import PROBABILITIES, Manifest

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


def section(manifest: Manifest) -> str:
    """A section for the model card."""
    (signature,) = manifest.signatures.values()
    words = _CLASSIFIER if PROBABILITIES in signature.outputs else _EMBEDDER
    file, length = signature.file, signature.inputs["input_ids"].shape[1]
    return "\n".join(
        (_about(words, file, length), _kotlin(words, file), _swift(words), _web(words, file), _python(words, file))
    )


def _about(words: _Words, file: str, length: int | str) -> str:
    answer = (
        "Scores are probabilities, by the names of the classes."
        if words is _CLASSIFIER
        else "The vector is the mean over the tokens; `l2_normalize` in the options brings it to length 1."
    )
    return f"""## MediaPipe {words.name}

`{file}` is all that an app needs: tokenizer and names are inside. {answer}
A text is cut at {length} tokens, of which two stand around it. A BERT vocabulary (`vocab.txt` in the file) is read as
MediaPipe reads it: A to Z become small and no other capital does, accents stay, only the spaces of ASCII part words,
and a word of more than 100 bytes is unknown. So a text of ASCII alone has the tokens of `tokenizer.json`, and another
one may have `[UNK]` in the place of words. A SentencePiece vocabulary (`spiece.model`) has them for other texts too.
Special tokens that a text spells out are plain words. Guides: {_SEE}.
"""


def _kotlin(words: _Words, file: str) -> str:
    return f"""### Kotlin

Gradle: `implementation("com.google.mediapipe:tasks-text:1.0.0")`; `{file}` in `src/main/assets`.

```kotlin
val {words.variable} = {words.name}.createFromFile(context, "{file}")
val answer = {words.variable}.{words.verb}("A text.")
{words.kotlin}
```
"""


def _swift(words: _Words) -> str:
    return f"""### Swift

CocoaPods: `pod 'MediaPipeTasksText', '1.0.0'`.

```swift
let options = {words.name}Options()
options.baseOptions.modelAssetPath = Bundle.main.path(forResource: "model", ofType: "tflite")!
let {words.variable} = try {words.name}(options: options)
let answer = try {words.variable}.{words.verb}(text: "A text.")
{words.swift}
```
"""


def _web(words: _Words, file: str) -> str:
    return f"""### JavaScript

`npm install @mediapipe/tasks-text`.

```javascript
import {{ FilesetResolver, {words.name} }} from "@mediapipe/tasks-text";
const files = await FilesetResolver.forTextTasks("node_modules/@mediapipe/tasks-text/wasm");
const {words.variable} = await {words.name}.createFromModelPath(files, "{file}");
const answer = {words.variable}.{words.verb}("A text.");
{words.javascript}
```
"""


def _python(words: _Words, file: str) -> str:
    return f"""### Python

`pip install mediapipe`.

```python
from mediapipe.tasks.python import BaseOptions, text

options = text.{words.name}Options(base_options=BaseOptions(model_asset_path="{file}"))
with text.{words.name}.create_from_options(options) as {words.variable}:
    answer = {words.variable}.{words.verb}("A text.")
    {words.python}
```
"""
