"""Target optimum-onnx 0.1 with transformers 4.57: ONNX Runtime behind the classes and pipelines of transformers.

It loads the plain ONNX folder, with graphs in any subfolder and configuration and tokenizer at the root. No file is
added, and models that it would run incorrectly are refused. Its answers are those of Keras, in greedy and beam search.

Reference: `optimum/onnxruntime/modeling*.py` of huggingface/optimum-onnx.
"""

from __future__ import annotations

from pathlib import Path

from kerasformer.basics.tasks import SENTENCE_SIMILARITY
from kerasformer.bundle import Manifest
from kerasformer.bundle.interface import ENCODER_MODEL, MODEL
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.card.facts import text_prefix
from kerasformer.export.card.quoting import python
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TELEMETRY, TOKENIZED, Target
from kerasformer.export.targets.generation_settings import refuse
from kerasformer.export.targets.model_outputs import embeddings, example, scores
from kerasformer.export.targets.pairs_of_texts import RANKING, ZERO_SHOT, nli_classes
from kerasformer.generation import GenerationConfig

_CLASSES = {
    "text-classification": "ORTModelForSequenceClassification",
    "token-classification": "ORTModelForTokenClassification",
    "question-answering": "ORTModelForQuestionAnswering",
    "fill-mask": "ORTModelForMaskedLM",
    "feature-extraction": "ORTModelForFeatureExtraction",
    SENTENCE_SIMILARITY: "ORTModelForCustomTasks",
    RANKING: "ORTModelForSequenceClassification",
    ZERO_SHOT: "ORTModelForSequenceClassification",
    "text-generation": "ORTModelForCausalLM",
    "text2text-generation": "ORTModelForSeq2SeqLM",
    "summarization": "ORTModelForSeq2SeqLM",
    "translation": "ORTModelForSeq2SeqLM",
}

_IGNORED = ("frequency_penalty", "presence_penalty", "top_h", "uniform")
"""Generation settings that transformers 4.57 silently ignores."""


_BATCHES = """
Prompts of different lengths in one batch need `tokenizer.padding_side = "left"` and a padding token, such as
`tokenizer.pad_token = tokenizer.eos_token`.
"""


_HIDDEN_STATES = """
`ORTModelForFeatureExtraction`, and with it `SentenceTransformer(folder, backend="onnx")`, read hidden states, which
this graph does not return: `KeyError: 'last_hidden_state'`. For these, export the model with `--task
feature-extraction`, and copy `modules.json`, the folders that it names, `config_sentence_transformers.json` and
`sentence_bert_config.json` from the checkpoint into the folder: the pooling then takes place in Python.
"""


