"""Target onnxruntime-genai 0.18: generation with decoders in Python, C++, C# and Java.

It loads the plain ONNX folder, including `tokenizer.json`, and one additional file, `genai_config.json`, with the path
of the graph, the names of its tensors, the end tokens and the search settings, all from the manifest. Its answers are
those of Keras in greedy search, also with repetition penalties and n-gram rules, and in beam search without a length
penalty. Settings that it would silently interpret differently from Keras are refused.

Reference: `src/config.h`, `src/models/kv_cache.cpp` and `src/beam_search_scorer.cpp` of microsoft/onnxruntime-genai.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kerasformer.basics.arguments import Arguments
from kerasformer.bundle import Manifest, ModelInfo, Signature
from kerasformer.bundle.interface import CACHES, LOGITS, MODEL, Kind, growing_caches
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.hugging_face_files import end_tokens
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import TELEMETRY, Target
from kerasformer.export.targets.generation_settings import refuse
from kerasformer.files.publishing import write_json
from kerasformer.files.reading import JsonObject
from kerasformer.generation import GenerationConfig

FILE = "genai_config.json"

_SEARCH = (
    "do_sample",
    "early_stopping",
    "length_penalty",
    "min_length",
    "no_repeat_ngram_size",
    "num_beams",
    "num_return_sequences",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
)
"""Generation settings that have the same names and meanings in its configuration."""

_RENAMED = ("max_length", "seed", "eos_token_id", "pad_token_id", "bos_token_id")
"""Generation settings with another name or another location in its configuration."""

_WITHOUT_EFFECT = (
    "max_new_tokens",  # callers set max_length, as the card shows
    "decoder_start_token_id",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "num_assistant_tokens",
)
"""Generation settings that do not change which tokens are chosen."""


class Genai(Target):
    """onnxruntime-genai, for decoders."""

    name = "genai"
    reads_tokenizer = True
    app_files = ("tokenizer.json", "tokenizer_config.json")
    summary = "onnxruntime-genai: decoders in Python, C++, C# and Java"
    format = "onnx"
    attention = AttentionSupport(caches_may_differ=False, states=False)  # it creates all empty caches with one shape

    def check(self, job: ExportJob) -> None:
        """See `Target.check`."""
        if job.model.is_encoder_decoder:
            raise ExportError(
                "target='genai' is only for decoders: the only encoder-decoders that onnxruntime-genai "
                f"supports are Whisper and the recurrent Marian. Received: {job.info.name} for {job.info.task}. Remove "
                "target: optimum and transformers.js run the plain bundle of "
                "format='onnx'"
            )
        if not job.model.generates:
            raise ExportError(
                "target='genai' is only for decoders: onnxruntime-genai only generates text. "
                f"Received: {job.info.name} for {job.info.task}. Remove target: ONNX Runtime itself, "
                "optimum and transformers.js run the plain bundle of format='onnx'"
            )
        if job.model.tokenizer is None:
            raise ExportError(
                "target='genai' needs a tokenizer, since onnxruntime-genai reads texts with the "
                "bundle's tokenizer.json. Received: model.tokenizer=None. Set model.tokenizer = "
                "kerasformer.Tokenizer.load(folder)"
            )
        kind = type(job.model.tokenizer.backend.model).__name__
        if kind != "BPE":
            raise ExportError(
                "target='genai' needs a BPE tokenizer, since onnxruntime-genai loads no other kind of "
                f"tokenizer.json. Received: {kind}. Remove target: ONNX Runtime itself, optimum and "
                "transformers.js run the plain bundle of format='onnx'"
            )
        _check_windows(job)
        _check_generation(job.info)

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Writes `genai_config.json`."""
        path = folder / FILE
        write_json(path, genai_config(manifest, end_tokens(job)))
        return [path]

    def card(self, manifest: Manifest, folder: Path) -> str:
        """See `Target.card`."""
        return _CARD.format(capacity=manifest.capacity, telemetry=TELEMETRY)


