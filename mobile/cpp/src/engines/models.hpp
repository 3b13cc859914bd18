// The models of bundles, run by any engine: encoders, which read a text at once, and models that generate.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoding/decoding.hpp"
#include "kerasformer/engine.hpp"
#include "kerasformer/tokenizer.hpp"

namespace kerasformer {

// The slots of the first tokens of words, and of the tokens that mark labels, for a model that finds spans.
struct Slots {
  std::vector<int64_t> words, labels;
};

// Reads the tokens of one text; returns the outputs by name, without those for padding.
// Throws `CapacityError` if the text is longer than the model, and `InputError` for outputs that are not finite.
std::map<std::string, std::vector<float>> Forward(Engine& engine, const Manifest& manifest, const Encoding& tokens,
                                                  const Slots& slots = {});

// The generating model of a bundle, or null for a bundle with an encoder.
std::unique_ptr<StepModel> StepModelOf(Engine& engine, const Manifest& manifest);

}  // namespace kerasformer
