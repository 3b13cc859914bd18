// The normalization of SentencePiece: the table of replacements in a `Precompiled` normalizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenization/aligned.hpp"

namespace kerasformer {

// The table is a double array (a trie in 32-bit units) over UTF-8, followed by the replacements, each ended by a 0.
// References: `spm_precompiled`, which the library `tokenizers` uses; google/sentencepiece, `normalizer.cc`.
class Charsmap {
 public:
  // Throws `TokenizerError` for a damaged table.
  explicit Charsmap(const std::string& base64);

  Aligned Normalize(Aligned text) const;

 private:
  // The replacement for the first key of the table with which a text starts.
  std::optional<std::string_view> Find(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace kerasformer
