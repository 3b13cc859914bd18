#include "text/unicode.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "text/utf8.hpp"

namespace kerasformer {
namespace {

#include "text/unicode_tables.inc"

constexpr char32_t kCharacters = 0x110000;

// Korean syllables are composed by arithmetic. Reference: The Unicode Standard, section 3.12.
constexpr char32_t kSyllables = 0xac00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11a7;
constexpr char32_t kNumLeading = 19, kNumVowels = 21, kNumTrailing = 28, kNumSyllables = 11172;

// One byte for each character: the index of its kind.
std::vector<uint8_t> ExpandedKinds() {
  std::vector<uint8_t> kinds(kCharacters);
  for (size_t index = 0; index < std::size(kRanges); index += 2) {
    const size_t end = index + 2 < std::size(kRanges) ? kRanges[index + 2] : kCharacters;
    std::fill(kinds.begin() + kRanges[index], kinds.begin() + end, static_cast<uint8_t>(kRanges[index + 1]));
  }
  return kinds;
}

std::unordered_map<uint64_t, char32_t> Pairs() {
  std::unordered_map<uint64_t, char32_t> pairs;
  for (size_t index = 0; index < std::size(kCompositions); index += 3) {
    pairs[static_cast<uint64_t>(kCompositions[index]) << 32 | kCompositions[index + 1]] = kCompositions[index + 2];
  }
  return pairs;
}

std::unordered_map<char32_t, int> Classes() {
  std::unordered_map<char32_t, int> classes;
  for (size_t index = 0; index < std::size(kCombiningClasses); index += 3) {
    for (uint32_t c = 0; c < kCombiningClasses[index + 1]; ++c) {
      classes[kCombiningClasses[index] + c] = static_cast<int>(kCombiningClasses[index + 2]);
    }
  }
  return classes;
}

// Texts by character.
class Texts {
 public:
  template <size_t size>
  explicit Texts(const uint32_t (&table)[size]) {
    for (size_t index = 0; index < size; index += 2 + table[index + 1]) {
      texts_[table[index]] = std::u32string(table + index + 2, table + index + 2 + table[index + 1]);
    }
  }

  std::u32string_view Of(char32_t c) const {
    const auto found = texts_.find(c);
    return found == texts_.end() ? std::u32string_view() : found->second;
  }

 private:
  std::unordered_map<char32_t, std::u32string> texts_;
};

bool IsSyllablePart(Break kind) { return kind >= Break::kL; }

// Whether two neighbouring characters belong to one grapheme cluster.
bool Joined(Break before, Break after) {
  if (before == Break::kCr) return after == Break::kLf;
  if (before == Break::kLf || before == Break::kControl) return false;
  if (after == Break::kExtend || after == Break::kZwj || after == Break::kSpacingMark) return true;
  if (after == Break::kCr || after == Break::kLf || after == Break::kControl) return false;
  if (before == Break::kPrepend) return true;
  if (!IsSyllablePart(before) || !IsSyllablePart(after)) return false;
  if (before == Break::kL) return after != Break::kT;
  if (before == Break::kV || before == Break::kLv) return after == Break::kV || after == Break::kT;
  return after == Break::kT;
}

}  // namespace

const std::vector<std::string> kCategories = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                              "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                              "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

uint32_t PropertiesOf(char32_t c) {
  static const std::vector<uint8_t> kKindOf = ExpandedKinds();
  return c < kCharacters ? kKinds[kKindOf[c]] : 0;
}

int CombiningClass(char32_t c) {
  static const auto kClasses = Classes();
  if (c < 0x300) return 0;
  const auto found = kClasses.find(c);
  return found == kClasses.end() ? 0 : found->second;
}

char32_t Composition(char32_t first, char32_t second) {
  static const auto kPairs = Pairs();
  if (first - kLeading < kNumLeading && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeading) * kNumVowels + second - kVowels) * kNumTrailing;
  }
  if (first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTrailing == 0 && second > kTrailing &&
      second < kTrailing + kNumTrailing) {
    return first + second - kTrailing;
  }
  const auto found = kPairs.find(static_cast<uint64_t>(first) << 32 | second);
  return found == kPairs.end() ? 0 : found->second;
}

std::u32string_view Decomposition(char32_t c, bool compatible) {
  static const Texts kCanonicalTexts(kCanonical), kCompatibleTexts(kCompatible);
  if (c < 0xa0) return {};
  if (c - kSyllables < kNumSyllables) {
    static thread_local char32_t parts[3];
    const char32_t index = c - kSyllables, trailing = index % kNumTrailing;
    parts[0] = kLeading + index / (kNumVowels * kNumTrailing);
    parts[1] = kVowels + index / kNumTrailing % kNumVowels;
    parts[2] = kTrailing + trailing;
    return {parts, trailing ? 3u : 2u};
  }
  if (compatible) {
    const auto text = kCompatibleTexts.Of(c);
    if (!text.empty()) return text;
  }
  return kCanonicalTexts.Of(c);
}

std::u32string_view LowerCase(char32_t c) {
  static const Texts kTexts(kLower);
  static const std::u32string kLetters = U"abcdefghijklmnopqrstuvwxyz";
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? std::u32string_view(kLetters).substr(c - 'A', 1) : std::u32string_view();
  return kTexts.Of(c);
}

// Clusters of emoji and of flags are longer than what the only caller distinguishes, so that their rules are not needed.
size_t GraphemeEnd(std::string_view text, size_t at) {
  Break before = BreakOf(NextCharacter(text, at));
  while (at < text.size()) {
    size_t end = at;
    const Break after = BreakOf(NextCharacter(text, end));
    if (!Joined(before, after)) break;
    before = after;
    at = end;
  }
  return at;
}

size_t LeadingSpaces(std::string_view text) {
  size_t at = 0;
  for (size_t end = 0; end < text.size() && Is(NextCharacter(text, end), kSpace);) at = end;
  return at;
}

size_t TrailingSpaces(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = PreviousStart(text, end);
    size_t at = start;
    if (!Is(NextCharacter(text, at), kSpace)) break;
    end = start;
  }
  return end;
}

// Reference: The Unicode Standard, table 3-7, well-formed byte sequences.
size_t ValidCharacterBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t index) { return static_cast<unsigned char>(text[at + index]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t count = first < 0xc2 || first > 0xf4 ? 0 : CharacterBytes(text[at]);
  if (count == 0 || at + count > text.size()) return 0;
  for (size_t index = 1; index < count; ++index) {
    if (!Continues(text[at + index])) return 0;
  }
  const unsigned second = byte(1);
  const bool refused = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                       (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return refused ? 0 : count;
}

bool IsValidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t count = ValidCharacterBytes(text, at);
    if (count == 0) return false;
    at += count;
  }
  return true;
}

std::string WithReplacements(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t count = ValidCharacterBytes(bytes, at);
    if (count) {
      text.append(bytes.substr(at, count));
      at += count;
      continue;
    }
    Append(0xfffd, text);
    // The start of a character counts as one part, as far as some further bytes could make it valid.
    const size_t whole = CharacterBytes(bytes[at]);
    size_t length = 1;
    std::string part(1, bytes[at]);
    while (length < whole && at + length < bytes.size() && Continues(bytes[at + length])) {
      part += bytes[at + length];
      bool possible = false;
      for (const char filler : {'\x80', '\xbf'}) possible |= ValidCharacterBytes(part + std::string(3, filler), 0) != 0;
      if (!possible) break;
      ++length;
    }
    at += length;
  }
  return text;
}

}  // namespace kerasformer
