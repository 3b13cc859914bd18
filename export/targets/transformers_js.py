"""Target transformers.js 4: pipelines in Node and in browsers, on ONNX Runtime's native kernels or WebAssembly.

It loads the ONNX folder with either profile, and reads in `config.json` which files the folder has. This target makes
one change. In a browser, a graph can read only its own data file, whereas ONNX Runtime elsewhere can read any file
beside the graph; a table that an encoder and a decoder share is therefore stored in both files. The plain bundle stores
it once. It runs unchanged in Node, and in a browser with
`session_options: {externalData: [{path: name, data: "onnx/" + name}]}`, where `name` is the name of the `.onnx_data`
file; Node rejects this option.

Its pipelines differ from ours as follows:

- Tokens and entities have no `start` and `end`, and `word` is the token as in the vocabulary. Unknown words are
  skipped.
- `question-answering` returns only `answer` and `score`, with the answer composed of tokens of the vocabulary. It reads
  only the first segment of a long context, and does not limit the length of an answer.
- `feature-extraction` returns a tensor; `pooling` and `normalize` are options.
- Texts longer than the tokenizer's `model_max_length` are silently truncated, including the last special token.
- Generation produces 256 tokens unless `max_new_tokens` is set. A decoder fails beyond its last position, with
  `indices element out of data bounds`, and the page has to be reloaded. In a batch, a text that has ended is continued
  until all texts have ended.
- In browsers, the profile `"ort"` does not quantize activations: its answers are slightly closer to Keras than those of
  ONNX Runtime elsewhere, and not bitwise equal to them.
- It supports only the generation settings in `SUPPORTED_SETTINGS` below, samples from the 50 most probable tokens
  unless `top_k` is set, and has no beam search.
- It ignores a `max_length` or `num_beams` that the checkpoint has for a single task, but uses the task's prefix.

Reference: `src/pipelines`, `src/models/modeling_utils.js` and `src/models/registry.js` of huggingface/transformers.js.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import indent

from kerasformer.basics.tasks import PRETRAINING, SENTENCE_SIMILARITY, task_of_model
from kerasformer.bundle import Manifest, ModelInfo
from kerasformer.bundle.architectures import DECODER, find
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.card.facts import kind, limit, text_prefix
from kerasformer.export.card.quoting import code, javascript
from kerasformer.export.formats.onnx.onnx_format import SUFFIXES
from kerasformer.export.graph.functions import Function
from kerasformer.export.hugging_face_files import sets_token_types
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TELEMETRY, TOKENIZED, Target
from kerasformer.export.targets.model_outputs import embeddings, example, scores
from kerasformer.export.targets.pairs_of_texts import RANKING, ZERO_SHOT, nli_classes
from kerasformer.files.reading import JsonObject

VERSION = "4.3.1"

_HEADS = ("question-answering", "text-classification", "token-classification")
_LACKS = {
    "albert": ("token-classification",),
    "bart": ("feature-extraction", "question-answering", "fill-mask"),
    "big_bird": ("fill-mask", "question-answering", "text-classification", "token-classification"),
    "bigbird_pegasus": ("feature-extraction", "question-answering", "text-classification", "text2text-generation"),
    "ctrl": ("text-generation",),
    # Its text generation passes caches with all heads, while the shared head has one.
    "gpt_bigcode": ("text-generation",),
    "led": ("feature-extraction", "question-answering", "text2text-generation"),
    "marian": ("feature-extraction",),
    "mbart": ("feature-extraction", "question-answering", "fill-mask"),
    "mobilebert": ("token-classification",),
    "modernbert": ("question-answering",),
    "mt5": ("feature-extraction", *_HEADS),
    "openai-gpt": ("text-generation",),
    "pegasus": ("feature-extraction", "text2text-generation"),
    "umt5": ("feature-extraction", "text2text-generation", *_HEADS),
    "xglm": ("text-generation",),
    "longformer": ("fill-mask", "question-answering", "text-classification", "token-classification"),
    "t5": ("feature-extraction", *_HEADS),
}
"""Tasks of model types that have no class in transformers.js, or one that needs other files."""

_OF_DECODERS = ("text-generation", "feature-extraction")
"""Tasks for which it has classes of decoders."""

_CLASSES = {SENTENCE_SIMILARITY: "AutoModel", RANKING: "AutoModelForSequenceClassification"}
"""Classes for tasks without a pipeline, of models that its pipelines for other tasks open."""
_OF_CLASS = {
    SENTENCE_SIMILARITY: "feature-extraction",
    RANKING: "text-classification",
    ZERO_SHOT: "text-classification",
}
"""Tasks of the same class for these tasks."""

SUPPORTED_SETTINGS = (
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
"""Generation settings that transformers.js supports."""

_BEAM_SETTINGS = ("length_penalty", "early_stopping")
_SPEED_SETTINGS = ("prompt_lookup_num_tokens", "max_matching_ngram_size", "num_assistant_tokens", "seed")


_NAME = re.compile(r"\b[\w\-.]{1,96}\b", re.ASCII)
"""Names of folders that are valid as model ids of the hub."""

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
"""Parts of a `tokenizer.json` that transformers.js supports."""


class TransformersJs(Target):
    """transformers.js, for Node and browsers."""

    name = "transformers.js"
    summary = "transformers.js: pipelines in Node and in browsers"
    format = "onnx"
    inputs = TOKENIZED
    attention = AttentionSupport(states=False)
    reads_tokenizer = True
    app_files = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")

    def check(self, job: ExportJob) -> None:
        """See `Target.check`."""
        self._check_pipeline(job)
        self._check_tokenizer(job)
        if job.recipe.name not in SUFFIXES:
            raise ExportError(
                f"target={self.name!r} supports only the recipes {', '.join(SUFFIXES)}, which have file "
                f"names there. Received: {job.recipe.name!r}. Remove target: ONNX Runtime itself runs the plain "
                "bundle of format='onnx'"
            )
        if ignored := _ignored_settings(job.info):
            received = ", ".join(f"{name}={job.info.generation[name]!r}" for name in ignored)
            warnings.warn(
                f"transformers.js ignores these settings of model.generation_config: {received}. It will generate as "
                "if they were not set",
                UserWarning,
                stacklevel=3,
            )

    def check_name(self, name: str) -> None:
        """Warns if transformers.js does not find a folder by this name."""
        if not _NAME.fullmatch(name) or re.search(r"\.\.|--|\.(git|ipynb)$", name):
            warnings.warn(
                "Below env.localModelPath, transformers.js finds only names of up to 96 letters, digits, '-', '_' and "
                f"'.', without '--' or '..'; other folders need their whole path. Received: {name!r}. Rename the "
                "folder, or open it by its path as in the Node program on the model card",
                UserWarning,
                stacklevel=3,
            )

    def _check_pipeline(self, job: ExportJob) -> None:
        """Refuses models for which transformers.js has no pipeline."""
        task = task_of_model(_OF_CLASS.get(job.info.task, job.info.task))
        lacks = not job.model.in_transformers or task in (*PRETRAINING, *_LACKS.get(job.info.model_type, ()))
        if lacks or (find(job.info.model_type).branch == DECODER and task not in _OF_DECODERS):
            raise ExportError(
                f"target={self.name!r} needs a model that one of its pipelines supports. Received: "
                f"{job.info.name} for {job.info.task}, which transformers.js {VERSION} does not support. Remove "
                "target: ONNX Runtime Web itself runs the plain bundle of format='onnx'"
            )

        if job.info.task == ZERO_SHOT and not _finds_classes(job.info):
            raise ExportError(
                f"target={self.name!r} needs the classes 'entailment' and 'contradiction' or "
                "'not_entailment' for zero-shot-classification; it would read the scores of other classes. Received: "
                f"{', '.join(job.info.labels)}. Set these names (id2label)"
            )

    def _check_tokenizer(self, job: ExportJob) -> None:
        """Refuses models whose texts transformers.js would tokenize differently."""
        tokenizer = job.model.tokenizer
        if tokenizer is None:
            raise ExportError(
                f"target={self.name!r} needs a tokenizer, since its pipelines take texts. Received: "
                "model.tokenizer=None. Set model.tokenizer = kerasformer.Tokenizer.load(folder)"
            )
        if unsupported := list(_unsupported_rules(json.loads(tokenizer.backend.to_str()))):
            raise ExportError(
                f"target={self.name!r} needs a tokenizer whose rules transformers.js supports; otherwise it "
                f"fails or tokenizes differently. Received: {', '.join(unsupported)}. Remove target, and "
                "tokenize with another library"
            )
        of_pairs = job.info.task in ("question-answering", RANKING, ZERO_SHOT)
        pairs = of_pairs and "token_type_ids" in job.model.input_names
        if pairs and not sets_token_types(tokenizer):
            raise ExportError(
                f"target={self.name!r} needs a tokenizer like BERT's or ALBERT's for {job.info.name}: with "
                "others, transformers.js does not set token_type_ids, which distinguish a question from its context. "
                f"Received: {type(tokenizer.backend.model).__name__}. Remove target: ONNX Runtime itself "
                "runs the plain bundle of format='onnx' with token_type_ids that your program sets"
            )

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Stores all weights of each function in its own file."""
        return [replace(function, standalone=True) for function in functions]

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        if manifest.info.task == ZERO_SHOT and not _finds_classes(manifest.info):
            return ""  # of a plain bundle, which is not checked for this target
        names = _CLASSES.get(manifest.info.task)
        imports = f"{names}, AutoTokenizer, env" if names else "env, pipeline"
        return f"""## transformers.js

`npm install @huggingface/transformers@{VERSION}`. No `dtype` is needed: `config.json` specifies which files this folder
contains. {TELEMETRY} That is for Node.js; the build for browsers sends none.

```javascript
import path from "node:path";
import {{ {imports} }} from "@huggingface/transformers";

env.allowRemoteModels = false;
{_opened(manifest, 'path.resolve("path/to/this/folder")')}
{_checked(manifest)}console.log({_call(manifest)});
```

In a browser, with this folder beside the page, named `model`:

```html
<!doctype html>
<script type="module">
  import {{ {imports} }} from "https://cdn.jsdelivr.net/npm/@huggingface/transformers@{VERSION}";

  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "./";
{indent(_opened(manifest, '"model"'), "  ")}
{indent(_checked(manifest), "  ")}  document.body.append(JSON.stringify({_call(manifest)}));
</script>
```
{_remarks(manifest)}"""


