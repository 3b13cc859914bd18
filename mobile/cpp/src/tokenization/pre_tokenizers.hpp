// The pre-tokenizers of `tokenizer.json`, which split a text into words.
#pragma once

#include <functional>
#include <vector>

#include "kerasformer/json.hpp"
#include "tokenization/aligned.hpp"
#include "tokenization/pattern.hpp"

namespace kerasformer {

// A part of a text, in bytes; `origin` is the first character of the original text that belongs to it.
struct Word {
  size_t start, end;
  int origin;
};

// A text that is split into words.
struct Words {
  Aligned text;
  std::vector<Word> words;
};

using PreTokenizer = std::function<void(Words&)>;

// Creates a pre-tokenizer; null does nothing. The step `ByteLevel` splits a text, and leaves the conversion to bytes to the
// model. Throws `TokenizerError` for one that is unsupported.
PreTokenizer PreTokenizerOf(const Json& config);

// The step of a type within a pre-tokenizer, normalizer or decoder, or null.
const Json& StepOf(const Json& config, std::string_view type);

}  // namespace kerasformer
