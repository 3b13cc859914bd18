"""transformers.js 4: pipelines in Node and in browsers, on ONNX Runtime's own kernels or on WebAssembly.

It reads the ONNX folder as it is, both profiles of it, and finds by `config.json` which files are there. This target
asks for one thing more. In a browser a graph sees its own data file and no other, while ONNX Runtime elsewhere reads
any file beside the graph; so a table that an encoder and a decoder share lies in both files here. The plain bundle
stores it once: it runs in Node unchanged, and in a browser with
`session_options: {externalData: [{path: name, data: "onnx/" + name}]}`, where `name` is that of the `.onnx_data` file;
Node in turn refuses this option.

Its pipelines answer as ours do, but for this:

- Tokens and entities have no `start` and `end`, and `word` is the token as the vocabulary spells it. Words that the
  vocabulary lacks are passed over.
- `question-answering` gives `answer` and `score`, the answer in the vocabulary's spelling. It reads one window of the
  context, and an answer may have any length.
- `feature-extraction` gives a tensor; `pooling` and `normalize` are options.
- Texts that are too long for the tokenizer's `model_max_length` are cut without a word, the last special token too.
- Generation writes 256 tokens unless `max_new_tokens` says otherwise. A decoder that would write beyond its last
  position fails: `indices element out of data bounds`; the page then needs to be loaded again. Of texts that are
  written at once, one that has ended goes on until all have.
- In browsers, the profile `"ort"` does not round what it multiplies with matrices of integers: its answers are a little
  closer to Keras than those of ONNX Runtime elsewhere, and not equal to them bit by bit.
- It follows the settings `KNOWN` below, and draws among the 50 likeliest tokens unless `top_k` says otherwise; there
  are no beams.
- A `max_length` or `num_beams` that the checkpoint has for a task alone is not read; its prefix is.

Reference: `src/pipelines`, `src/models/modeling_utils.js` and `src/models/registry.js` of huggingface/transformers.js.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerasformer.bundle import Manifest, ModelInfo
from kerasformer.errors import ExportError, argument
from kerasformer.export.card.quoting import code
from kerasformer.export.formats.onnx.onnx_format import SUFFIXES
from kerasformer.export.graph.functions import Function
from kerasformer.export.hugging_face_files import tells_pairs_apart
from kerasformer.export.options import ExportJob
from kerasformer.export.targets.base import Target

VERSION = "4.3.1"

_LACKS = {
    "albert": ("token-classification",),
    "bloom": ("text-classification",),
    "gpt2": ("text-classification",),
    "llama": ("text-classification",),
    "t5": ("feature-extraction",),
}
"""Heads that have no class there, or one of other files."""

_NO_PIPELINE = ("pretraining",)

KNOWN = (
    "max_new_tokens",
    "max_length",
    "min_new_tokens",
    "min_length",
    "do_sample",
    "temperature",
    "top_k",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "eos_token_id",
    "pad_token_id",
    "bos_token_id",
    "decoder_start_token_id",
)
"""Settings of generation that it follows."""

_OF_BEAMS = ("length_penalty", "early_stopping")
_OF_SPEED = ("prompt_lookup_num_tokens", "max_matching_ngram_size", "num_assistant_tokens", "seed")


_NAME = re.compile(r"\b[\w\-.]{1,96}\b", re.ASCII)
"""Of a folder: a model id of the hub."""

_RULES = {
    "normalizer": ("BertNormalizer", "Precompiled", "Replace", "NFC", "NFD", "NFKC", "NFKD", "Strip", "StripAccents")
    + ("Lowercase", "Prepend"),
    "pre_tokenizer": ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Metaspace", "ByteLevel", "Split")
    + ("Punctuation", "Digits", "FixedLength"),
    "model": ("WordPiece", "Unigram", "BPE"),
    "post_processor": ("TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing"),
    "decoder": ("ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "CTC", "Replace", "Fuse", "Strip")
    + ("ByteFallback",),
}
"""Parts of a `tokenizer.json` for which its tokenizers have a class."""


class TransformersJs(Target):
    """transformers.js: Node and browsers."""

    name = "transformers.js"
    summary = "transformers.js: pipelines in Node and in browsers"
    needs = {"format": "onnx"}

    def check(self, job: ExportJob, quantize: str) -> None:
        """See `Target.check`."""
        self._check_pipeline(job)
        self._check_tokenizer(job)
        if quantize not in SUFFIXES:
            raise ExportError(
                f"{argument('target', self.name)} needs a recipe whose files it can name, one of "
                f"{', '.join(SUFFIXES)}. Received: "
                f"{quantize!r}. Leave {argument('target')} out: ONNX Runtime itself reads the plain bundle of "
                f"{argument('format', 'onnx')}"
            )
        if passed_over := _passed_over(job.info):
            received = ", ".join(f"{name}={job.info.generation[name]!r}" for name in passed_over)
            warnings.warn(
                f"transformers.js passes over these settings of model.generation_config: {received}. It will write as "
                "if they had not been set",
                UserWarning,
                stacklevel=3,
            )

    def check_name(self, name: str) -> None:
        """Warns of a folder that is not found by its name."""
        if not _NAME.fullmatch(name) or re.search(r"\.\.|--|\.(git|ipynb)$", name):
            warnings.warn(
                "transformers.js looks below env.localModelPath for names of up to 96 letters, digits, '-', '_' and "
                f"'.', without '--' or '..', and finds others by their whole path alone. Received: {name!r}. Rename "
                "the folder, or open it as the model card does in Node",
                UserWarning,
                stacklevel=3,
            )

    def _check_pipeline(self, job: ExportJob) -> None:
        """Refuses models that no pipeline opens."""
        if job.info.task in (*_NO_PIPELINE, *_LACKS.get(job.info.model_type, ())):
            raise ExportError(
                f"{argument('target', self.name)} needs a model that one of its pipelines opens. Received: "
                f"{job.info.name} for "
                f"{job.info.task}, for which transformers.js {VERSION} has none. Leave {argument('target')} out: ONNX "
                f"Runtime Web "
                f"itself runs the plain bundle of {argument('format', 'onnx')}"
            )

    def _check_tokenizer(self, job: ExportJob) -> None:
        """Refuses models that would read other tokens than here."""
        tokenizer = job.model.tokenizer
        if tokenizer is None:
            raise ExportError(
                f"{argument('target', self.name)} needs a tokenizer, for its pipelines read texts. Received: a model "
                f"whose "
                "tokenizer is None. Set model.tokenizer = kerasformer.tokenizer(folder)"
            )
        if unread := list(_unread(json.loads(tokenizer.backend.to_str()))):
            raise ExportError(
                f"{argument('target', self.name)} needs a tokenizer whose rules transformers.js has, or it stops or "
                f"reads other tokens. Received: {', '.join(unread)}. Leave {argument('target')} out, and make ids "
                "with a tokenizer of your own"
            )
        pairs = job.info.task == "question-answering" and "token_type_ids" in job.model.input_names
        if pairs and not tells_pairs_apart(tokenizer):
            raise ExportError(
                f"{argument('target', self.name)} needs a tokenizer of BERT's or ALBERT's kind for {job.info.name}: "
                f"with others, "
                "transformers.js does not tell a question from its context by token_type_ids. Received: "
                f"{type(tokenizer.backend.model).__name__}. Leave {argument('target')} out: ONNX Runtime itself, with "
                f"token_type_ids "
                f"of your own, runs the plain bundle of {argument('format', 'onnx')}"
            )

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Each in a file that needs no other."""
        return [replace(function, alone=True) for function in functions]

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        call = _call(manifest)
        return f"""## transformers.js

`npm install @huggingface/transformers@{VERSION}`. No `dtype` is needed: `config.json` says which files are here.

```javascript
import path from "node:path";
import {{ env, pipeline }} from "@huggingface/transformers";

env.allowRemoteModels = false;
const pipe = await pipeline("{manifest.info.task}", path.resolve("path/to/this/folder"));
console.log({call});
```

In a browser, with this folder beside the page under the name `model`:

```html
<!doctype html>
<script type="module">
  import {{ env, pipeline }} from "https://cdn.jsdelivr.net/npm/@huggingface/transformers@{VERSION}";

  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "./";
  const pipe = await pipeline("{manifest.info.task}", "model");
  document.body.append(JSON.stringify({call}));
</script>
```
{_remarks(manifest)}"""


