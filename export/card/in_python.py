"""Section of a card with a call of this package."""

from __future__ import annotations

from pathlib import Path

from kerasformer.basics.repository import address
from kerasformer.bundle import Manifest
from kerasformer.export.card.facts import lacks_language, prefixed, tokenizer_settings
from kerasformer.export.card.quoting import python

_EXTRA = {"tflite": "litert", "onnx": "onnx", "saved-model": "tensorflow"}
"""The extra with the runtime of each format that needs one."""


def section(manifest: Manifest, folder: Path) -> str:
    """Returns the section with `kf.pipeline`.

    Args:
        manifest: Manifest of the bundle.
        folder: Folder of the bundle, with the files of its tokenizer.
    """
    extra, wheel = (
        _EXTRA.get(manifest.format),
        f"kerasformer-{manifest.versions.get('kerasformer', '0')}-py3-none-any.whl",
    )
    named, suffix = (f" with the extra `{extra}`", f"[{extra}]") if extra else ("", "")
    absent = "Keras is" if manifest.format == "saved-model" else "Keras and TensorFlow are"
    url = address()
    repository = f"kerasformer{suffix} @ git+{url}" if url else f"path/to/kerasformer{suffix}"
    return f"""## kerasformer

Install kerasformer{named}, from a wheel (`pip install "{wheel}{suffix}"`) or from its repository
(`pip install "{repository}"`). {absent} not needed.

```python
import kerasformer as kf

pipe = kf.pipeline("path/to/this/folder", {python(manifest.info.task)})
print({_call(manifest, folder)})
```
"""


def _call(manifest: Manifest, folder: Path) -> str:
    """Returns a call of the pipeline."""
    info = manifest.info
    if info.task in _CALLS:
        return _CALLS[info.task]
    if info.task == "fill-mask":
        mask = tokenizer_settings(folder).get("mask_token", "[MASK]")
        return f"pipe({python(f'A {mask} text.')})"
    if lacks_language(manifest) and info.languages is not None:
        return f'pipe("A text.", tgt_lang={python(next(iter(info.languages.ids)))})'
    if info.is_encoder_decoder and manifest.capacity:
        text, prefix = prefixed(manifest, "A text.")
        chosen = f", prefix={python(prefix)}" if prefix is not None else ""
        return f"pipe({python(text)}{chosen}, max_new_tokens=40)"
    if manifest.capacity and tokenizer_settings(folder).get("chat_template"):
        return 'pipe("What is the capital of France?", max_new_tokens=40)'
    return 'pipe("Once upon a time", max_new_tokens=40)' if manifest.capacity else 'pipe("A text.")'


_CALLS = {
    "question-answering": 'pipe(question="Who?", context="A text.")',
    "sentence-similarity": 'pipe.similarity("A text.", ["Another text.", "A third one."])',
    "multi-vector-similarity": 'pipe.similarity("A query.", ["A text.", "Another text."])',
    "sparse-similarity": 'pipe.similarity("A text.", ["Another text.", "A third one."])',
    "text-ranking": 'pipe.rank("A query.", ["A text.", "Another text."])',
    "zero-shot-classification": 'pipe("A text.", ["a class", "another class"])',
    "zero-shot-token-classification": 'pipe("A text.", ["a type", "another type"])',
}
"""Calls of pipelines that take more than a text."""
