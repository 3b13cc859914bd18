// Words of tokenizers whose pre-tokenizer does not find them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kerasformer/tokenizer.hpp"
#include "tokenization/normalizers.hpp"
#include "tokenization/pre_tokenizers.hpp"

namespace kerasformer {

// How the tokens of a text belong to words. Most pre-tokenizers find words; where one leaves a text whole (LLaMA 2, Gemma, ByT5)
// or splits words into characters, white space separates words.
class WordRule {
 public:
  WordRule(const Normalizer& normalize, const PreTokenizer& split);

  // Changes the words of the tokens of a text; `added` returns the content of an added token, or null.
  void Apply(std::string_view text, Encoding& tokens, const std::function<const std::string*(int)>& added) const;

 private:
  bool joins_words_, splits_words_;
};

}  // namespace kerasformer