def _unread(content: dict[str, Any]) -> Iterator[str]:
    """Rules of a `tokenizer.json` that it lacks, or has otherwise, in words."""
    for part, known in _RULES.items():
        for rule in _steps(content.get(part)):
            if rule.get("type", "BPE") not in known:
                yield f"{part} {rule['type']}"
            elif not _splits_alike(rule):
                yield f"{part} {rule['type']}({rule.get('pattern', '')}, {rule['behavior']})"


def _splits_alike(rule: dict[str, Any]) -> bool:
    """Of a pattern it knows two behaviors, and with a plain string it keeps what it should remove."""
    if rule.get("type") == "Punctuation":
        return rule["behavior"] == "Contiguous"
    if rule.get("type") != "Split":
        return True
    invert, removed = rule.get("invert"), rule["behavior"] == "Removed"
    return removed if invert else rule["behavior"] == "Isolated" or (removed and "Regex" in rule["pattern"])


def _steps(rule: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A rule, or those of a sequence."""
    if rule and rule.get("type") == "Sequence":
        for steps in (value for value in rule.values() if isinstance(value, list)):
            for step in steps:
                yield from _steps(step)
    elif rule:
        yield rule


def _passed_over(info: ModelInfo) -> list[str]:
    """Names of settings that it does not follow, and that would choose other tokens."""
    return [name for name in info.generation if name not in (*KNOWN, *_OF_BEAMS, *_OF_SPEED)]


def _call(manifest: Manifest) -> str:
    """Of the pipeline, with what its answer is read by."""
    task = manifest.info.task
    if task == "question-answering":
        return 'await pipe("Who?", "A text.")'
    if task == "fill-mask":
        return "await pipe(`A ${pipe.tokenizer.mask_token} text.`)"
    if task == "feature-extraction":
        return '(await pipe("A text.")).tolist()'
    if manifest.capacity:
        return 'await pipe("Once upon a time", { max_new_tokens: 40 })'
    return 'await pipe("A text.")'


def _remarks(manifest: Manifest) -> str:
    """What is otherwise there than in Python."""
    if not manifest.capacity:
        return ""
    info = manifest.info
    prefixes = [code(text) for text in info.prefixes().values()]
    before = f"Put one of these before the text: {', '.join(prefixes)}. " if len(prefixes) > 1 else ""
    before += "" if info.is_encoder_decoder else f"Prompt and answer together have {info.max_length} tokens at most. "
    names = ", ".join(code(name) for name in _passed_over(info))
    ignored = f" It passes over {names} of `generation_config.json`." if names else ""
    return f"\n{before}There are no beams, and without `max_new_tokens` it writes up to 256 tokens.{ignored}\n"
