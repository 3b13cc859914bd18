#include <algorithm>
#include <filesystem>
#include <set>

#include "bundle/sha256.hpp"
#include "kerasformer/engine.hpp"
#include "kerasformer/errors.hpp"
#include "text/files.hpp"

namespace kerasformer {
namespace {

const std::string kName = "kerasformer.json";
const std::string kChecksum = "manifest_sha256";
constexpr int kVersion = 2;

std::optional<int> Number(const Json& json) { return json.IsInteger() ? std::optional(static_cast<int>(json.AsInt())) : std::nullopt; }

std::vector<TensorInfo> TensorsOf(const Json& json) {
  std::vector<TensorInfo> tensors;
  for (const auto& [name, each] : json.AsObject()) {
    TensorInfo info{name, each["dtype"].AsString(), each.String("kind", ""), {}, each.String("continues", ""),
                    each.Bool("in_place", false), static_cast<int>(each.Int("default", 0))};
    for (const Json& size : each["shape"].AsArray()) info.shape.push_back(size.IsInteger() ? size.AsInt() : -1);
    tensors.push_back(std::move(info));
  }
  return tensors;
}

Json Parsed(const std::string& text) {
  try {
    Json content = Json::Parse(text);
    if (content.IsObject()) return content;
  } catch (const std::invalid_argument&) {
    // The error is thrown below.
  }
  throw BundleError(kName + " is not a manifest. Expected: a bundle's folder, as kerasformer export writes it. Received: " +
                    Quoted(text.substr(0, 40)));
}

void CheckVersion(const Json& content) {
  const Json& version = content["format_version"];
  if (!version.IsInteger() || version.AsInt() < 1) {
    throw BundleError(kName + ": format_version must be a positive integer. Received: " + version.Canonical());
  }
  if (version.AsInt() < kVersion) {
    throw BundleError("this library reads manifests of version " + std::to_string(kVersion) + ". Received: version " +
                      version.Canonical() + ". Export the model again");
  }
  if (version.AsInt() > kVersion) {
    throw BundleError("this bundle was written by a newer kerasformer: format version " + version.Canonical() +
                      ", and this library reads up to " + std::to_string(kVersion) + ". Use a newer library");
  }
}

void CheckChecksum(const Json& content) {
  if (!content.Has(kChecksum)) {
    throw BundleError(kName + " lacks the " + kChecksum + " that every release of kerasformer writes: it was changed after its " +
                      "export, or comes from before the first release. Export the model again");
  }
  if (content[kChecksum].AsString() != Sha256(content.Canonical(kChecksum))) {
    throw BundleError(kName + " was changed after its export: its " + kChecksum +
                      " does not match its fields. Export the model again with the settings that you need");
  }
}

// The files that a text model reads: those of the model, with weights beside it, and of the tokenizer. An app ships no others.
bool IsRead(const std::string& name, const std::vector<Signature>& signatures) {
  static const std::set<std::string> kTokenizer = {"tokenizer.json", "tokenizer_config.json", "target_tokenizer.json", "tokenizer_texts.json"};
  if (kTokenizer.count(name) || name.find(".onnx_data") != std::string::npos) return true;
  return std::any_of(signatures.begin(), signatures.end(), [&](const Signature& each) { return each.file == name; });
}

// Compares the other files with their checksums; large ones are left to the engine, which reads them anyway.
void CheckFiles(const std::string& folder, const Json& files, const std::vector<Signature>& signatures) {
  constexpr uintmax_t kLargest = 64 << 20;
  for (const auto& [name, checksum] : files.AsObject()) {
    if (!IsRead(name, signatures)) continue;
    const auto path = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(path)) {
      throw BundleError("the bundle lacks " + name + ". Copy all files that its card lists, or export the model again");
    }
    if (std::filesystem::file_size(path) <= kLargest && Sha256(ReadFile(folder, name)) != checksum.AsString()) {
      throw BundleError(name + " was changed after its export, or copied incompletely: its sha256 does not match that of " + kName +
                        ". Copy the file again, or export the model again");
    }
  }
}

}  // namespace

Manifest Manifest::Read(const std::string& folder) {
  const Json content = Parsed(ReadFile(folder, kName));
  CheckVersion(content);
  std::string missing;
  for (const char* name : {"format", "info", "signatures", "files"}) {
    if (!content.Has(name)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (!missing.empty()) throw BundleError(kName + ": the fields " + missing + " are missing");
  CheckChecksum(content);
  try {
    Manifest manifest{content["format"].AsString(), content["info"], {}, Number(content["capacity"]), Number(content["encoder_capacity"]), {}};
    for (const auto& field : content["files"].AsObject()) manifest.files.push_back(field.first);
    for (const auto& [name, json] : content["signatures"].AsObject()) {
      manifest.signatures.push_back({name, json["file"].AsString(), json["role"].AsString(), Number(json["rows"]), Number(json["tokens"]),
                                     Number(json["cache_length"]), TensorsOf(json["inputs"]), TensorsOf(json["outputs"])});
      const std::string& file = manifest.signatures.back().file;
      if (!content["files"].Has(file)) {
        throw BundleError(kName + ": signatures." + name + ".file must be one of files. Received: " + file);
      }
      if (const TensorInfo* recurrent = manifest.signatures.back().Input("recurrent")) {
        throw BundleError("a model with recurrent states cannot run here. Expected: one that keeps keys, values and the last inputs " +
                          std::string("of convolutions alone. Received: ") + recurrent->name + " in signatures." + name +
                          ". Run the bundle with Python");
      }
    }
    CheckFiles(folder, content["files"], manifest.signatures);
    return manifest;
  } catch (const std::invalid_argument& error) {
    throw BundleError(kName + " is damaged: " + error.what());
  }
}

std::vector<const Signature*> Manifest::OfRole(const std::string& role) const {
  std::vector<const Signature*> chosen;
  for (const Signature& signature : signatures) {
    if (signature.role == role) chosen.push_back(&signature);
  }
  // In ascending order of the number of tokens that they read.
  std::stable_sort(chosen.begin(), chosen.end(), [](const Signature* one, const Signature* other) {
    return one->tokens.value_or(0) < other->tokens.value_or(0);
  });
  return chosen;
}

namespace {

const TensorInfo* OfKind(const std::vector<TensorInfo>& tensors, const std::string& kind) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) { return tensor.kind == kind; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

const TensorInfo* Signature::Input(const std::string& kind) const { return OfKind(inputs, kind); }

const TensorInfo* Signature::Output(const std::string& kind) const { return OfKind(outputs, kind); }

}  // namespace kerasformer
