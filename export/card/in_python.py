"""Python of a card: a call of this package, and a program for LiteRT or ONNX Runtime without this package."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import ProgramFile, kind, lacks_language, source, text_prefix
from kerasformer.export.card.quoting import python

_EXTRA = {"tflite": "litert", "onnx": "onnx", "saved-model": "tensorflow"}
_PACKAGES = {"tflite": "ai-edge-litert", "onnx": "onnxruntime"}


def with_this_package(manifest: Manifest) -> str:
    """Returns the section with `kf.pipeline`."""
    call = 'pipe("Once upon a time", max_new_tokens=40)' if manifest.capacity else 'pipe("A text.")'
    if manifest.info.is_encoder_decoder and manifest.capacity:
        call = f"pipe({_prefixed(manifest)}, max_new_tokens=40)"
    if manifest.info.task == "question-answering":
        call = 'pipe(question="Who?", context="A text.")'
    elif manifest.info.task in _CALLS:
        call = _CALLS[manifest.info.task]
    elif manifest.info.languages is not None and lacks_language(manifest):
        call = f'pipe("A text.", tgt_lang={python(next(iter(manifest.info.languages.ids)))})'
    extra, wheel = _EXTRA[manifest.format], f"kerasformer-{manifest.versions.get('kerasformer', '0')}-py3-none-any.whl"
    absent = "Keras is" if manifest.format == "saved-model" else "Keras and TensorFlow are"
    return f"""## kerasformer

Install kerasformer with the extra `{extra}`, from a wheel (`pip install "{wheel}[{extra}]"`) or from a clone of its
repository (`pip install "path/to/kerasformer[{extra}]"`). {absent} not needed.

```python
import kerasformer as kf

pipe = kf.pipeline("path/to/this/folder", {python(manifest.info.task)})
print({call})
```
"""


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns the program that calls the runtime directly, without this package; it reads the manifest when it runs."""
    if manifest.format not in _PACKAGES or kind(manifest) is None:
        return None
    needs = f"`pip install {_PACKAGES[manifest.format]} tokenizers`"
    return ProgramFile("run.py", "Python", needs, source("run.py"))


def _prefixed(manifest: Manifest) -> str:
    """Returns the argument for a text whose prefix the pipeline does not know, if the model has prefixes."""
    prefix, known = text_prefix(manifest), manifest.info.prefixes()
    if len(known) > 1:
        return f'"A text.", prefix={python(prefix)}'
    return python("A text." if known else f"{prefix}A text.")


_CALLS = {
    "sentence-similarity": 'pipe.similarity("A text.", ["Another text.", "A third one."])',
    "text-ranking": 'pipe.rank("A query.", ["A text.", "Another text."])',
    "zero-shot-classification": 'pipe("A text.", ["a class", "another class"])',
}
"""Calls of pipelines that take more than a text."""