class Optimum(Target):
    """optimum: ONNX Runtime behind the classes and pipelines of transformers."""

    name = "optimum"
    app_files = (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    )
    summary = "optimum: ONNX Runtime behind the classes and pipelines of transformers 4"
    format = "onnx"
    inputs = TOKENIZED
    splits_special_tokens = True
    attention = AttentionSupport(caches_may_differ=False, states=False)  # it creates all empty caches with one shape

    def check(self, job: ExportJob) -> None:
        """See `Target.check`."""
        if job.info.task not in _CLASSES:
            raise ExportError(
                f"target='optimum' supports only the tasks {', '.join(_CLASSES)}. Received: "
                f"{job.info.name} for {job.info.task}. Remove target: ONNX Runtime itself runs the plain bundle of "
                "format='onnx'"
            )
        if not job.model.in_transformers:
            raise ExportError(
                "target='optimum' needs an architecture that transformers has. Received: "
                f"{job.info.name}. Remove target: ONNX Runtime itself runs the plain bundle of "
                "format='onnx'"
            )
        if job.info.task == ZERO_SHOT:
            nli_classes(self.name, job.info)
        if job.model.generates:
            self._check_heads(job)
            ignored = [name for name in _IGNORED if name in job.info.generation]
            generation = GenerationConfig.from_dict(job.info.generation)
            refuse(self.name, "its generation, by transformers 4.57, ignores these settings", generation, ignored)

    def _check_heads(self, job: ExportJob) -> None:
        """Checks the head size, which optimum derives from the configuration and not from the graph."""
        config, head_size = job.model.config, job.model.cache_shapes(1, 1)[0][-1]
        if head_size != config.hidden_dim // config.num_heads:
            raise ExportError(
                "target='optimum' needs a head size of hidden_dim // num_heads = "
                f"{config.hidden_dim // config.num_heads}, with which optimum-onnx 0.1 creates empty caches; it would "
                f"fail at the first token. Received: {job.info.name} with a head size of {head_size}. Remove "
                "target: transformers.js and ONNX Runtime itself run the plain bundle of "
                "format='onnx'"
            )

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        info = manifest.info
        lines = [f"model = {_CLASSES[info.task]}.from_pretrained(folder{_file(manifest)})"]
        lines += ["tokenizer = AutoTokenizer.from_pretrained(folder)"]
        remarks = _BATCHES if info.task == "text-generation" else ""
        with_pipeline = info.task not in (SENTENCE_SIMILARITY, RANKING)
        if with_pipeline:
            lines += [f'pipe = pipeline("{info.task}", model=model, tokenizer=tokenizer)']
        elif info.embedding is not None:
            text = python(example(info.embedding))
            lines += [f'inputs = tokenizer([{text}], padding=True, truncation=True, return_tensors="pt")']
            remarks = embeddings(info.embedding) + _HIDDEN_STATES
        else:
            lines += ['texts = ["A query.", "A query."], ["A text.", "Another text."]']
            lines += ['inputs = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")']
            remarks = scores(info)
        code = "\n".join([*lines, f"print({_call(manifest)})"])
        imports = "AutoTokenizer, pipeline" if with_pipeline else "AutoTokenizer"
        return f"""## optimum

`pip install "optimum-onnx[onnxruntime]==0.1.0" "transformers<4.58"`.
{TELEMETRY}

```python
from optimum.onnxruntime import {_CLASSES[info.task]}
from transformers import {imports}

folder = "path/to/this/folder"
{code}
```
{remarks}"""


def _file(manifest: Manifest) -> str:
    """Returns the argument for the name of the graph's file; empty if it is the default name."""
    # For an encoder-decoder, only the encoder is named. The decoder is found by "merged" in its name, but only if no
    # name is passed for it.
    files = {name: Path(signature.file).name for name, signature in manifest.signatures.items()}
    argument, default = ("encoder_file_name", ENCODER_MODEL) if ENCODER_MODEL in files else ("file_name", MODEL)
    return "" if files[default] == f"{default}.onnx" else f', {argument}="{files[default]}"'


def _call(manifest: Manifest) -> str:
    if manifest.info.task == "question-answering":
        return 'pipe(question="Who?", context="A text.")'
    if manifest.info.task == SENTENCE_SIMILARITY:
        return "model(**inputs).sentence_embedding.tolist()"
    if manifest.info.task == RANKING:
        return "model(**inputs).logits.tolist()"
    if manifest.info.task == ZERO_SHOT:
        return 'pipe("A text.", ["a class", "another class"])'
    if manifest.info.task == "fill-mask":
        return 'pipe(f"A {tokenizer.mask_token} text.")'
    if not manifest.capacity:
        return 'pipe("A text.")'
    # Without these arguments, the two pipelines sample and search with four beams, whatever the model's defaults.
    beams = manifest.info.generation.get("num_beams", 1)
    argument = "do_sample=False" if manifest.info.task == "text-generation" else f"num_beams={beams}"
    text = "Once upon a time"
    if manifest.info.is_encoder_decoder:
        text = "A text." if len(manifest.info.prefixes()) == 1 else f"{text_prefix(manifest)}A text."
    return f"pipe({python(text)}, max_new_tokens=40, {argument})"