def _check_windows(job: ExportJob) -> None:
    """Refuses windows shorter than the longest text: it pads the prompts of a batch on the right.

    The padding of a shorter prompt would lie between its tokens and the new ones, and take up the window.
    """
    for layer, spec in job.model.attention_specs().items():
        if spec.window is not None and spec.window < (job.capacity or 0):
            raise ExportError(
                "onnxruntime-genai pads the prompts of a batch on the right, where the padding of a shorter prompt "
                f"takes up the sliding window. Received: window={spec.window} in the layer {layer!r}, "
                f"capacity={job.capacity!r}. Set capacity to at most the window, or remove "
                "target: ONNX Runtime itself, optimum and transformers.js run the plain bundle"
            )


def genai_config(manifest: Manifest, ends: Sequence[int] | None = None) -> JsonObject:
    """Returns the content of `genai_config.json`, from the manifest of a decoder.

    Args:
        manifest: The manifest.
        ends: Tokens that end a text; defaults to those of the manifest.
    """
    info, signature = manifest.info, manifest.signatures[MODEL]
    ends = info.eos_token_id if ends is None else ends
    # A cache in one buffer is allocated once, for the longest text; in beam search, the runtime uses separate buffers.
    in_place = (signature.in_place() or frozenset()).issuperset(signature.named(*CACHES))
    generation = GenerationConfig.from_dict(info.generation)
    tokens = {
        "bos_token_id": info.bos_token_id,
        "eos_token_id": list(ends) or None,
        # By default, it would use the token 0 for padding.
        "pad_token_id": info.pad_token_id if info.pad_token_id is not None else next(iter(info.eos_token_id), None),
    }
    search = {
        **{name: getattr(generation, name) for name in _SEARCH},
        "max_length": min(generation.max_length or manifest.capacity or 0, manifest.capacity or 0),
        "random_seed": generation.seed,
        "past_present_share_buffer": in_place,
    }
    return {
        "model": {
            "type": "decoder",
            **_without_none(tokens),
            "vocab_size": signature.outputs[LOGITS].shape[-1],
            "context_length": manifest.capacity,
            "decoder": _decoder(signature),
        },
        "search": _without_none(search),
    }


def _decoder(signature: Signature) -> JsonObject:
    """Returns the path of the graph and the names of its inputs and outputs."""
    keys = signature.named(Kind.KEY)
    _, heads, _, head_size = signature.inputs[keys[0]].shape
    ids = [name for name, info in signature.inputs.items() if info.kind not in (*CACHES, Kind.LOGITS_START)]
    # `%d` is replaced by the number of the layer.
    past, present = (growing_caches("%d", present=after) for after in (False, True))
    return {
        "filename": signature.file,
        "num_hidden_layers": len(keys),
        "num_key_value_heads": heads,
        "head_size": head_size,
        "inputs": {
            **{name: name for name in ids},
            "past_key_names": past[0],
            "past_value_names": past[1],
        },
        "outputs": {
            "logits": LOGITS,
            "present_key_names": present[0],
            "present_value_names": present[1],
        },
    }


def _without_none(settings: Arguments) -> Arguments:
    return {name: value for name, value in settings.items() if value is not None}


def _check_generation(info: ModelInfo) -> None:
    """Refuses generation settings with which it would generate different texts from Keras."""
    generation = GenerationConfig.from_dict(info.generation)
    for reason, names in _differences(info, generation):
        refuse(Genai.name, f"onnxruntime-genai {reason}", generation, names)


