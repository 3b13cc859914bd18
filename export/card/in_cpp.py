"""C++ program of a card, with LiteRT's `CompiledModel` or ONNX Runtime."""

from __future__ import annotations

from kerasformer.bundle import Kind, Manifest
from kerasformer.export.card.cpp_values import Program, inputs, length_check, prefills, rules, takes_segments, values
from kerasformer.export.card.program import ProgramFile, kind


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns functions that run the model on token ids, and a `main` that calls them.

    There are none for a model that keeps other states than keys and values, which not all layers then have.
    """
    template = _PROGRAMS.get((manifest.format, kind(manifest)))
    has_states = any(signature.named(Kind.STATE) for signature in manifest.signatures.values())
    if template is None or has_states:
        return None
    source = Program(template).substitute(
        values(manifest),
        **rules(manifest, _FORBIDDEN, _FIRST.get(manifest.format, "")),
        prefills=prefills(manifest),
        inputs=inputs(manifest, _INPUTS[manifest.format]),
        checked=length_check(manifest, '  CheckLength("text", ids.size(), @limit);\n'),
        segments=", Ids segments = {}" if takes_segments(manifest) else "",
    )
    return ProgramFile("main.cpp", "C++", _NEEDS[manifest.format], source)


_NEEDS = {
    "tflite": "LiteRT's C++ library, 2.2 or later; C++20",
    "onnx": "ONNX Runtime's headers and library, 1.14 or later; C++17",
}

_INPUTS = {
    "tflite": {
        Kind.IDS: "LITERT_RETURN_IF_ERROR(\n"
        '      AddInput(model, signature, "@name", Padded(ids, length, @pad), inputs));',
        Kind.MASK: "LITERT_RETURN_IF_ERROR(\n"
        '      AddInput(model, signature, "@name", Padded(Ids(ids.size(), 1), length, 0), inputs));',
        Kind.SEGMENTS: "LITERT_RETURN_IF_ERROR(\n"
        '      AddInput(model, signature, "@name", Padded(segments, length, 0), inputs));',
        Kind.OTHER: "LITERT_RETURN_IF_ERROR(\n"
        '      AddInput(model, signature, "@name", Padded({}, length, @default), inputs));',
    },
    "onnx": {
        Kind.IDS: 'binding.BindInput("@name", Tensor(ids));',
        Kind.MASK: 'binding.BindInput("@name", Tensor(mask));',
        Kind.SEGMENTS: 'segments.resize(ids.size());\n  binding.BindInput("@name", Tensor(segments));',
        Kind.OTHER: 'Ids @name(ids.size(), @default);\n  binding.BindInput("@name", Tensor(@name));',
    },
}

_FORBIDDEN = """  for (const int32_t never : {@ids}) scores[never] = std::numeric_limits<float>::lowest();
"""
_FIRST = {
    "tflite": """    if (generated.empty()) token = @id;  // the first token of every answer
""",
    "onnx": """    if (generated.empty()) token = {@id};  // the first token of every answer
""",
}

_LITERT = """#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "litert/cc/litert_compiled_model.h"
#include "litert/cc/litert_environment.h"
#include "litert/cc/litert_macros.h"
#include "litert/cc/litert_tensor_buffer.h"

using Ids = std::vector<int32_t>;
using Buffers = litert::FlatHashMap<litert::StringView, litert::TensorBuffer>;

// Returns an error if a text is empty or too long.
litert::Expected<void> CheckLength(const std::string& what, size_t count, size_t limit) {
  if (count >= 1 && count <= limit) return {};
  return litert::Error(litert::Status::kErrorInvalidArgument,
                       "A " + what + " can have 1 to " + std::to_string(limit) +
                           " tokens. Received: " + std::to_string(count));
}

// Adds an input buffer with these values.
litert::Expected<void> AddInput(const litert::CompiledModel& model, const std::string& signature,
                                litert::StringView name, const Ids& values, Buffers& inputs) {
  LITERT_ASSIGN_OR_RETURN(auto buffer, model.CreateInputBuffer(signature, name));
  LITERT_RETURN_IF_ERROR(buffer.Write<int32_t>(values));
  inputs.emplace(name, std::move(buffer));
  return {};
}

