"""Section of a card about the libraries for apps: a few lines in each language that runs the bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent

from kerasformer.basics.repository import where
from kerasformer.bundle import MANIFEST, Manifest, Role, browser_warning
from kerasformer.bundle.interface import ADAPTERS, CACHES, CROSS_CACHES, SENTENCE_EMBEDDING, SPAN_LOGITS, Kind
from kerasformer.bundle.sample_texts import examples
from kerasformer.export.card.facts import kind, lacks_language, prefixed, tokenizer_settings
from kerasformer.export.card.quoting import Quote, code, cpp, javascript, kotlin, swift
from kerasformer.files.reading import JsonObject
from kerasformer.tokenization.hard_texts import FILE as HARD_TEXTS
from kerasformer.tokenization.loading import TARGET_FILE

CONVERSATION = "conversation"
"""Task of a decoder with a chat template."""
REPOSITORY = "path/to/kerasformer"
"""What stands for a copy of the repository in code."""

GRADLE = {
    "tflite": "com.google.ai.edge.litert:litert:2.3.0",
    "onnx": "com.microsoft.onnxruntime:onnxruntime-android:1.23.0",
}
"""Engines with which the Kotlin library is built, by the format of a bundle."""
NPM = {
    "@huggingface/jinja": "0.5.11",
    "@huggingface/tokenizers": "0.2.0",
    "@litertjs/core": "2.5.3",
    "onnxruntime-web": "1.30.0",
}
"""Versions of packages that the JavaScript library needs."""

_FILES = ("tokenizer.json", "tokenizer_config.json", TARGET_FILE, HARD_TEXTS)
_OUTPUTS = frozenset({"logits", "start_logits", "end_logits", "last_hidden_state", SENTENCE_EMBEDDING, SPAN_LOGITS})
"""Outputs from which the libraries compute results."""
_ROLES = (Role.FORWARD, Role.ENCODE, Role.PREFILL, Role.DECODE)


@dataclass(frozen=True)
class Language:
    """A language with a library for apps.

    Attributes:
        title: Its name.
        fence: Its name after the fence of a code block.
        quote: Writes a literal.
        calls: The lines of a call for each task, with fields for the sample inputs; `more` are further arguments.
        arguments: How a further argument is written, by its name in `kf.pipeline`.
        about: Returns how to add the library, for a format and a task.
        program: Returns the whole code for a format, a task and the lines of its call.
        supports: Returns whether the library runs a bundle for a task.
    """

    title: str
    fence: str
    quote: Quote
    calls: Mapping[str, str]
    arguments: Mapping[str, str]
    about: Callable[[str, str], str]
    program: Callable[[str, str, str], str]
    supports: Callable[[Manifest, str], bool] = lambda manifest, task: True

    def code(self, format: str, task: str, sample: Mapping[str, str | Sequence[str]]) -> str:
        """Returns the code that runs a task on sample inputs, which are those of `kf.pipeline`."""
        literals = {
            name: self.quote(value) if isinstance(value, str) else ", ".join(map(self.quote, value))
            for name, value in sample.items()
        }
        more = "".join(text.format(literals[name]) for name, text in self.arguments.items() if name in sample)
        return self.program(format, task, self.calls[task].format(**literals, more=more))


def section(manifest: Manifest, folder: Path) -> str:
    """Returns the section; empty if the libraries do not run the bundle.

    Args:
        manifest: Manifest of the bundle.
        folder: Folder of the bundle, with the files of its tokenizer.
    """
    settings = tokenizer_settings(folder)
    task = _task(manifest, settings)
    if not (folder / "tokenizer.json").is_file() or not _is_supported(manifest) or task not in LANGUAGES[0].calls:
        return ""
    needed = ", ".join(map(code, (MANIFEST, *tokenizer_files(folder))))
    sample = _sample(manifest, task, settings)
    parts = [
        f"### {language.title}\n\n{language.about(manifest.format, task)}\n\n"
        f"```{language.fence}\n{language.code(manifest.format, task, sample)}```\n"
        for language in LANGUAGES
        if task in language.calls and language.supports(manifest, task)
    ]
    if note := browser_warning(manifest):
        parts.append(f"{fill(note, 120, break_on_hyphens=False)}\n")
    about = _SECTION.format(needed=needed, where=where(REPOSITORY))
    return "\n".join([about + (_TELEMETRY if manifest.format == "onnx" else ""), *parts])


def tokenizer_files(folder: Path) -> list[str]:
    """Returns the files of the tokenizer that the libraries read, relative to the folder."""
    return [name for name in _FILES if (folder / name).is_file()]


_SECTION = """## In an app