def _finds_classes(info: ModelInfo) -> bool:
    """Returns whether its pipeline for zero-shot classification reads the same classes as `kf.pipeline`."""
    labels = [label.lower() for label in info.labels]
    # It expects these names, and falls back to fixed indices.
    entailment = labels.index("entailment") if "entailment" in labels else 2
    known = [name for name in ("contradiction", "not_entailment") if name in labels]
    return nli_classes(TransformersJs.name, info) == (entailment, labels.index(known[0]) if known else 0)


def _unsupported_rules(content: JsonObject) -> Iterator[str]:
    """Yields descriptions of the rules of a `tokenizer.json` that it lacks, or implements differently."""
    replaced = {
        rule["pattern"].get("String")
        for rule in _steps(content.get("normalizer"))
        if rule.get("type") == "Replace" and rule["pattern"].get("String", "") not in rule["content"]
    }
    for part, supported in _RULES.items():
        for rule in _steps(content.get(part)):
            if rule.get("type") == "Split" and rule["pattern"].get("String") in replaced:
                continue  # without effect: Gemma splits at spaces, which are replaced before
            if rule.get("type", "BPE") not in supported:
                yield f"{part} {rule['type']}"
            elif not _splits_correctly(rule):
                yield f"{part} {rule['type']}({rule.get('pattern', '')}, {rule['behavior']})"


