"""Section of the model card for LiteRT-LM's embedding engine: the file, its limits, and programs that run it."""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from kerasformer.bundle import EmbeddingInfo, Manifest
from kerasformer.export.card.facts import lengths_of
from kerasformer.export.card.quoting import code, cpp, kotlin, python, swift
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.export.targets.litert_lm.card import VERSIONS
from kerasformer.export.targets.model_outputs import example

_SECTION = """## LiteRT-LM

`$file` is the only file that a device needs: it contains the graphs of `model.tflite`, which read other inputs there,
and the tokenizer. A text may have at most $longest tokens, including special ones. Longer texts are an error; with
`input_overflow_strategy=litert_lm.InputOverflowStrategy.TRUNCATE` in Python, the end of the text is ignored. $vectors
The file runs on the CPU only: LiteRT-LM refuses to open it with another backend.$prompts

Python, `pip install litert-lm-api==$python_version`:

```python
import litert_lm

engine = litert_lm.EmbeddingEngine("$file", cache_dir=":nocache")
options = litert_lm.EmbeddingOptions(normalize=$python_normalize)
print(engine.compute_embedding($python_text, options).embedding)
```

Kotlin, `implementation("com.google.ai.edge.litertlm:litertlm-android:$android_version")`:

```kotlin
import com.google.ai.edge.litertlm.*

fun embed(context: android.content.Context, path: String): FloatArray { // not on the main thread
    return EmbeddingEngine(EmbeddingEngineConfig(modelPath = path, cacheDir = context.cacheDir.path)).use { engine ->
        engine.initialize()
        val options = EmbeddingOptions(normalize = $normalize)
        engine.computeEmbedding(listOf(InputData.Text($kotlin_text)), options).embedding
    }
}
```

Swift, package `https://github.com/google-ai-edge/LiteRT-LM` from $swift_version, product `LiteRTLM`:

```swift
import LiteRTLM

func embed(path: String) async throws -> [Float] {
  let config = EmbeddingEngineConfig(modelPath: path, cacheDir: NSTemporaryDirectory())
  let engine = EmbeddingEngine(config: config)
  try await engine.initialize()
  let options = EmbeddingOptions(normalize: $normalize)
  return try await engine.computeEmbedding(contents: [.text($swift_text)], options: options).embedding
}
```

C++, with LiteRT-LM's C interface:

```cpp
#include <cstdio>
#include "c/embedding_engine.h"

int main() {
  const char text[] = $cpp_text;
  auto* settings = litert_lm_embedding_engine_settings_create("$file", "cpu", nullptr, nullptr);
  litert_lm_embedding_engine_settings_set_cache_dir(settings, ":nocache");
  auto* engine = litert_lm_embedding_engine_create(settings);
  auto* options = litert_lm_embedding_options_create();
  litert_lm_embedding_options_set_normalize(options, $normalize);
  auto* input = litert_lm_input_data_create(kLiteRtLmInputDataTypeText, text, sizeof(text) - 1);
  auto* answer = litert_lm_embedding_engine_compute_embedding(engine, &input, 1, options);
  const float* values = litert_lm_embedding_response_get_values(answer);
  for (size_t i = 0; i < litert_lm_embedding_response_get_size(answer); ++i) std::printf("%g ", values[i]);
}
```
"""


def section(manifest: Manifest) -> str:
    """Returns the section in Markdown, for a bundle for sentence-similarity."""
    info = manifest.info.embedding or EmbeddingInfo(0)
    quotes: dict[str, Callable[[str], str]] = {"python": python, "kotlin": kotlin, "swift": swift, "cpp": cpp}
    return Template(_SECTION).substitute(
        {f"{name}_version": version for name, version in VERSIONS.items()},
        **{f"{language}_text": quote(example(info)) for language, quote in quotes.items()},
        file=litertlm_file.NAME,
        longest=max(lengths_of(manifest)),
        vectors=_vectors(info),
        prompts=_prompts(info),
        normalize=str(info.normalized).lower(),
        python_normalize=info.normalized,
    )


def _vectors(info: EmbeddingInfo) -> str:
    """Returns how to get the embeddings of `kf.pipeline`."""
    length = "Embeddings have length 1."
    if not info.normalized:
        length = "By default, LiteRT-LM scales embeddings to length 1; the programs below turn this off."
    first = f" Keep only the first {info.truncate_dim} entries of each." if info.truncate_dim else ""
    return f"{length}{first}"


def _prompts(info: EmbeddingInfo) -> str:
    """Returns a remark about the prompts, which the app puts before a text."""
    if not info.prompts:
        return ""
    listed = ", ".join(f"{code(text)} ({code(name)})" for name, text in info.prompts.items())
    return f"\nThe app puts the prompt before a text, as part of it: {listed}."