The libraries in kerasformer's repository open this folder and give the results of `kf.pipeline`: text in, text out.
{where}
Besides the files of the model, they need {needed}.
Opening a model takes seconds: an app keeps it. The `README.md` of each library lists all that a model does.
"""

_TELEMETRY = """They set `ORT_DISABLE_TELEMETRY`, unless it is set: from 1.29 on, ONNX Runtime sends usage data to
Microsoft otherwise. On a JVM that is not Android's, set it before the program starts. ONNX Runtime Web sends none.
"""


def _task(manifest: Manifest, settings: JsonObject) -> str:
    """Returns the task for which the code is: a model with a chat template answers, one with languages translates."""
    task = manifest.info.task
    if task == "text-generation" and settings.get("chat_template"):
        return CONVERSATION
    return "translation" if lacks_language(manifest) else task


def _is_supported(manifest: Manifest) -> bool:
    """Whether the libraries pass all inputs that the model needs, and read its outputs."""
    if manifest.format not in ("tflite", "onnx", "table") or kind(manifest) is None:
        return False
    signatures = manifest.of_role(*_ROLES).values()
    needed = {info.kind for each in signatures for info in each.inputs.values()}
    if Kind.OTHER in needed or (manifest.format == "tflite" and needed & {*ADAPTERS}):
        return False
    read = (*CACHES, *CROSS_CACHES)
    return all(any(name in _OUTPUTS or info.kind in read for name, info in each.outputs.items()) for each in signatures)


def _sample(manifest: Manifest, task: str, settings: JsonObject) -> dict[str, str | Sequence[str]]:
    """Returns the shortest sample inputs of a task, with the further arguments that this model needs."""
    inputs = min(examples(task)["inputs"], key=lambda each: len(str(each)))
    sample = {name: value for name, value in inputs.items() if name in ("text", "query", "question", "context")}
    if "documents" in inputs:
        sample["documents"] = sorted(inputs["documents"], key=len)[:2]
    if names := inputs.get("candidate_labels", inputs.get("labels")):
        sample["labels"] = names.split(", ")
    if task == "fill-mask":
        sample["text"] = sample["text"].replace("{gap}", str(settings.get("mask_token", "[MASK]")))
    if manifest.info.is_encoder_decoder and manifest.capacity:
        sample["text"], prefix = prefixed(manifest, sample["text"])
        sample |= {"prefix": prefix} if prefix else {}
        if lacks_language(manifest) and manifest.info.languages is not None:
            sample["tgt_lang"] = next(iter(manifest.info.languages.ids))
    return sample


def _gradle(format: str, task: str) -> str:
    runtime = f' and `implementation("{GRADLE[format]}")`' if format in GRADLE else ""
    return f"""\
`mobile/kotlin` is a Gradle module: `includeBuild("{REPOSITORY}/mobile/kotlin")` in `settings.gradle.kts`, and
`implementation("io.github.kerasformer:kerasformer:0.1.0")`{runtime}
in the app's `build.gradle.kts`. Assets are copied into `filesDir` first, since engines open files."""


def _kotlin_program(format: str, task: str, call: str) -> str:
    engine = {"tflite": "LiteRt", "onnx": "OnnxRuntime", "table": "Table"}[format]
    names = ["TextModel", f"engine.{engine}"]
    names += [
        name
        for name in ("decoding.GenerationSettings", "tasks.Aggregation", "tasks.Pooling", "template.Message")
        if name.rpartition(".")[2] in call
    ]
    imports = "\n".join(f"import kerasformer.{name}" for name in sorted(names))
    return f"""\
import java.io.File
{imports}

suspend fun example(folder: File) {{
    TextModel.open(folder, {engine}()).use {{ model ->
{indent(call, " " * 8)}
    }}
}}
"""


