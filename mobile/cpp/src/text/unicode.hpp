// Properties of characters as the library `tokenizers` knows them; tools/unicode_tables.py writes the tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kerasformer {

// Flags of a character, in the order of tools/unicode_tables.py.
enum Property : uint32_t {
  kPatternWord = 1 << 0,    // `\w` of split patterns
  kWord = 1 << 1,           // `\w` beside added tokens and in the pre-tokenizer Whitespace
  kNonSpacingMark = 1 << 2,  // what BERT's normalizer strips as an accent
  kMark = 1 << 3,           // what the normalizer StripAccents strips
  kControl = 1 << 4,        // what BERT's normalizer removes
  kPunctuation = 1 << 5,
  kSpace = 1 << 6,
  kNumeric = 1 << 7,
};

// Classes of characters for the boundaries of grapheme clusters.
enum class Break { kOther, kCr, kLf, kControl, kExtend, kZwj, kSpacingMark, kPrepend, kL, kV, kT, kLv, kLvt };

// The general categories, in the order of their indices.
extern const std::vector<std::string> kCategories;

// The properties of a character: flags, and the indices of its break class and of its category.
uint32_t PropertiesOf(char32_t c);
inline bool Is(char32_t c, uint32_t properties) { return (PropertiesOf(c) & properties) != 0; }
inline Break BreakOf(char32_t c) { return static_cast<Break>((PropertiesOf(c) >> 8) & 15); }
inline uint32_t CategoryOf(char32_t c) { return PropertiesOf(c) >> 12; }

// Canonical combining class.
int CombiningClass(char32_t c);

// The character that two others compose to, or 0.
char32_t Composition(char32_t first, char32_t second);

// The decomposition of a character, or an empty text.
std::u32string_view Decomposition(char32_t c, bool compatible);

// The lower case of a character, or an empty text if that is the character itself.
std::u32string_view LowerCase(char32_t c);

// The end of the grapheme cluster that starts at a position.
size_t GraphemeEnd(std::string_view text, size_t at);

// The length of a text's spaces at its start, and the position of those at its end.
size_t LeadingSpaces(std::string_view text);
size_t TrailingSpaces(std::string_view text);

}  // namespace kerasformer
