"""Target TensorFlow: TensorFlow Serving, and any process with TensorFlow."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.export.card.facts import text_prefix
from kerasformer.export.card.quoting import python
from kerasformer.export.targets.base import Target
from kerasformer.tokenization import has_tokenizer


class SavedModel(Target):
    """TensorFlow Serving, and any process with TensorFlow, without this package."""

    name = "saved-model"
    summary = "TensorFlow Serving, and any process with TensorFlow"
    format = "saved-model"

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        return "\n".join((_tensorflow(manifest, folder), _serving(manifest)))


def _signature(manifest: Manifest) -> str:
    """Returns the signature that the examples call."""
    return "generate" if "generate" in manifest.signatures else "serving_default"


def _text(manifest: Manifest) -> str:
    """Returns an example text with the task prefix of the model, if any."""
    return f"{text_prefix(manifest)}A text."


def _tensorflow(manifest: Manifest, folder: Path) -> str:
    """Returns the section for a process with TensorFlow."""
    name = _signature(manifest)
    output = next(iter(manifest.signatures[name].outputs))
    return f"""## TensorFlow

```python
{_inputs(manifest, folder)}
model = tf.saved_model.load("path/to/this/folder")
print(model.signatures[{python(name)}](**inputs)[{python(output)}])
```
{_notes(manifest)}"""


def _inputs(manifest: Manifest, folder: Path) -> str:
    """Returns code that creates the input tensors for a text."""
    inputs, text = manifest.signatures[_signature(manifest)].inputs, python(_text(manifest))
    if "text" in inputs:
        return f"""import tensorflow as tf
import tensorflow_text  # registers the operators of the tokenizer

inputs = {{"text": tf.constant([{text}])}}"""
    values = {
        "input_ids": "ids",
        "attention_mask": "tf.ones_like(ids)",
        "max_new_tokens": "tf.constant(40)",
    }
    entries = "\n".join(f"    {python(key)}: {values.get(key, 'tf.zeros_like(ids)')}," for key in inputs)
    library, load, ids = (
        "import tokenizers",
        'tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json")',
        ".ids",
    )
    if has_tokenizer(folder) and not (folder / "tokenizer.json").exists():
        library, ids = "from transformers import AutoTokenizer", ""
        load = 'AutoTokenizer.from_pretrained("path/to/this/folder")'
    return f"""import tensorflow as tf
{library}

tokenizer = {load}
ids = tf.constant([tokenizer.encode({text}){ids}])
inputs = {{
{entries}
}}"""


def _notes(manifest: Manifest) -> str:
    if "generate" not in manifest.signatures:
        return "\nPad the texts of a batch on the right, with 0 in `attention_mask`.\n"
    side = "right" if manifest.info.is_encoder_decoder else "left"
    ends = ", ".join(map(str, manifest.info.eos_token_id))
    stop = f"the end token ({ends})" if ends else "`max_new_tokens`"
    return f"""
Pad the texts of a batch on the {side}, with 0 in `attention_mask`. `output_ids` are the new tokens, and `lengths` is
the number of them in each row. `generate` selects the most probable token in each step; `sample` samples one, and also
takes `temperature`, `top_k` (0 for no limit) and `seed`. Both stop at {stop} and support no other settings: the beams,
penalties and n-gram rules of `generation_config.json` are applied only by `kerasformer.pipeline`, which calls `decode`.
"""


def _serving(manifest: Manifest) -> str:
    """Returns the section for a request to TensorFlow Serving."""
    name = _signature(manifest)
    arrays = {
        "text": [_text(manifest)],
        "max_new_tokens": 40,
        "input_ids": [[5, 9, 7]],
        "attention_mask": [[1, 1, 1]],
    }
    inputs = {key: arrays.get(key, [[0, 0, 0]]) for key in manifest.signatures[name].inputs}
    in_python = {**inputs, "text": f"[{python(_text(manifest))}]"}
    entries = ", ".join(f"{python(key)}: {in_python[key]}" for key in inputs)
    body = json.dumps({"signature_name": name, "inputs": inputs})
    ids = "" if "text" in inputs else ", with the ids of your text by `tokenizer.json`"
    return f"""## TensorFlow Serving

Put the files of this folder into `models/my_model/1/`; TensorFlow Serving loads `saved_model.pb` and `variables/` and
ignores the others. With Docker:

```
docker run -p 8501:8501 -v "$PWD/models/my_model:/models/my_model" -e MODEL_NAME=my_model tensorflow/serving
```

A request from Python, or with `curl` and the same JSON{ids}:

```python
import requests

body = {{
    "signature_name": {python(name)},
    "inputs": {{{entries}}},
}}
answer = requests.post("http://localhost:8501/v1/models/my_model:predict", json=body)
print(answer.json()["outputs"])
```

```
curl http://localhost:8501/v1/models/my_model:predict \\
    -d {shlex.quote(body)}
```
"""