def _splits_correctly(rule: JsonObject) -> bool:
    """Returns whether it supports the behavior of a rule that splits; with a plain string, it never removes matches."""
    if rule.get("type") == "Punctuation":
        return rule["behavior"] == "Contiguous"
    if rule.get("type") != "Split":
        return True
    invert, removed = rule.get("invert"), rule["behavior"] == "Removed"
    return removed if invert else rule["behavior"] == "Isolated" or (removed and "Regex" in rule["pattern"])


def _steps(rule: JsonObject | None) -> Iterator[JsonObject]:
    """Yields a rule, or the rules of a sequence."""
    if rule and rule.get("type") == "Sequence":
        for steps in (value for value in rule.values() if isinstance(value, list)):
            for step in steps:
                yield from _steps(step)
    elif rule:
        yield rule


def _ignored_settings(info: ModelInfo) -> list[str]:
    """Returns the generation settings that it ignores although they would change the tokens."""
    supported = (*SUPPORTED_SETTINGS, *_BEAM_SETTINGS, *_SPEED_SETTINGS)
    return [name for name in info.generation if name not in supported]


def _opened(manifest: Manifest, folder: str) -> str:
    """Returns code that opens a folder as a pipeline or, for a task without one, as a model with inputs."""
    task = manifest.info.task
    if task not in _CLASSES:
        return f'const pipe = await pipeline("{task}", {folder});'
    if manifest.info.embedding is not None:
        texts = f"[{javascript(example(manifest.info.embedding))}], {{ padding: true }}"
    else:
        texts = '["A query.", "A query."], { text_pair: ["A text.", "Another text."], padding: true }'
    return f"""const tokenizer = await AutoTokenizer.from_pretrained({folder});
const model = await {_CLASSES[task]}.from_pretrained({folder});
const inputs = tokenizer({texts});"""


