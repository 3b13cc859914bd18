// What a program needs to know of a bundle, read from its kerasformer.json with https://github.com/nlohmann/json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

using Ids = std::vector<int64_t>;
using Json = nlohmann::ordered_json;  // outputs have the order of the model

// An input or output of a signature. The fill is the value for tokens that are not set.
struct TensorInfo {
  std::string name, kind;
  int layer, fill;
  std::vector<int64_t> shape;  // 0 for a dimension of any size
};

using Tensors = std::vector<TensorInfo>;

// Returns those tensors that have one of these kinds.
inline Tensors OfKind(const Tensors& tensors, std::initializer_list<const char*> kinds) {
  Tensors chosen;
  for (const TensorInfo& tensor : tensors) {
    if (std::count(kinds.begin(), kinds.end(), tensor.kind)) chosen.push_back(tensor);
  }
  return chosen;
}

// Returns the tensor of a kind, and of a layer if there is one for each.
inline const TensorInfo& Find(const Tensors& tensors, const std::string& kind, int layer = -1) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.kind == kind && tensor.layer == layer) return tensor;
  }
  throw std::out_of_range("The model has no " + kind);
}

// A function of a model file. The tokens are the length of its texts, or 0 for any length.
struct Signature {
  std::string name, file, role;
  size_t tokens;
  Tensors inputs, outputs;
};

class Bundle {
 public:
  const std::string folder;
  Ids ends, forbidden;
  int64_t padding;
  size_t capacity, encoder_capacity, max_length;  // in tokens; 0 without a limit

  explicit Bundle(const std::string& path) : folder(path) {
    std::ifstream file(folder + "/kerasformer.json");
    if (!file) throw std::invalid_argument("A bundle was expected, with a kerasformer.json. Received: " + folder);
    const Json manifest = Json::parse(file);
    info_ = manifest.at("info");
    ends = info_.at("eos_token_id").get<Ids>();
    capacity = Number(manifest, "capacity");
    encoder_capacity = Number(manifest, "encoder_capacity");
    max_length = Number(info_, "max_length");
    // A token of only the vocabulary that the model writes is no id of a text.
    const int64_t vocabulary = Number(info_, "vocab_size"), pad = Number(info_, "pad_token_id");
    padding = vocabulary && pad >= vocabulary ? 0 : pad;
    const Json& generation = info_.at("generation");
    if (Has(generation, "suppress_tokens")) forbidden = generation["suppress_tokens"].get<Ids>();
    if (Has(generation, "bad_words_ids")) {
      for (const Json& word : generation["bad_words_ids"]) {
        if (word.size() == 1) forbidden.push_back(word[0].get<int64_t>());
      }
    }
    for (const auto& [name, json] : manifest.at("signatures").items()) {
      signatures_.push_back({name, json.at("file").get<std::string>(), json.at("role").get<std::string>(),
                             Number(json, "tokens"), Read(json.at("inputs")), Read(json.at("outputs"))});
    }
    std::stable_sort(signatures_.begin(), signatures_.end(),
                     [](const Signature& one, const Signature& other) { return one.tokens < other.tokens; });
  }

  // Returns the signatures of a role, the shortest first.
  std::vector<std::reference_wrapper<const Signature>> OfRole(const std::string& role) const {
    std::vector<std::reference_wrapper<const Signature>> chosen;
    for (const Signature& signature : signatures_) {
      if (signature.role == role) chosen.push_back(signature);
    }
    return chosen;
  }

  // Returns the signature that reads one token of one text, or of any texts.
  const Signature& Decode() const {
    const auto steps = OfRole("decode");
    const auto plain = std::find_if(steps.begin(), steps.end(),
                                    [](const Signature& step) { return step.name == "decode"; });
    return plain == steps.end() ? steps.at(0) : *plain;
  }

  // Returns the most probable token of those that are not forbidden.
  int64_t Best(std::vector<float> scores) const {
    for (const int64_t token : forbidden) scores[token] = std::numeric_limits<float>::lowest();
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
  }