"""

_CACHES = """// Returns buffers of zeros for inputs of the signature @step.
litert::Expected<Buffers> Zeros(const litert::CompiledModel& model, const std::vector<std::string>& names) {
  Buffers caches;
  for (const std::string& name : names) {
    LITERT_ASSIGN_OR_RETURN(auto buffer, model.CreateInputBuffer("@step", name));
    LITERT_ASSIGN_OR_RETURN(size_t bytes, buffer.PackedSize());
    LITERT_RETURN_IF_ERROR(buffer.Write<float>(std::vector<float>(bytes / sizeof(float))));
    caches.emplace(name, std::move(buffer));
  }
  return caches;
}

// Adds the same buffers to the inputs or outputs of a call; a cache that is both is updated in place.
litert::Expected<void> Share(const Buffers& buffers, Buffers& target) {
  for (const auto& [name, buffer] : buffers) {
    LITERT_ASSIGN_OR_RETURN(auto same, buffer.Duplicate());
    target.emplace(name, std::move(same));
  }
  return {};
}

// Returns the names of the caches of all layers, which end with the number of the layer.
std::vector<std::string> Names(const std::vector<std::string>& beginnings) {
  std::vector<std::string> names;
  for (int i = 0; i < @layers; ++i) {
    for (const std::string& beginning : beginnings) names.push_back(beginning + std::to_string(i));
  }
  return names;
}

