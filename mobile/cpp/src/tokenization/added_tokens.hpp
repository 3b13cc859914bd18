// Added tokens such as `[MASK]`, which are found in a text before any other step of the tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

struct AddedToken {
  int id = 0;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;

  static AddedToken Of(const Json& config);
};

// A part of a text in bytes: an added token, or the text between two of them, whose token is null.
struct Section {
  size_t start, end;
  const AddedToken* token;
};

// Finds some added tokens in texts.
class AddedTokens {
 public:
  // Adds a token that occurs in texts in a form.
  void Add(const std::string& form, const AddedToken& token);

  std::vector<Section> Split(std::string_view text) const;

 private:
  // The longest token that starts at a position, with its length, or null.
  const AddedToken* At(std::string_view text, size_t at, size_t& length) const;

  // Forms with the same first byte, the longest first.
  std::vector<std::pair<std::string, AddedToken>> forms_[256];
};

}  // namespace kerasformer
