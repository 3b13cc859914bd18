#include "kerasformer/text_model.hpp"

#include <algorithm>

#include "engines/models.hpp"
#include "tasks/parts.hpp"
#include "text/files.hpp"

namespace kerasformer {
namespace {

bool HasFile(const Manifest& manifest, const std::string& name) {
  return std::count(manifest.files.begin(), manifest.files.end(), name) > 0;
}

// Checks the texts of a bundle that tokenizers may read differently. With other ids, the model would answer a different text.
void CheckHardTexts(const std::string& folder, const Tokenizer& tokenizer) {
  const Json texts = Json::Parse(ReadFile(folder, "tokenizer_texts.json"));
  for (const Json& each : texts.AsArray()) {
    const std::vector<int> expected = each["ids"].Ints(), received = tokenizer.Encode(each["text"].AsString()).ids;
    if (received == expected) continue;
    throw TokenizerError("this tokenizer reads a text differently from the model's own, so the model would answer a different text. Text: " +
                         Quoted(each["text"].AsString()) + ". Expected ids: " + Json(expected).Shown() + ". Received: " +
                         Json(received).Shown() + ". Run this bundle with kerasformer in Python");
  }
}

}  // namespace

TextModel TextModel::Open(const std::string& folder, const EngineOptions& options) {
  const Manifest manifest = Manifest::Read(folder);
  if (manifest.format == "tflite") return Open(folder, OpenLiteRt(folder, manifest, options));
  if (manifest.format == "onnx") return Open(folder, OpenOnnxRuntime(folder, manifest, options));
  if (manifest.format == "table") return Open(folder, OpenTable(folder, manifest));
  throw BundleError("kerasformer.json: format must be tflite, onnx or table. Received: " + manifest.format);
}

TextModel TextModel::Open(const std::string& folder, std::unique_ptr<Engine> engine) {
  auto parts = std::unique_ptr<Parts>(new Parts{Manifest::Read(folder), Tokenizer::Open(folder), nullptr, std::move(engine), nullptr});
  if (HasFile(parts->manifest, "target_tokenizer.json")) {
    parts->target = std::make_unique<Tokenizer>(Tokenizer::Open(folder, "target_tokenizer.json"));
  }
  if (HasFile(parts->manifest, "tokenizer_texts.json")) CheckHardTexts(folder, parts->tokenizer);
  parts->steps = StepModelOf(*parts->engine, parts->manifest);
  return TextModel(std::move(parts));
}

TextModel::TextModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TextModel::~TextModel() = default;
TextModel::TextModel(TextModel&&) noexcept = default;
TextModel& TextModel::operator=(TextModel&&) noexcept = default;

const Manifest& TextModel::manifest() const { return parts_->manifest; }

const Tokenizer& TextModel::tokenizer() const { return parts_->tokenizer; }

}  // namespace kerasformer
