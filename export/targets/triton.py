"""Target Triton Inference Server: the bundle is a folder of a model repository, for Triton's backend of ONNX Runtime.

The bundle adds `config.pbtxt` and has the graph in `1/`, as version 1. Triton reads only these and ignores the other
files, so that no file is there twice, and `kf.pipeline` opens the same folder. Its parent is the model repository.

Texts become ids in the client, by `tokenizer.json`. Triton's other way, a model of its Python backend in an ensemble,
needs Python and a tokenizer in the image of the server, and can only be run inside of one.

Reference: `docs/user_guide/model_repository.md` and `model_configuration.md` of triton-inference-server/server; the
schema of the configuration is `model_config.proto` of triton-inference-server/common.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import gcd
from pathlib import Path

from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.bundle.interface import Kind, TensorInfo
from kerasformer.errors import ExportError
from kerasformer.export.card.facts import limit
from kerasformer.export.card.quoting import python
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TOKENIZED, Target
from kerasformer.export.targets.model_outputs import embeddings, example
from kerasformer.export.targets.pairs_of_texts import RANKING, ZERO_SHOT

CONFIG, LABELS = "config.pbtxt", "labels.txt"
MAX_BATCH = 32
"""Largest number of texts that Triton puts into one call of the model."""
BUCKET = 32
"""The program on the card pads texts to multiples of this length: Triton puts only texts of one length together."""
_DELAY = 1000
"""Microseconds for which Triton waits for further texts of a call."""
_TYPES = {
    "float32": ("TYPE_FP32", "FP32"),
    "float16": ("TYPE_FP16", "FP16"),
    "int32": ("TYPE_INT32", "INT32"),
    "int64": ("TYPE_INT64", "INT64"),
}
"""Names of a data type in the configuration, and in the protocol of requests."""


class Triton(Target):
    """Triton Inference Server, for all models that read whole texts in one call."""

    name = "triton"
    summary = "Triton Inference Server with ONNX Runtime; its files are checked, the server is not run"
    format = "onnx"
    inputs = TOKENIZED
    reads_tokenizer = True
    app_files = ("tokenizer.json",)
    model_folder = "1"

    def check(self, job: ExportJob) -> None:
        """See `Target.check`."""
        if job.model.generates:
            raise ExportError(
                "target='triton' supports models that answer in one call, since a client would have to send the "
                f"caches with each token. Received: {job.info.name} for {job.info.task}. Remove target, and serve the "
                "bundle with kerasformer serve"
            )

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Writes the configuration, and the names of the classes of a classifier."""
        labels = manifest.info.labels if job.info.task == "text-classification" else []
        added = [folder / CONFIG, *([folder / LABELS] if labels else [])]
        (folder / CONFIG).write_text(configuration(_signature(manifest), bool(labels)), encoding="utf-8")
        if labels:  # a name with a line break would shift all that follow
            (folder / LABELS).write_text("".join(f"{' '.join(label.split())}\n" for label in labels), encoding="utf-8")
        return added

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        info = manifest.info
        text = python(example(info.embedding) if info.embedding is not None else "A text.")
        if info.task in ("question-answering", RANKING, ZERO_SHOT):
            text = '("A question.", "A text.")'
        remarks = embeddings(info.embedding) if info.embedding is not None else ""
        length = limit(manifest)
        truncation = f"tokenizer.enable_truncation({length})\n" if length else ""
        multiple = gcd(BUCKET, length or BUCKET)
        padding = info.pad_token_id or 0
        return f"""## Triton Inference Server

This folder is a folder of a model repository, and its name is the name of the model. Triton reads `{CONFIG}` and
`{self.model_folder}/`, and ignores the other files:

```
docker run --rm -p 8000:8000 -e ORT_DISABLE_TELEMETRY=1 -v "$PWD/models:/models:ro" \\
    nvcr.io/nvidia/tritonserver:<version>-py3 \\
    tritonserver --model-repository=/models
```

The client turns texts into ids (`pip install tokenizers`), here by the HTTP protocol of Triton and KServe:

```python
import json
import urllib.request

from tokenizers import Tokenizer

server, model = "http://localhost:8000", "name-of-this-folder"
tokenizer = Tokenizer.from_file("path/to/this/folder/tokenizer.json")
{truncation}tokenizer.enable_padding(pad_id={padding}, pad_to_multiple_of={multiple})
texts = tokenizer.encode_batch([{text}])
values = {{
    "input_ids": [text.ids for text in texts],
    "attention_mask": [text.attention_mask for text in texts],
    "token_type_ids": [text.type_ids for text in texts],
}}
types = {json.dumps({name: _TYPES[tensor.dtype][1] for name, tensor in _signature(manifest).inputs.items()})}
inputs = [
    {{"name": name, "datatype": kind, "shape": [len(texts), len(texts[0].ids)], "data": values[name]}}
    for name, kind in types.items()
]
request = urllib.request.Request(
    f"{{server}}/v2/models/{{model}}/infer",
    json.dumps({{"inputs": inputs}}).encode(),
    {{"Content-Type": "application/json"}},
)
with urllib.request.urlopen(request) as answer:
    outputs = {{each["name"]: each for each in json.load(answer)["outputs"]}}
print({{name: (output["shape"], output["data"]) for name, output in outputs.items()}})
```
{remarks}
Triton puts requests together only if their texts have the same length: the client pads to multiples of {multiple}.
"""


def _signature(manifest: Manifest) -> Signature:
    """Returns the signature of the graph."""
    (signature,) = manifest.of_role(Role.FORWARD).values()
    return signature


def configuration(signature: Signature, has_labels: bool = False) -> str:
    """Returns the content of `config.pbtxt`.

    Args:
        signature: The graph; the first axis of each tensor is the number of texts.
        has_labels: Whether the names of the classes are in `labels.txt`.

    Raises:
        ExportError: The graph has a tensor of another type, or one without an axis for texts.
    """
    inputs = ",\n".join(_tensor(name, info) for name, info in signature.inputs.items())
    outputs = ",\n".join(
        _tensor(name, info, LABELS if has_labels and info.kind == Kind.LOGITS else "")
        for name, info in signature.outputs.items()
    )
    return f"""# The model is named after this folder, since there is no field `name`.
backend: "onnxruntime"
default_model_filename: "{Path(signature.file).name}"
max_batch_size: {MAX_BATCH}
input [
{inputs}
]
output [
{outputs}
]
dynamic_batching {{
  max_queue_delay_microseconds: {_DELAY}
}}
instance_group [
  {{
    count: 1
    kind: KIND_CPU
  }}
]
"""


def _tensor(name: str, info: TensorInfo, labels: str = "") -> str:
    """Returns the entry of a tensor: its sizes without the axis of texts, with -1 for any size."""
    first, *sizes = info.shape
    if isinstance(first, int) or info.dtype not in _TYPES:
        raise ExportError(
            f"target='triton' supports tensors of {', '.join(_TYPES)} with any number of texts on the first axis. "
            f"Received: {name}, {info.dtype} {info.shape}. Remove target"
        )
    dims = ", ".join(str(size if isinstance(size, int) else -1) for size in sizes)
    label_file = f'\n    label_filename: "{labels}"' if labels else ""
    return f"""  {{
    name: "{name}"
    data_type: {_TYPES[info.dtype][0]}
    dims: [ {dims} ]{label_file}
  }}"""
