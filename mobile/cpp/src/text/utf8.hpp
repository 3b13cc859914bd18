// Characters of UTF-8. As in Python, a character is a code point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kerasformer {

// The number of bytes of a character, from its first one; 1 for a byte that no character starts with.
inline size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Whether a byte continues a character.
inline bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Decodes the character at a position in valid UTF-8, and moves the position behind it.
inline char32_t NextCharacter(std::string_view text, size_t& at) {
  const auto byte = [&](size_t index) { return static_cast<unsigned char>(text[at + index]); };
  const char32_t first = byte(0);
  const size_t count = CharacterBytes(text[at]);
  char32_t c = first;
  if (count > 1 && at + count <= text.size()) {
    c = first & (0x7f >> count);
    for (size_t index = 1; index < count; ++index) c = (c << 6) | (byte(index) & 0x3f);
    at += count;
  } else {
    ++at;
  }
  return c;
}

// The start of the character before a position, which must not be 0.
inline size_t PreviousStart(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && Continues(text[at]));
  return at;
}

inline void Append(char32_t c, std::string& text) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  const int rest = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  text += static_cast<char>((0xff00 >> (rest + 1)) | (c >> (6 * rest)));
  for (int shift = 6 * (rest - 1); shift >= 0; shift -= 6) text += static_cast<char>(0x80 | ((c >> shift) & 0x3f));
}

inline size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += !Continues(byte);
  return count;
}

// The length of the valid UTF-8 character at a position, or 0 if there is none (also for a surrogate).
size_t ValidCharacterBytes(std::string_view text, size_t at);

// Whether a text is valid UTF-8.
bool IsValidUtf8(std::string_view text);

// A text with U+FFFD for each part that is no valid UTF-8, as Rust's `String::from_utf8_lossy`.
std::string WithReplacements(std::string_view bytes);

}  // namespace kerasformer
