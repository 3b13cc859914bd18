"""optimum-onnx 0.1 with transformers 4.57: ONNX Runtime behind the classes and pipelines of transformers.

It reads the plain ONNX folder: graphs anywhere below it, configuration and tokenizer at its root. Nothing is added, and
what it would do wrong is refused. Its answers are those of Keras, in greedy and in beam search.

Reference: `optimum/onnxruntime/modeling*.py` of huggingface/optimum-onnx.
"""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import ENCODER_MODEL, MODEL
from kerasformer.decoding import GenerationConfig
from kerasformer.errors import ExportError, argument
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.options import ExportJob
from kerasformer.export.targets.base import Target
from kerasformer.export.targets.generation_settings import refuse

_CLASSES = {
    "text-classification": "ORTModelForSequenceClassification",
    "token-classification": "ORTModelForTokenClassification",
    "question-answering": "ORTModelForQuestionAnswering",
    "fill-mask": "ORTModelForMaskedLM",
    "feature-extraction": "ORTModelForFeatureExtraction",
    "text-generation": "ORTModelForCausalLM",
    "text2text-generation": "ORTModelForSeq2SeqLM",
    "summarization": "ORTModelForSeq2SeqLM",
    "translation": "ORTModelForSeq2SeqLM",
}

_UNKNOWN = ("frequency_penalty", "presence_penalty", "top_h")
"""Settings of generation that transformers 4.57 passes over in silence."""


_BATCHES = """
Prompts of different lengths in one batch need `tokenizer.padding_side = "left"` and a padding token, such as
`tokenizer.pad_token = tokenizer.eos_token`.
"""


class Optimum(Target):
    """optimum: ONNX Runtime behind the classes of transformers."""

    name = "optimum"
    summary = "optimum: ONNX Runtime behind the classes and pipelines of transformers 4"
    needs = {"format": "onnx"}
    attention = AttentionSupport(caches_may_differ=False)  # empty caches all get one shape

    def check(self, job: ExportJob, quantize: str) -> None:
        """See `Target.check`."""
        if job.info.task not in _CLASSES:
            raise ExportError(
                f"{argument('target', 'optimum')} is for {', '.join(_CLASSES)}. Received: {job.info.name} for "
                f"{job.info.task}. Leave "
                f"target out: ONNX Runtime itself reads the plain bundle of {argument('format', 'onnx')}"
            )
        if job.model.generates:
            self._check_heads(job)
            unknown = [name for name in _UNKNOWN if name in job.info.generation]
            generation = GenerationConfig.from_dict(job.info.generation)
            refuse(
                self.name, "transformers 4.57, which generates here, does not know these settings", generation, unknown
            )

    def _check_heads(self, job: ExportJob) -> None:
        """It makes the first, empty cache as wide as the configuration's sizes suggest, not as the graph says."""
        config, head_size = job.model.config, job.model.cache_shapes(1, 1)[0][-1]
        if head_size != config.hidden_dim // config.num_heads:
            raise ExportError(
                f"{argument('target', 'optimum')} needs heads of hidden_dim // num_heads = "
                f"{config.hidden_dim // config.num_heads}: "
                "optimum-onnx 0.1 makes empty caches of that width, whatever the graph says, and fails at the first "
                f"token. Received: {job.info.name} with heads of {head_size}. Leave {argument('target')} out: "
                f"transformers.js and "
                f"ONNX Runtime itself run the plain bundle of {argument('format', 'onnx')}"
            )

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        info = manifest.info
        lines = [f"model = {_CLASSES[info.task]}.from_pretrained(folder{_file(manifest)})"]
        lines += ["tokenizer = AutoTokenizer.from_pretrained(folder)"]
        lines += [f'pipe = pipeline("{info.task}", model=model, tokenizer=tokenizer)', f"print({_call(manifest)})"]
        code = "\n".join(lines)
        batches = _BATCHES if info.task == "text-generation" else ""
        return f"""## optimum

`pip install "optimum-onnx[onnxruntime]==0.1.0" "transformers<4.58"`.

```python
from optimum.onnxruntime import {_CLASSES[info.task]}
from transformers import AutoTokenizer, pipeline

folder = "path/to/this/folder"
{code}
```
{batches}"""


def _file(manifest: Manifest) -> str:
    """The argument that names the graph, unless it has the name that is looked for."""
    # Of an encoder-decoder it is the encoder's; the decoder is found by `merged`, and not if it is named.
    files = {name: Path(signature.file).name for name, signature in manifest.signatures.items()}
    argument, usual = ("encoder_file_name", ENCODER_MODEL) if ENCODER_MODEL in files else ("file_name", MODEL)
    return "" if files[usual] == f"{usual}.onnx" else f', {argument}="{files[usual]}"'


def _call(manifest: Manifest) -> str:
    """A call of the pipeline."""
    if manifest.info.task == "question-answering":
        return 'pipe(question="Who?", context="A text.")'
    if manifest.info.task == "fill-mask":
        return 'pipe(f"A {tokenizer.mask_token} text.")'
    if not manifest.capacity:
        return 'pipe("A text.")'
    # Without these arguments, the two pipelines sample and search with four beams, whatever the model's defaults.
    beams = manifest.info.generation.get("num_beams", 1)
    argument = "do_sample=False" if manifest.info.task == "text-generation" else f"num_beams={beams}"
    return f'pipe("Once upon a time", max_new_tokens=40, {argument})'