_COLLECTED = "GenerationSettings(maxNewTokens = 40)).collect {{ print(it) }}"
_KOTLIN = Language(
    "Kotlin",
    "kotlin",
    kotlin,
    {
        "text-classification": """for ((label, score) in model.classify({text})) println("$label $score")""",
        "zero-shot-classification": """\
for ((label, score) in model.classifyZeroShot({text}, listOf({labels}))) println("$label $score")""",
        "text-ranking": """\
val documents = listOf({documents})
for ((index, score) in model.rank({query}, documents)) println("$score ${{documents[index]}}")""",
        "sentence-similarity": """\
val documents = listOf({documents})
for ((index, score) in model.search({query}, documents)) println("$score ${{documents[index]}}")""",
        "token-classification": """\
for (entity in model.tokens({text}, Aggregation.SIMPLE)) println("${{entity.label}} ${{entity.word}}")""",
        "zero-shot-token-classification": """\
for (entity in model.entities({text}, listOf({labels}))) println("${{entity.label}} ${{entity.word}}")""",
        "question-answering": """\
val context = {context}
val (answer, score) = model.answer({question}, context).first()
println("$answer $score")""",
        "fill-mask": """\
for ((token, score) in model.fillMask({text}).first()) println("$token $score")""",
        "feature-extraction": """\
val vector = model.features({text}, Pooling.MEAN).single()
println(vector.size)""",
        "text-generation": f"model.generate({{text}}, {_COLLECTED}",
        CONVERSATION: f"""model.chat(listOf(Message("user", {{text}})), {_COLLECTED}""",
        "text2text-generation": f"val text = {{text}}\nmodel.transform(text{{more}}, settings = {_COLLECTED}",
        "summarization": f"val text = {{text}}\nmodel.summarize(text{{more}}, settings = {_COLLECTED}",
        "translation": f"model.translate({{text}}{{more}}, settings = {_COLLECTED}",
    },
    {"tgt_lang": ", to = {}", "prefix": ", prefix = {}"},
    _gradle,
    _kotlin_program,
)


def _package(format: str, task: str) -> str:
    if format == "tflite":
        return f"""\
`mobile/swift` is the pod `pod 'Kerasformer', :path => '{REPOSITORY}/mobile/swift'`, with LiteRT; iOS 15."""
    return f"""\
`{REPOSITORY}/mobile/swift` is a Swift package with ONNX Runtime; iOS 15, macOS 12. In Xcode: File, Add Package
Dependencies, Add Local."""


def _swift_program(format: str, task: str, call: str) -> str:
    engine = {"tflite": "liteRT", "onnx": "onnxRuntime", "table": "table"}[format]
    return f"""\
import Foundation
import Kerasformer

func example(_ folder: URL) async throws {{
    let model = try await TextModel.open(folder, engine: .{engine}())
{indent(call, " " * 4)}
}}
"""


_SETTINGS = "let settings = GenerationSettings {{ $0.maxNewTokens = 40 }}\nfor try await piece in model."
_PRINTED = 'settings: settings) {{ print(piece.text, terminator: "") }}'
_SWIFT = Language(
    "Swift",
    "swift",
    swift,
    {
        "text-classification": "for each in try await model.classify({text}) {{ print(each.label, each.score) }}",
        "zero-shot-classification": """\
for each in try await model.classifyZeroShot({text}, labels: [{labels}]) {{ print(each.label, each.score) }}""",
        "text-ranking": """\
let documents = [{documents}]
for each in try await model.rank({query}, documents) {{ print(each.score, documents[each.index]) }}""",
        "sentence-similarity": """\
let documents = [{documents}]
for each in try await model.search({query}, documents) {{ print(each.score, documents[each.index]) }}""",
        "token-classification": """\
for each in try await model.tokens({text}, aggregation: .simple) {{ print(each.label, each.word) }}""",
        "zero-shot-token-classification": """\
for each in try await model.entities({text}, labels: [{labels}]) {{ print(each.label, each.word) }}""",
        "question-answering": """\
let context = {context}
let best = try await model.answer({question}, context: context)[0]
print(best.answer, best.score)""",
        "fill-mask": "for each in try await model.fillMask({text})[0] {{ print(each.text, each.score) }}",
        "feature-extraction": """\
let vector = try await model.features({text}, pooling: .mean)[0]
print(vector.count)""",
        "text-generation": f"{_SETTINGS}generate({{text}}, {_PRINTED}",
        CONVERSATION: f"""{_SETTINGS}chat([Message(role: "user", content: {{text}})], {_PRINTED}""",
        "text2text-generation": f"let text = {{text}}\n{_SETTINGS}transform(text{{more}}, {_PRINTED}",
        "summarization": f"let text = {{text}}\n{_SETTINGS}summarize(text{{more}}, {_PRINTED}",
        "translation": f"{_SETTINGS}translate({{text}}{{more}}, {_PRINTED}",
    },
    {"tgt_lang": ", to: {}", "prefix": ", prefix: {}"},
    _package,
    _swift_program,
)


