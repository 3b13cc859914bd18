// Text with the offsets of each byte in the original text, which every step of a tokenizer preserves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerasformer/tokenizer.hpp"
#include "text/utf8.hpp"

namespace kerasformer {

// A text in UTF-8; all bytes of a character have the same offsets, which count characters of the original text.
struct Aligned {
  std::string text;
  std::vector<Offsets> origins;

  // A text with the offsets of its own characters.
  static Aligned Of(std::string_view text);

  Aligned Slice(size_t start, size_t end) const;
  void Add(std::string_view part, Offsets origin);
  void Add(const Aligned& from, size_t start, size_t end);
};

// A character: it replaces one of a text (0), more of them (-1: two), or is inserted after them (1).
struct Changed {
  char32_t c;
  int change;
};

// Builds the next form of a text: each new character replaces one or more characters, or is inserted after those before it.
class Rewriter {
 public:
  explicit Rewriter(const Aligned& from) : from_(from) {
    result_.text.reserve(from.text.size() + 8);
    result_.origins.reserve(from.text.size() + 8);
  }

  // Writes a character for the next one and `more` further ones; it gets the offsets of the first of them.
  void Replace(char32_t c, int more = 0);

  // Writes a character with the offsets of the last one that was read.
  void Insert(char32_t c);

  // Copies characters, up to a position.
  void CopyTo(size_t end);

  // Skips characters, up to a position.
  void SkipTo(size_t end) { at_ = end; }

  // The position of the next character to be read.
  size_t At() const { return at_; }

  // Writes characters that stand for the whole text.
  Aligned Changes(const std::vector<Changed>& characters);

  Aligned Take() { return std::move(result_); }

 private:
  const Aligned& from_;
  Aligned result_;
  size_t at_ = 0;
};

}  // namespace kerasformer
