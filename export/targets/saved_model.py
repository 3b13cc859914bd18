"""TensorFlow Serving, and any process with TensorFlow alone."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.targets.target import Target

# What a request says beside the text, with a value to begin with.
_SETTINGS = {"max_new_tokens": "40", "temperature": "0.8", "top_k": "40", "seed": "1"}


class SavedModel(Target):
    """TensorFlow Serving, and any process with TensorFlow alone.

    No other format serves it: TensorFlow runs neither TFLite's nor ONNX's files as its own.
    """

    name = "saved-model"
    summary = "TensorFlow Serving, and any process with TensorFlow alone"
    needs = {"format": "saved-model"}

    def card(self, manifest: Manifest) -> str:
        """See `Target.card`."""
        return "\n".join((_tensorflow(manifest), _serving(manifest)))


def _asked(manifest: Manifest) -> str:
    """The signature that the examples call."""
    return "generate" if "generate" in manifest.signatures else "serving_default"


def _tensorflow(manifest: Manifest) -> str:
    name = _asked(manifest)
    inputs = manifest.signatures[name].inputs
    imports = "import tensorflow as tf, tensorflow_text" if "text" in inputs else "import tensorflow as tf"
    values = {"text": 'tf.constant(["A text."])', "max_new_tokens": "tf.constant(40)"}
    arguments = ", ".join(f"{key}={values.get(key, key)}" for key in inputs)
    output = next(iter(manifest.signatures[name].outputs))
    tokens = (
        ""
        if "text" in inputs
        else """
# Ids of the file tokenizer.json, here by `pip install tokenizers`.
ids = tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json").encode("A text.").ids
input_ids = tf.constant([ids])"""
    )
    masks = "".join(f"\n{key} = tf.{_FILLED[key]}_like(input_ids)" for key in inputs if key in _FILLED)
    return f"""## TensorFlow

```python
{imports}{"" if "text" in inputs else ", tokenizers"}
{tokens}{masks}

model = tf.saved_model.load("path/to/this/folder")
print(model.signatures["{name}"]({arguments})["{output}"])
```
{_notes(manifest)}"""


_FILLED = {"attention_mask": "ones", "token_type_ids": "zeros"}


def _notes(manifest: Manifest) -> str:
    """What an array means that does not say so by its name."""
    if "generate" not in manifest.signatures:
        return "Texts of a batch are padded on their right, with 0 in `attention_mask`.\n"
    side = "right" if manifest.info.is_encoder_decoder else "left"
    return f"""
Texts of a batch are padded on their {side}, with 0 in `attention_mask`. `generate` takes the most probable token each
time; `sample` draws one, with `temperature`, `top_k` (0 is off) and `seed`. Both end at
{_ends(manifest)}, and know no other settings: what `generation_config.json` says of beams, penalties or
n-grams is for `kerasformer.pipeline`, which takes the steps of `decode` one by one. `output_ids` are the new tokens,
and `lengths` how many of them count in each row.
"""


def _ends(manifest: Manifest) -> str:
    ends = ", ".join(map(str, manifest.info.eos_token_id))
    return f"the end token ({ends})" if ends else "`max_new_tokens`"


def _serving(manifest: Manifest) -> str:
    name = _asked(manifest)
    inputs = manifest.signatures[name].inputs
    texts = {"text": '["A text."]', "input_ids": "[[101, 102]]", "attention_mask": "[[1, 1]]"}
    values = {**texts, "token_type_ids": "[[0, 0]]", **_SETTINGS}
    given = ", ".join(f'"{key}": {values[key]}' for key in inputs)
    body = f'{{"signature_name": "{name}", "inputs": {{{given}}}}}'
    return f"""## TensorFlow Serving

Put the files of this folder into `models/my_model/1/`; it reads `saved_model.pb` and `variables/` and leaves the others
alone. With Docker:

```
docker run -p 8501:8501 -v "$PWD/models/my_model:/models/my_model" -e MODEL_NAME=my_model tensorflow/serving
curl http://localhost:8501/v1/models/my_model:predict -d '{body}'
```

```python
import requests

answer = requests.post(
    "http://localhost:8501/v1/models/my_model:predict",
    json={body},
)
print(answer.json()["outputs"])
```
"""
