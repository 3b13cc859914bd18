#include "tokenization/charsmap.hpp"

#include "kerasformer/errors.hpp"
#include "text/unicode.hpp"

namespace kerasformer {
namespace {

constexpr size_t kLongestCluster = 6;  // clusters of so many bytes or more are replaced character by character

std::string Decoded(const std::string& base64) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : base64) {
    const size_t value = kDigits.find(digit);
    if (value == std::string::npos) break;  // padding
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) bytes += static_cast<char>((bits >> (count -= 8)) & 0xff);
  }
  return bytes;
}

uint32_t Unit(const std::string& bytes, size_t at) {
  uint32_t unit = 0;
  for (size_t index = 0; index < 4; ++index) unit |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + index])) << (8 * index);
  return unit;
}

// The offset of a unit's children.
uint32_t Children(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(const std::string& base64) {
  const std::string bytes = Decoded(base64);
  const size_t size = bytes.size() < 8 ? 0 : Unit(bytes, 0);
  if (size < 4 || size % 4 != 0 || size > bytes.size() - 4) {
    throw TokenizerError("the normalization rules in tokenizer.json are damaged: their table is incomplete");
  }
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(Unit(bytes, at));
  replacements_ = bytes.substr(4 + size);
}

std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  uint32_t node = Children(units_[0]);
  for (const char each : text) {
    const auto byte = static_cast<uint8_t>(each);
    node ^= byte;
    // The label of the unit; values have the highest bit set.
    if (byte == 0 || node >= units_.size() || (units_[node] & 0x800000ff) != byte) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= Children(unit);
    if (node >= units_.size()) return std::nullopt;
    if ((unit >> 8) & 1) {
      const size_t start = units_[node] & 0x7fffffff;
      if (start >= replacements_.size()) return std::nullopt;
      return std::string_view(replacements_).substr(start, replacements_.find('\0', start) - start);
    }
  }
  return std::nullopt;
}

Aligned Charsmap::Normalize(Aligned from) const {
  const std::string_view text = from.text;
  std::vector<Changed> characters;
  // Characters replace others one by one; the last one stands for those that are left over on one of the sides. As in the
  // reference, characters that are removed at the start of a text shift the offsets of the others.
  const auto replace = [&](std::string_view part, std::string_view replacement) {
    const size_t old = CountCharacters(part), count = CountCharacters(replacement);
    for (size_t at = 0, index = 0; at < replacement.size(); ++index) {
      characters.push_back({NextCharacter(replacement, at), index >= old});
    }
    if (count < old && !characters.empty()) characters.back().change -= static_cast<int>(old - count);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = GraphemeEnd(text, at);
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() < kLongestCluster ? Find(cluster) : std::nullopt;
    if (whole) {
      replace(cluster, *whole);
      at = end;
    }
    while (at < end) {
      const std::string_view part = text.substr(at, CharacterBytes(text[at]));
      const auto found = Find(part);
      replace(part, found ? *found : part);
      at += part.size();
    }
  }
  return Rewriter(from).Changes(characters);
}

}  // namespace kerasformer