def _checked(manifest: Manifest) -> str:
    """Returns code with the example text that refuses one of too many tokens, which a pipeline would truncate."""
    task, longest = manifest.info.task, limit(manifest)
    what, length, lines = "text", "pipe.tokenizer.encode(text).length", f"const text = {_text(manifest)};\n"
    if task in _CLASSES:
        length, lines = "inputs.input_ids.dims.at(-1)", ""
    elif task == "question-answering":
        length = "pipe.tokenizer.encode(question, { text_pair: context }).length"
        lines = 'const [question, context] = ["Who?", "A text."];\n'
    elif task == ZERO_SHOT:
        return lines  # the length depends on each class
    elif kind(manifest) == "decoder":
        what = "prompt"
    if longest is None:
        return lines
    return f"""{lines}const length = {length};
if (!length || length > {longest}) throw new Error(`A {what} can have 1 to {longest} tokens. Received: ${{length}}`);
"""


def _text(manifest: Manifest) -> str:
    """Returns an example text, with a prefix that the pipeline does not add."""
    if manifest.info.task == "fill-mask":
        return "`A ${pipe.tokenizer.mask_token} text.`"
    if kind(manifest) == "decoder":
        return '"Once upon a time"'
    added = len(manifest.info.prefixes()) == 1
    return javascript("A text." if added else f"{text_prefix(manifest)}A text.")


def _call(manifest: Manifest) -> str:
    """Returns an example call of the pipeline, or of the model."""
    task = manifest.info.task
    if task == SENTENCE_SIMILARITY:
        return "(await model(inputs)).sentence_embedding.tolist()"
    if task == RANKING:
        return "(await model(inputs)).logits.tolist()"
    if task == ZERO_SHOT:
        return 'await pipe(text, ["a class", "another class"])'
    if task == "question-answering":
        return "await pipe(question, context)"
    if task == "feature-extraction":
        return "(await pipe(text)).tolist()"
    if kind(manifest) == "decoder":
        return f"await pipe(text, {{ max_new_tokens: Math.min(40, {(manifest.capacity or 0) + 1} - length) }})"
    if manifest.capacity:
        return f"await pipe(text, {{ max_new_tokens: {min(40, manifest.capacity)} }})"
    return "await pipe(text)"


def _remarks(manifest: Manifest) -> str:
    """Returns the differences from Python."""
    info = manifest.info
    if info.embedding is not None:
        return embeddings(info.embedding)
    if info.task == RANKING:
        return scores(info)
    if not manifest.capacity:
        return ""
    prefixes = [code(text) for text in info.prefixes().values()]
    before = f"Put one of these before the text: {', '.join(prefixes)}. " if len(prefixes) > 1 else ""
    before += "" if info.is_encoder_decoder else f"Prompt and answer together have at most {info.max_length} tokens. "
    names = ", ".join(code(name) for name in _ignored_settings(info))
    ignored = f" It ignores {names} of `generation_config.json`." if names else ""
    return f"\n{before}There is no beam search. Without `max_new_tokens` it generates up to 256 tokens.{ignored}\n"
