// The post-processors of `tokenizer.json`, which add special tokens around texts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// A part of a template: special tokens, or one of the texts.
struct TemplatePart {
  std::vector<int> ids;  // of special tokens
  int sequence = -1;     // 0 or 1 for a text, -1 for special tokens
  int type_id = 0;
};

// How texts become the input of a model.
struct PostProcessor {
  // The templates of one text and of a pair.
  std::vector<TemplatePart> single = {{{}, 0, 0}}, pair = {{{}, 0, 0}, {{}, 1, 1}};
  // The type ids of both texts without special tokens.
  bool one_segment = false;
  // Whether spaces at the ends of tokens are excluded from their offsets, and whether a space was put before the text.
  bool trims_offsets = false, adds_prefix_space = false;
};

// Throws `TokenizerError` for one that is unsupported.
PostProcessor PostProcessorOf(const Json& config);

}  // namespace kerasformer
