// The normalizers of `tokenizer.json`.
#pragma once

#include <functional>

#include "kerasformer/json.hpp"
#include "tokenization/aligned.hpp"

namespace kerasformer {

using Normalizer = std::function<Aligned(Aligned)>;

// Creates a normalizer; null does nothing. Throws `TokenizerError` for one that is unsupported.
Normalizer NormalizerOf(const Json& config);

}  // namespace kerasformer