def _cmake(format: str, task: str) -> str:
    library = ""
    if format in _SHARED_LIBRARIES:
        name, least, source = _SHARED_LIBRARIES[format]
        library = f" It loads `{name}`, {least} or later, which {source} has."
    about = (
        f"`mobile/cpp` is a CMake project in C++17.{library} With this `CMakeLists.txt`, and the code as `main.cpp`:"
    )
    return f"""\
{fill(about, 120, break_on_hyphens=False, break_long_words=False)}

```cmake
cmake_minimum_required(VERSION 3.16)
project(app LANGUAGES CXX)
add_subdirectory({REPOSITORY}/mobile/cpp kerasformer)
add_executable(app main.cpp)
target_link_libraries(app PRIVATE kerasformer::kerasformer)
```

`cmake -S . -B build && cmake --build build && build/app` runs it:"""


_SHARED_LIBRARIES = {
    "tflite": (
        "libLiteRt.so",
        "2.2",
        "the wheel `ai-edge-litert` (`pip download --no-deps ai-edge-litert`, a ZIP file)",
    ),
    "onnx": (
        "libonnxruntime.so.1",
        "1.14",
        "the npm package `onnxruntime-node` (`npm pack onnxruntime-node`, in `bin`)",
    ),
}
"""Name, lowest version and origin of the runtime for each format that needs one."""


def _cpp_program(format: str, task: str, call: str) -> str:
    opened = 'kerasformer::TextModel::Open("path/to/this/folder"'
    lines = [f"auto model = {opened});", call]
    if format in _SHARED_LIBRARIES:
        lines[0] = f"auto model = {opened}, runtime);"
        lines.insert(0, f'runtime.library = "path/to/{_SHARED_LIBRARIES[format][0]}";')
        lines.insert(0, "kerasformer::EngineOptions runtime;")
    code = "\n".join(lines)
    return f"""\
#include <iostream>
#include <kerasformer/text_model.hpp>

int main() try {{
{indent(code, " " * 2)}
}} catch (const kerasformer::Error& error) {{
  std::cerr << error.what() << "\\n";
  return 1;
}}
"""


_STREAM = """\
kerasformer::Stream stream;
stream.on_text = [](const std::string& piece) {{ std::cout << piece << std::flush; }};
"""
_OPTIONS = """\
kerasformer::TransformOptions options;
options.settings = {{{{"max_new_tokens", 40}}}};{more}
"""
_TEXT = "const std::string text = {text};\n"
_CPP = Language(
    "C++",
    "cpp",
    cpp,
    {
        "text-classification": """\
for (const auto& [label, score] : model.Classify({text})) std::cout << label << " " << score << "\\n";""",
        "zero-shot-classification": """\
for (const auto& [label, score] : model.ClassifyZeroShot({text}, {{{labels}}}))
  std::cout << label << " " << score << "\\n";""",
        "text-ranking": """\
const std::vector<std::string> documents = {{{documents}}};
for (const auto& [index, score] : model.Rank({query}, documents))
  std::cout << score << " " << documents[index] << "\\n";""",
        "sentence-similarity": """\
const std::vector<std::string> documents = {{{documents}}};
for (const auto& [index, score] : model.Search({query}, documents))
  std::cout << score << " " << documents[index] << "\\n";""",
        "token-classification": """\
kerasformer::EntityOptions options;
options.aggregation_strategy = "simple";
for (const auto& each : model.Tokens({text}, options)) std::cout << each.entity << " " << each.word << "\\n";""",
        "zero-shot-token-classification": """\
for (const auto& each : model.Entities({text}, {{{labels}}})) std::cout << each.entity << " " << each.word << "\\n";""",
        "question-answering": """\
const std::string context = {context};
const auto best = model.AnswerQuestion({question}, context).front();
std::cout << best.answer << " " << best.score << "\\n";""",
        "fill-mask": """\
for (const auto& each : model.FillMask({text}).front()) std::cout << each.token_str << " " << each.score << "\\n";""",
        "feature-extraction": """\
kerasformer::FeatureOptions options;
options.pooling = "mean";
std::cout << model.Features({text}, options).front().size() << "\\n";""",
        "text-generation": _STREAM + 'model.Generate({text}, {{{{"max_new_tokens", 40}}}}, stream);',
        "text2text-generation": _STREAM + _OPTIONS + _TEXT + "model.Transform(text, options, stream);",
        "summarization": _STREAM + _OPTIONS + _TEXT + "model.Summarize(text, options, stream);",
        "translation": _STREAM + _OPTIONS + "model.Translate({text}, options, stream);",
    },
    {"tgt_lang": "\noptions.tgt_lang = {};", "prefix": "\noptions.prefix = {};"},
    _cmake,
    _cpp_program,
    supports=lambda manifest, task: manifest.cache_dtype in (None, "float32"),
)


