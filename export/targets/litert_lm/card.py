"""Section of the model card for LiteRT-LM: the file, its limits, and programs that run it."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.quoting import code
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.files.reading import JsonObject

VERSIONS = {"python": "0.18.1", "android": "0.18.0", "swift": "0.18.1"}
"""Versions of LiteRT-LM for which the programs are written: the newest patch of one minor version in each registry."""

_INCLUDED = {
    *("do_sample", "temperature", "top_k", "top_p", "suppress_tokens"),
    *("eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"),
}
_SECTION = """## LiteRT-LM

`{file}` is the only file that a device needs: it contains the graphs of `model.tflite`, the tokenizer, and the tokens
that start and end a text. A prompt must have fewer than {capacity} tokens, and prompt and answer together at most
{capacity}; for a longer prompt, LiteRT-LM reports `Input token ids are too long`. Special tokens other than the end
token appear in the generated text. Conversations use the chat template of the model,
if it has one, which is in the file.{not_included}

Python, `pip install litert-lm-api=={python}`:

```python
import litert_lm

engine = litert_lm.Engine("{file}", backend=litert_lm.Backend.CPU(), cache_dir=":nocache")
greedy = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0)
with engine.create_session(apply_prompt_template=False, sampler_config=greedy, max_output_tokens=40) as session:
    session.run_prefill(["Once upon a time"])
    print(session.run_decode().texts[0])
```

Kotlin, `implementation("com.google.ai.edge.litertlm:litertlm-android:{android}")`:

```kotlin
import com.google.ai.edge.litertlm.*

suspend fun generate(context: android.content.Context, path: String) {{ // not on the main thread: loading takes seconds
    Engine(EngineConfig(modelPath = path, backend = Backend.CPU(), cacheDir = context.cacheDir.path)).use {{ engine ->
        engine.initialize()
        val greedy = SamplerConfig(topK = 1, topP = 1.0, temperature = 1.0)
        val settings = ConversationConfig(samplerConfig = greedy, maxOutputToken = 40)
        engine.createConversation(settings).use {{ conversation ->
            conversation.sendMessageAsync("Once upon a time").collect {{ print(it) }}
        }}
    }}
}}
```

Swift, package `https://github.com/google-ai-edge/LiteRT-LM` from {swift}, product `LiteRTLM`:

```swift
import LiteRTLM

let config = try EngineConfig(modelPath: path, backend: .cpu(), cacheDir: NSTemporaryDirectory())
let engine = Engine(engineConfig: config)
try await engine.initialize()
let greedy = try SamplerConfig(topK: 1, topP: 1.0, temperature: 1.0)
let conversation = try await engine.createConversation(with: ConversationConfig(samplerConfig: greedy))
for try await piece in conversation.sendMessageStream(Message("Once upon a time"), maxOutputTokens: 40) {{
  print(piece.toString, terminator: "")
}}
```

C++, with LiteRT-LM's C interface:

```cpp
#include <cstdio>
#include "c/engine.h"

int main() {{
  const char prompt[] = "Once upon a time";
  auto* settings = litert_lm_engine_settings_create("{file}", "cpu", nullptr, nullptr);
  litert_lm_engine_settings_set_cache_dir(settings, ":nocache");
  auto* engine = litert_lm_engine_create(settings);
  auto* config = litert_lm_session_config_create();
  litert_lm_session_config_set_apply_prompt_template(config, false);
  litert_lm_session_config_set_max_output_tokens(config, 40);
  auto* session = litert_lm_engine_create_session(engine, config);
  auto* input = litert_lm_input_data_create(kLiteRtLmInputDataTypeText, prompt, sizeof(prompt) - 1);
  auto* answer = litert_lm_session_generate_content(session, &input, 1);
  std::puts(litert_lm_responses_get_response_text_at(answer, 0));
}}
```
"""


def section(manifest: Manifest) -> str:
    """Returns the section in Markdown."""
    not_included = _not_included(manifest.info.generation)
    return _SECTION.format(
        file=litertlm_file.NAME,
        capacity=manifest.capacity,
        not_included=not_included and f"\n{not_included}",
        **VERSIONS,
    )


def _not_included(generation: JsonObject) -> str:
    """Returns a remark about the settings that every call has to pass, if any."""
    settings = [code(f"{name}={value}") for name, value in generation.items() if name not in _INCLUDED]
    if not settings:
        return ""
    return (
        "The file does not contain these settings of `generation_config.json`; pass them with each call: "
        f"{', '.join(settings)}."
    )