  bool IsEnd(int64_t token) const { return std::count(ends.begin(), ends.end(), token) > 0; }

  // Returns the first token that the decoder reads, and the first one of every answer, if it is always the same.
  std::pair<int64_t, std::optional<int64_t>> FirstTokens(const std::string& language) const {
    std::map<std::string, int64_t> tokens{{"decoder_start_token_id", 0}};
    for (const char* name : {"pad_token_id", "bos_token_id", "decoder_start_token_id"}) {
      if (Has(info_, name)) tokens["decoder_start_token_id"] = info_[name].get<int64_t>();
    }
    const Json& generation = info_.at("generation");
    if (Has(generation, "forced_bos_token_id")) {
      tokens["forced_bos_token_id"] = generation["forced_bos_token_id"].get<int64_t>();
    }
    if (Has(info_, "languages")) {
      const auto ids = info_["languages"]["ids"].get<std::map<std::string, int64_t>>();
      bool chosen = ids.count(language) > 0;
      std::string codes;
      for (const auto& [code, id] : ids) {
        codes += (codes.empty() ? "" : ", ") + code;
        for (const char* name : {"decoder_start_token_id", "forced_bos_token_id"}) {
          chosen = chosen || (language.empty() && Has(generation, name) && generation[name] == id);
        }
      }
      if (!chosen) {
        throw std::invalid_argument("Pass the language of the output, one of " + codes + ". Received: " + language);
      }
      if (!language.empty()) tokens[info_["languages"]["setting"].get<std::string>()] = ids.at(language);
    }
    const auto forced = tokens.find("forced_bos_token_id");
    return {tokens["decoder_start_token_id"], forced == tokens.end() ? std::nullopt : std::optional(forced->second)};
  }

 private:
  static bool Has(const Json& json, const std::string& name) { return json.contains(name) && !json[name].is_null(); }

  static size_t Number(const Json& json, const std::string& name) {
    return Has(json, name) ? json[name].get<size_t>() : 0;
  }

  static Tensors Read(const Json& json) {
    Tensors tensors;
    for (const auto& [name, tensor] : json.items()) {
      std::vector<int64_t> shape;
      for (const Json& size : tensor.at("shape")) shape.push_back(size.is_number() ? size.get<int64_t>() : 0);
      tensors.push_back({name, tensor.value("kind", ""), tensor.value("layer", -1), tensor.value("default", 0), shape});
    }
    return tensors;
  }

  Json info_;
  std::vector<Signature> signatures_;
};

// Throws if a text is empty or too long; a limit of 0 is none.
inline void CheckLength(const std::string& what, size_t count, size_t limit) {
  if (limit == 0 || (count >= 1 && count <= limit)) return;
  throw std::invalid_argument("A " + what + " can have 1 to " + std::to_string(limit) +
                              " tokens. Received: " + std::to_string(count));
}

// Runs a program on its arguments, FOLDER [--language CODE] ID..., and prints the answer or the error.
template <class Model>
int RunProgram(int count, char** arguments) {
  try {
    if (count < 2) throw std::invalid_argument("Usage: main FOLDER [--language CODE] ID...");
    const Bundle bundle(arguments[1]);
    std::string language;
    Ids ids;
    for (int i = 2; i < count; ++i) {
      if (std::string(arguments[i]) == "--language" && i + 1 < count) {
        language = arguments[++i];
      } else {
        ids.push_back(std::stoll(arguments[i]));
      }
    }
    Model model(bundle);
    if (bundle.OfRole("decode").empty()) {
      for (const float value : model.Run(ids)) std::cout << value << " ";
    } else {
      const bool rewrites = !bundle.OfRole("encode").empty();
      for (const int64_t token : rewrites ? model.Rewrite(ids, language) : model.Continue(ids)) {
        std::cout << token << " ";
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