litert::Expected<int32_t> MostProbable(litert::TensorBuffer& logits) {
  std::vector<float> scores(@vocabulary);
  LITERT_RETURN_IF_ERROR(logits.Read<float>(litert::Span<float>(scores)));
@{forbidden}  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

bool IsEnd(int32_t token) {
  const Ids ends = {@ends};
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

"""

_PADDED = """Ids Padded(Ids values, size_t length, int32_t pad) {
  values.resize(length, pad);
  return values;
}

"""

_LITERT_MAIN = """
int main(int count, char** ids) {
  Ids text;
  for (int i = 1; i < count; ++i) text.push_back(std::stoi(ids[i]));
  LITERT_ASSIGN_OR_ABORT(auto environment, litert::Environment::Create(std::vector<litert::Environment::Option>{}));
  LITERT_ASSIGN_OR_ABORT(auto model,
                         litert::CompiledModel::Create(environment, "@file", litert::HwAccelerators::kCpu));
  auto answer = Answer(model, text);
  if (!answer) {
    std::cerr << answer.Error().Message() << "\\n";
    return 1;
  }
  for (auto value : *answer) std::cout << value << " ";
}
"""

_LITERT_ENCODER = (
    _LITERT
    + _PADDED
    + """// Returns the values of @output for the token ids of a text.
litert::Expected<std::vector<float>> Answer(litert::CompiledModel& model, const Ids& ids@segments) {
  LITERT_RETURN_IF_ERROR(CheckLength("text", ids.size(), @limit));
  const std::vector<size_t> lengths = {@lengths};  // signatures @{forward}N
  const size_t length = *std::lower_bound(lengths.begin(), lengths.end(), ids.size());
  const std::string signature = "@forward" + std::to_string(length);
  Buffers inputs, outputs;
  @inputs
  for (litert::StringView name : {@outputs}) {
    LITERT_ASSIGN_OR_RETURN(auto buffer, model.CreateOutputBuffer(signature, name));
    outputs.emplace(name, std::move(buffer));
  }
  LITERT_RETURN_IF_ERROR(model.Run(signature, inputs, outputs));
  auto& output = outputs.at("@output");
  LITERT_ASSIGN_OR_RETURN(size_t bytes, output.PackedSize());
  std::vector<float> answer(bytes / sizeof(float));
  LITERT_RETURN_IF_ERROR(output.Read<float>(litert::Span<float>(answer)));
  return answer;
}
"""
    + _LITERT_MAIN
)

_LITERT_DECODER = (
    _LITERT
    + _CACHES
    + """// Continues the token ids of a prompt by greedy search; returns at most 40 new ids.
litert::Expected<Ids> Answer(litert::CompiledModel& model, const Ids& prompt) {
  LITERT_RETURN_IF_ERROR(CheckLength("prompt", prompt.size(), @limit));
  const std::vector<std::string> names = Names({@caches});
  LITERT_ASSIGN_OR_RETURN(Buffers caches, Zeros(model, names));
  LITERT_ASSIGN_OR_RETURN(auto logits, model.CreateOutputBuffer("@step", "@logits"));
  auto step = [&](const std::string& signature, const Ids& tokens, int32_t position) -> litert::Expected<void> {
    Ids positions;
    for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(position + i);
    Buffers inputs, outputs;
    LITERT_RETURN_IF_ERROR(AddInput(model, signature, "@ids", tokens, inputs));
    LITERT_RETURN_IF_ERROR(AddInput(model, signature, "@slots", positions, inputs));
    LITERT_RETURN_IF_ERROR(Share(caches, inputs));
    LITERT_RETURN_IF_ERROR(Share(caches, outputs));
    if (signature == "@step") {
      LITERT_ASSIGN_OR_RETURN(auto same, logits.Duplicate());
      outputs.emplace("@logits", std::move(same));
    }
    return model.Run(signature, inputs, outputs);
  };
  int position = 0;
  const std::vector<std::pair<std::string, int>> prefills = {@prefills};
  for (const auto& [signature, length] : prefills) {
    for (; static_cast<int>(prompt.size()) - 1 - position >= length; position += length) {
      LITERT_RETURN_IF_ERROR(
          step(signature, Ids(prompt.begin() + position, prompt.begin() + position + length), position));
    }
  }
  Ids generated;
  int32_t token = prompt.back();
  while (generated.size() < 40 && position < @capacity) {
    LITERT_RETURN_IF_ERROR(step("@step", {token}, position++));
    LITERT_ASSIGN_OR_RETURN(token, MostProbable(logits));
    if (IsEnd(token)) break;
    generated.push_back(token);
  }
  return generated;
}
"""
    + _LITERT_MAIN
)

_LITERT_ENCODER_DECODER = (
    _LITERT
    + _PADDED
    + _CACHES
    + """// Returns keys and values of the encoded text, for all steps.
litert::Expected<Buffers> Encode(litert::CompiledModel& model, const Ids& ids, const std::vector<std::string>& names) {
  LITERT_RETURN_IF_ERROR(CheckLength("text", ids.size(), @limit));
  const std::vector<size_t> lengths = {@lengths};  // signatures @{encode}N
  const size_t length = *std::lower_bound(lengths.begin(), lengths.end(), ids.size());
  const std::string signature = "@encode" + std::to_string(length);
  LITERT_ASSIGN_OR_RETURN(Buffers cross_caches, Zeros(model, names));
  Buffers inputs;
  LITERT_RETURN_IF_ERROR(AddInput(model, signature, "@text_ids", Padded(ids, length, @pad), inputs));
  LITERT_RETURN_IF_ERROR(
      AddInput(model, signature, "@text_mask", Padded(Ids(ids.size(), 1), length, 0), inputs));
  LITERT_RETURN_IF_ERROR(model.Run(signature, inputs, cross_caches));
  return cross_caches;
}

// Generates at most 40 token ids from those of a text with @{with_prefix}the end token after it.
litert::Expected<Ids> Answer(litert::CompiledModel& model, const Ids& ids) {
  const std::vector<std::string> names = Names({@caches});
  const std::vector<std::string> cross_names = Names({@cross_caches});
  LITERT_ASSIGN_OR_RETURN(Buffers cross_caches, Encode(model, ids, cross_names));
  LITERT_ASSIGN_OR_RETURN(Buffers caches, Zeros(model, names));
  LITERT_ASSIGN_OR_RETURN(auto logits, model.CreateOutputBuffer("@step", "@logits"));
  const Ids mask = Padded(Ids(ids.size(), 1), @encoder_capacity, 0);
  Ids generated;
  int32_t token = @start;
  while (generated.size() < std::min<size_t>(40, @capacity)) {
    Buffers inputs, outputs;
    LITERT_RETURN_IF_ERROR(AddInput(model, "@step", "@ids", {token}, inputs));
    LITERT_RETURN_IF_ERROR(AddInput(model, "@step", "@slots", {static_cast<int32_t>(generated.size())}, inputs));
    LITERT_RETURN_IF_ERROR(AddInput(model, "@step", "@memory_mask", mask, inputs));
    LITERT_RETURN_IF_ERROR(Share(cross_caches, inputs));
    LITERT_RETURN_IF_ERROR(Share(caches, inputs));
    LITERT_RETURN_IF_ERROR(Share(caches, outputs));
    LITERT_ASSIGN_OR_RETURN(auto same, logits.Duplicate());
    outputs.emplace("@logits", std::move(same));
    LITERT_RETURN_IF_ERROR(model.Run("@step", inputs, outputs));
    LITERT_ASSIGN_OR_RETURN(token, MostProbable(logits));
@{first}    if (IsEnd(token)) break;
    generated.push_back(token);
  }
  return generated;
}
"""
    + _LITERT_MAIN
)

_ONNX = """#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <onnxruntime_cxx_api.h>

using Ids = std::vector<int64_t>;

// Throws if a text is empty or too long.
void CheckLength(const std::string& what, size_t count, size_t limit) {
  if (count >= 1 && count <= limit) return;
  throw std::invalid_argument("A " + what + " can have 1 to " + std::to_string(limit) +
                              " tokens. Received: " + std::to_string(count));
}

// Returns a tensor (1, N) that shares the memory of these ids.
Ort::Value Tensor(Ids& ids) {
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const int64_t shape[] = {1, static_cast<int64_t>(ids.size())};
  return Ort::Value::CreateTensor<int64_t>(memory, ids.data(), ids.size(), shape, 2);
}

// Runs a session on the bound inputs; returns the outputs in the order of the names.
std::vector<Ort::Value> Run(Ort::Session& session, Ort::IoBinding& binding, const std::vector<std::string>& names) {
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  for (const std::string& name : names) binding.BindOutput(name.c_str(), memory);
  session.Run(Ort::RunOptions{nullptr}, binding);
  return binding.GetOutputValues();
}

"""

_ONNX_MAIN = """
int main(int count, char** ids) {
  Ids text;
  for (int i = 1; i < count; ++i) text.push_back(std::stoll(ids[i]));
  Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "");  // it would warn of every optional input
  try {
    for (auto value : Answer(environment, text)) std::cout << value << " ";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\\n";
    return 1;
  }
}
"""

_ONNX_STEPS = """// Returns the names of the caches of all layers, as inputs or as outputs of a step.
std::vector<std::string> Names(const std::string& prefix) {
  std::vector<std::string> names;
  for (int i = 0; i < @layers; ++i) {
    for (const char* kind : {@kinds}) names.push_back(prefix + std::to_string(i) + kind);
  }
  return names;
}

// Returns caches of length 0, for the first step.
std::vector<Ort::Value> Empty(size_t count) {
  Ort::AllocatorWithDefaultOptions allocator;
  const int64_t shape[] = {1, @heads, 0, @size};
  std::vector<Ort::Value> caches;
  while (caches.size() < count) caches.push_back(Ort::Value::CreateTensor<float>(allocator, shape, 4));
  return caches;
}

// Returns the most probable token of the last position of logits (1, N, @vocabulary).
int64_t MostProbable(const Ort::Value& logits) {
  const size_t count = logits.GetTensorTypeAndShapeInfo().GetElementCount();
  const float* data = logits.GetTensorData<float>() + count;
  std::vector<float> scores(data - @vocabulary, data);
@{forbidden}  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

bool IsEnd(int64_t token) {
  const Ids ends = {@ends};
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

"""

_ONNX_ENCODER = (
    _ONNX
    + """// Returns the values of @output for the token ids of a text.
std::vector<float> Answer(Ort::Env& environment, Ids ids@segments) {
@{checked}  Ort::Session session(environment, "@file", Ort::SessionOptions{});
  Ort::IoBinding binding(session);
  Ids mask(ids.size(), 1);
  @inputs
  const auto outputs = Run(session, binding, {@outputs});
  const float* first = outputs[0].GetTensorData<float>();
  return {first, first + outputs[0].GetTensorTypeAndShapeInfo().GetElementCount()};
}
"""
    + _ONNX_MAIN
)

_ONNX_DECODER = (
    _ONNX
    + _ONNX_STEPS
    + """// Continues the token ids of a prompt by greedy search; returns at most 40 new ids.
Ids Answer(Ort::Env& environment, Ids tokens) {
  CheckLength("prompt", tokens.size(), @limit);
  Ort::Session session(environment, "@file", Ort::SessionOptions{});
  const auto past = Names("@past");
  auto names = Names("@present");
  names.push_back("@logits");
  auto caches = Empty(past.size());
  Ids generated, mask, positions;
  while (generated.size() < 40 && mask.size() + tokens.size() <= @capacity) {
    positions.clear();
    for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(static_cast<int64_t>(mask.size() + i));
    mask.resize(mask.size() + tokens.size(), 1);
    Ort::IoBinding binding(session);
    binding.BindInput("@ids", Tensor(tokens));
    binding.BindInput("@mask", Tensor(mask));
    binding.BindInput("@positions", Tensor(positions));
    for (size_t i = 0; i < past.size(); ++i) binding.BindInput(past[i].c_str(), caches[i]);
    caches = Run(session, binding, names);
    tokens = {MostProbable(caches.back())};
    if (IsEnd(tokens[0])) break;
    generated.push_back(tokens[0]);
  }
  return generated;
}
"""
    + _ONNX_MAIN
)

_ONNX_ENCODER_DECODER = (
    _ONNX
    + _ONNX_STEPS
    + """// Generates at most 40 token ids from those of a text with @{with_prefix}the end token after it.
Ids Answer(Ort::Env& environment, Ids ids) {
@{checked}  Ort::Session encoder(environment, "@encoder_file", Ort::SessionOptions{});
  Ort::Session decoder(environment, "@file", Ort::SessionOptions{});
  Ids mask(ids.size(), 1);
  Ort::IoBinding encoding(encoder);
  encoding.BindInput("@text_ids", Tensor(ids));
  encoding.BindInput("@text_mask", Tensor(mask));
  const auto states = Run(encoder, encoding, {"@states"});
  const auto past = Names("@past");
  auto names = Names("@present");
  names.push_back("@logits");
  auto caches = Empty(past.size());
  Ids generated, token = {@start};
  while (generated.size() < std::min<size_t>(40, @capacity)) {
    Ort::IoBinding binding(decoder);
    binding.BindInput("@ids", Tensor(token));
    binding.BindInput("@memory_mask", Tensor(mask));
    binding.BindInput("@memory", states[0]);
    for (size_t i = 0; i < past.size(); ++i) binding.BindInput(past[i].c_str(), caches[i]);
    caches = Run(decoder, binding, names);
    token = {MostProbable(caches.back())};
@{first}    if (IsEnd(token[0])) break;
    generated.push_back(token[0]);
  }
  return generated;
}
"""
    + _ONNX_MAIN
)

_PROGRAMS: dict[tuple[str, str | None], str] = {
    ("tflite", "encoder"): _LITERT_ENCODER,
    ("tflite", "decoder"): _LITERT_DECODER,
    ("tflite", "encoder-decoder"): _LITERT_ENCODER_DECODER,
    ("onnx", "encoder"): _ONNX_ENCODER,
    ("onnx", "decoder"): _ONNX_DECODER,
    ("onnx", "encoder-decoder"): _ONNX_ENCODER_DECODER,
}
