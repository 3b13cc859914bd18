// The decoders of `tokenizer.json`, which convert tokens to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// Converts tokens to texts, which together are the text.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

// Creates a decoder; null puts spaces between tokens. Throws `TokenizerError` for one that is unsupported.
Decoder DecoderOf(const Json& config);

}  // namespace kerasformer
