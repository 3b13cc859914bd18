#include "tokenization/words.hpp"

#include <algorithm>
#include <vector>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

// The index of the word of each character, and of the end of the text. A word includes one space before it; other white space
// between words is a word of its own, as for GPT-2.
std::vector<int> SpacedWords(const std::vector<char32_t>& characters) {
  const size_t size = characters.size();
  const auto separates = [&](size_t at) {
    const bool before_word = characters[at] == U' ' && at + 1 < size && !Is(characters[at + 1], kSpace);
    return Is(characters[at], kSpace) && !before_word;
  };
  std::vector<int> words;
  int number = -1;
  while (words.size() < size) {
    ++number;
    const bool space = separates(words.size());
    do {
      words.push_back(number);
    } while (words.size() < size && (space ? separates(words.size()) : !Is(characters[words.size()], kSpace)));
  }
  words.push_back(std::max(number, 0));
  return words;
}

}  // namespace

WordRule::WordRule(const Normalizer& normalize, const PreTokenizer& split) {
  const auto parts = [&](std::string_view text) {
    Words words{normalize(Aligned::Of(text)), {}};
    words.words.push_back({0, words.text.text.size(), 0});
    split(words);
    return words.words.size();
  };
  joins_words_ = parts("a a") == 1;
  splits_words_ = parts("aa") > 1;
}

void WordRule::Apply(std::string_view text, Encoding& tokens, const std::function<const std::string*(int)>& added) const {
  if (!joins_words_ && !splits_words_) return;
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) characters.push_back(NextCharacter(text, at));
  const std::vector<int> spaced = SpacedWords(characters);
  int last_word = -2, last_spaced = -2, number = -1;
  for (size_t index = 0; index < tokens.size(); ++index) {
    const Offsets offsets = tokens.offsets[index];
    int first = offsets.start;
    while (first < offsets.end && Is(characters[first], kSpace)) ++first;
    if (first == offsets.end) first = offsets.start;
    const std::string* content = splits_words_ ? added(tokens.ids[index]) : nullptr;
    const bool is_word = !splits_words_ || (content && Between(text, offsets).find(*content) != std::string_view::npos);
    const int word = is_word ? tokens.word_ids[index] : -1;
    if (word != last_word || spaced[first] != last_spaced) ++number;
    last_word = word;
    last_spaced = spaced[first];
    tokens.word_ids[index] = number;
  }
}

}  // namespace kerasformer