def _differences(info: ModelInfo, generation: GenerationConfig) -> Iterator[tuple[str, list[str]]]:
    """Yields reasons for different texts, with the settings that it ignores or interprets differently."""
    supported = {*_SEARCH, *_RENAMED, *_WITHOUT_EFFECT}
    yield "does not support these settings", [name for name in info.generation if name not in supported]
    if generation.num_beams == 1:
        return
    if generation.do_sample:
        yield "does not sample in beam search", ["num_beams", "do_sample"]
    if isinstance(generation.early_stopping, str):
        yield "supports only True or False for early_stopping", ["early_stopping"]
    if len(info.eos_token_id) > 1:
        # It considers twice as many tokens as beams, which may all be end tokens.
        yield "may run out of beams if there is more than one end token", ["num_beams", "eos_token_id"]
    if rules := [name for name in ("repetition_penalty", "no_repeat_ngram_size") if name in info.generation]:
        yield "applies these rules to different scores of beams from Keras", ["num_beams", *rules]
    if generation.length_penalty:
        reason = (
            "divides a beam's score by the length of prompt and answer, not of the answer alone, unless "
            "length_penalty is 0"
        )
        yield reason, ["num_beams", "length_penalty"]


_CARD = """## onnxruntime-genai

`pip install onnxruntime-genai`; the NuGet package is `Microsoft.ML.OnnxRuntimeGenAI`. It reads `genai_config.json`.
{telemetry}
Prompt and answer together can have at most {capacity} tokens; a longer prompt or a larger `max_length` is an error.
Without the option `add_special_tokens`, its tokenizer omits tokens that belong before every text, such as `<s>`.
It computes the logits of a whole prompt. On the same files of GPT-2 124M in int8 and int4, with two threads, the engine
of kerasformer for ONNX Runtime read a prompt of 512 tokens 1.45 times as fast, and wrote tokens at 1.01 (int8) and 0.95
(int4) of its speed: the section "llama.cpp, onnxruntime-genai and LiteRT-LM" of kerasformer's
`benchmarks/RESULTS.md` has the figures.

```python
import onnxruntime_genai as og

model = og.Model("path/to/this/folder")
tokenizer = og.Tokenizer(model)
tokenizer.update_options(add_special_tokens="true")
prompt = tokenizer.encode("Once upon a time")
params = og.GeneratorParams(model)
params.set_search_options(max_length=min(len(prompt) + 40, {capacity}), do_sample=False)
generator = og.Generator(model, params)
generator.append_tokens(prompt)
stream = tokenizer.create_stream()
while not generator.is_done():
    generator.generate_next_token()
    print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
```

```cpp
#include <iostream>
#include "ort_genai.h"

int main() {{
  auto model = OgaModel::Create("path/to/this/folder");
  auto tokenizer = OgaTokenizer::Create(*model);
  const char* option[] = {{"add_special_tokens"}};
  const char* value[] = {{"true"}};
  tokenizer->UpdateOptions(option, value, 1);
  auto prompt = OgaSequences::Create();
  tokenizer->Encode("Once upon a time", *prompt);
  auto params = OgaGeneratorParams::Create(*model);
  params->SetSearchOption("max_length", {capacity});
  params->SetSearchOptionBool("do_sample", false);
  auto generator = OgaGenerator::Create(*model, *params);
  generator->AppendTokenSequences(*prompt);
  auto stream = OgaTokenizerStream::Create(*tokenizer);
  while (!generator->IsDone()) {{
    generator->GenerateNextToken();
    std::cout << stream->Decode(generator->GetNextTokens()[0]) << std::flush;
  }}
}}
```

```csharp
using Microsoft.ML.OnnxRuntimeGenAI;

using var model = new Model("path/to/this/folder");
using var tokenizer = new Tokenizer(model);
tokenizer.UpdateOptions(new() {{ ["add_special_tokens"] = "true" }});
using var parameters = new GeneratorParams(model);
parameters.SetSearchOption("max_length", {capacity});
parameters.SetSearchOption("do_sample", false);
using var generator = new Generator(model, parameters);
generator.AppendTokenSequences(tokenizer.Encode("Once upon a time"));
using var stream = tokenizer.CreateStream();
while (!generator.IsDone())
{{
    generator.GenerateNextToken();
    Console.Write(stream.Decode(generator.GetNextTokens()[0]));
}}
```
"""
