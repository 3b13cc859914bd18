// The languages of a translation: tokens of languages (NLLB, mBART), tokens such as `>>fra<<` at the start of a text
// (OPUS-MT), or prefixes (T5).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kerasformer/text_model.hpp"

namespace kerasformer {

// What the languages of a call change.
struct Spoken {
  std::string prefix;                                                  // text put before the input
  Json settings;                                                       // settings that take precedence over those of the bundle
  std::function<void(std::vector<int>&)> mark = [](std::vector<int>&) {};  // marks the ids of a text with its language
};

// Returns the text before an input: that of the task, of all tasks, or of the only variant of the task. Throws `InputError`
// if there are several variants.
std::string DefaultPrefix(const Json& info, const std::string& task);

// Throws `InputError` for a language that is missing or unknown. `given` are the settings of the bundle and of the call.
Spoken SpokenIn(const Json& info, const Tokenizer& tokenizer, const std::string& task, const TransformOptions& options,
                const Settings& given);

}  // namespace kerasformer