def _npm(format: str, task: str) -> str:
    names = ["@huggingface/tokenizers", *{"tflite": ["@litertjs/core"], "onnx": ["onnxruntime-web"]}.get(format, [])]
    names += ["@huggingface/jinja"] if task == CONVERSATION else []
    listed = " ".join(f"{name}@{NPM[name]}" for name in names)
    package = f"""\
`kerasformer/tools/web/page/library` is an npm package, for
{"browsers" if format == "tflite" else "Node.js and browsers"}:
`npm install {REPOSITORY}/kerasformer/tools/web/page/library {listed}`"""
    return f"{package}.\n{_BUNDLERS}" if format == "onnx" else package


_BUNDLERS = """The code is a module for Node.js. With a bundler, `loader` and `wasm` are imported as URLs, in Vite
`import loader from "onnxruntime-web/ort-wasm-simd-threaded.mjs?url"`, and the folder is a URL."""


def _javascript_program(format: str, task: str, call: str) -> str:
    jinja = task == CONVERSATION
    imports = ['import * as jinja from "@huggingface/jinja";'] if jinja else []
    imports.append('import * as tokenizers from "@huggingface/tokenizers";')
    runtime, folder, addresses = "", "path/to/this/folder", list[str]()  # of a table, which needs none
    if format == "tflite":
        imports.append('import * as module from "@litertjs/core";')
        runtime, folder = ', litert: { module, wasm: "/wasm/" }', "/path/to/this/folder/"
        addresses = ["// /wasm/ is a copy of node_modules/@litertjs/core/wasm/"]
    elif format == "onnx":
        imports.append('import * as module from "onnxruntime-web/wasm";')
        runtime = ", onnxruntime: { module, loader, wasm }"
        addresses = [
            f'const {name} = import.meta.resolve("onnxruntime-web/ort-wasm-simd-threaded.{ending}");'
            for name, ending in (("loader", "mjs"), ("wasm", "wasm"))
        ]
    lines = "\n".join([*imports, 'import { openBundle } from "kerasformer";', "", *addresses])
    modules = f"tokenizers{', jinja' if jinja else ''}{runtime}"
    chosen = f', task: "{task}"' if task in (CONVERSATION, "translation") else ""
    return f"""\
{lines}
const runtimes = {{ {modules} }};
const bundle = await openBundle("{folder}", {{ runtimes{chosen} }});
{call}
"""


def _run(inputs: str, options: str = "") -> str:
    return f"console.log((await bundle.run({inputs}{options})).result);"


_STREAMED = ", {{ max_new_tokens: 40{more} }}, {{ onToken: (piece) => console.log(piece) }});"
_JAVASCRIPT = Language(
    "JavaScript",
    "javascript",
    javascript,
    {
        "text-classification": _run("{text}"),
        "zero-shot-classification": _run("{text}", ", {{ candidate_labels: [{labels}] }}"),
        **dict.fromkeys(
            ("text-ranking", "sentence-similarity"),
            "const documents = [{documents}];\n" + _run("{{ query: {query}, documents }}"),
        ),
        "token-classification": _run("{text}", ', {{ aggregation_strategy: "simple" }}'),
        "zero-shot-token-classification": _run("{text}", ", {{ labels: [{labels}] }}"),
        "question-answering": "const context = {context};\n" + _run("{{ question: {question}, context }}"),
        "fill-mask": _run("{text}"),
        "feature-extraction": _run("{text}", ', {{ pooling: "mean" }}'),
        CONVERSATION: f"""await bundle.run([{{{{ role: "user", content: {{text}} }}}}]{_STREAMED}""",
        **dict.fromkeys(
            ("text-generation", "text2text-generation", "summarization", "translation"),
            f"const text = {{text}};\nawait bundle.run(text{_STREAMED}",
        ),
    },
    {"tgt_lang": ", tgt_lang: {}", "prefix": ", prefix: {}"},
    _npm,
    _javascript_program,
    supports=lambda manifest, task: manifest.cache_dtype in (None, "float32"),
)

LANGUAGES = (_KOTLIN, _SWIFT, _CPP, _JAVASCRIPT)
"""The languages in the order of the card."""
