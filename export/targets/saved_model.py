"""TensorFlow Serving, and any process with TensorFlow alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.card.quoting import python
from kerasformer.export.targets.base import Target


class SavedModel(Target):
    """TensorFlow Serving, and any process with TensorFlow alone.

    No other format serves it: TensorFlow runs neither TFLite's nor ONNX's files as its own.
    """

    name = "saved-model"
    summary = "TensorFlow Serving, and any process with TensorFlow alone"
    needs = {"format": "saved-model"}

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        return "\n".join((_tensorflow(manifest), _serving(manifest)))


def _asked(manifest: Manifest) -> str:
    """The signature that the examples call."""
    return "generate" if "generate" in manifest.signatures else "serving_default"


def _text(manifest: Manifest) -> str:
    """What the model is given for a text: some want to be told the task."""
    return f"{manifest.info.prefix}A text."


def _tensorflow(manifest: Manifest) -> str:
    """Code for a process with TensorFlow."""
    name = _asked(manifest)
    output = next(iter(manifest.signatures[name].outputs))
    return f"""## TensorFlow

```python
{_inputs(manifest)}
model = tf.saved_model.load("path/to/this/folder")
print(model.signatures[{python(name)}](**inputs)[{python(output)}])
```
{_notes(manifest)}"""


def _inputs(manifest: Manifest) -> str:
    """Makes tensors of a text."""
    inputs, text = manifest.signatures[_asked(manifest)].inputs, python(_text(manifest))
    if "text" in inputs:
        return f"""import tensorflow as tf
import tensorflow_text  # registers the operators of its tokenizer

inputs = {{"text": tf.constant([{text}])}}"""
    values = {
        "input_ids": "ids",
        "attention_mask": "tf.ones_like(ids)",
        "token_type_ids": "tf.zeros_like(ids)",
        "max_new_tokens": "tf.constant(40)",
    }
    given = "\n".join(f"    {python(key)}: {values[key]}," for key in inputs)
    return f"""import tensorflow as tf
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json")
ids = tf.constant([tokenizer.encode({text}).ids])
inputs = {{
{given}
}}"""


def _notes(manifest: Manifest) -> str:
    """What an array means that does not say so by its name."""
    if "generate" not in manifest.signatures:
        return "\nTexts of a batch are padded on their right, with 0 in `attention_mask`.\n"
    side = "right" if manifest.info.is_encoder_decoder else "left"
    ends = ", ".join(map(str, manifest.info.eos_token_id))
    stop = f"the end token ({ends})" if ends else "`max_new_tokens`"
    return f"""
Texts of a batch are padded on their {side}, with 0 in `attention_mask`. `output_ids` are the new tokens, and `lengths`
how many of them count in each row. `generate` takes the most probable token each time; `sample` draws one, and also
wants `temperature`, `top_k` (0 is off) and `seed`. Both end at {stop} and know no other settings: what
`generation_config.json` says of beams, penalties or n-grams is for `kerasformer.pipeline`, which takes the steps of
`decode`.
"""


def _serving(manifest: Manifest) -> str:
    """A request to TensorFlow Serving."""
    name = _asked(manifest)
    arrays = {
        "text": [_text(manifest)],
        "max_new_tokens": 40,
        "input_ids": [[5, 9, 7]],
        "attention_mask": [[1, 1, 1]],
        "token_type_ids": [[0, 0, 0]],
    }
    inputs = {key: arrays[key] for key in manifest.signatures[name].inputs}
    in_python = {**inputs, "text": f"[{python(_text(manifest))}]"}
    given = ", ".join(f"{python(key)}: {in_python[key]}" for key in inputs)
    body = json.dumps({"signature_name": name, "inputs": inputs})
    ids = "" if "text" in inputs else ", with the ids that `tokenizer.json` gives to your text"
    return f"""## TensorFlow Serving

Put the files of this folder into `models/my_model/1/`; it reads `saved_model.pb` and `variables/` and leaves the others
alone. With Docker:

```
docker run -p 8501:8501 -v "$PWD/models/my_model:/models/my_model" -e MODEL_NAME=my_model tensorflow/serving
```

A request from Python, or by `curl -d` with the same JSON{ids}:

```python
import requests

body = {{
    "signature_name": {python(name)},
    "inputs": {{{given}}},
}}
answer = requests.post("http://localhost:8501/v1/models/my_model:predict", json=body)
print(answer.json()["outputs"])
```

```
curl http://localhost:8501/v1/models/my_model:predict \\
    -d {shlex.quote(body)}
```
"""
