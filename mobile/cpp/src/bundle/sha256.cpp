#include "bundle/sha256.hpp"

#include <array>
#include <cmath>
#include <cstdint>

namespace kerasformer {
namespace {

uint32_t Rotated(uint32_t value, int count) { return value >> count | value << (32 - count); }

// The first 32 bits of the fractional parts of the roots of the first 64 primes.
std::array<uint32_t, 64> RootsOfPrimes(double exponent) {
  std::array<uint32_t, 64> bits;
  size_t found = 0;
  for (int number = 2; found < bits.size(); ++number) {
    bool prime = true;
    for (int divisor = 2; divisor * divisor <= number; ++divisor) prime = prime && number % divisor != 0;
    if (!prime) continue;
    const long double root = exponent == 2 ? std::sqrt(static_cast<long double>(number)) : std::cbrt(static_cast<long double>(number));
    bits[found++] = static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
  }
  return bits;
}

}  // namespace

std::string Sha256(const std::string& bytes) {
  static const std::array<uint32_t, 64> kConstants = RootsOfPrimes(3), kStart = RootsOfPrimes(2);
  std::array<uint32_t, 8> hash;
  for (size_t index = 0; index < hash.size(); ++index) hash[index] = kStart[index];
  std::string end = "\x80";
  end.resize((119 - bytes.size() % 64) % 64 + 1);
  for (int shift = 56; shift >= 0; shift -= 8) end += static_cast<char>((static_cast<uint64_t>(bytes.size()) * 8) >> shift);
  const size_t whole = bytes.size() / 64 * 64;
  const std::string rest = bytes.substr(whole) + end;
  for (size_t block = 0; block < whole + rest.size(); block += 64) {
    const char* data = block < whole ? bytes.data() + block : rest.data() + (block - whole);
    uint32_t words[64];
    for (size_t t = 0; t < 16; ++t) {
      words[t] = 0;
      for (size_t byte = 0; byte < 4; ++byte) words[t] = words[t] << 8 | static_cast<uint8_t>(data[4 * t + byte]);
    }
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t first = words[t - 15], second = words[t - 2];
      words[t] = words[t - 16] + words[t - 7] + (Rotated(first, 7) ^ Rotated(first, 18) ^ first >> 3) +
                 (Rotated(second, 17) ^ Rotated(second, 19) ^ second >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = hash;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t one = h + (Rotated(e, 6) ^ Rotated(e, 11) ^ Rotated(e, 25)) + ((e & f) ^ (~e & g)) + kConstants[t] + words[t];
      const uint32_t other = (Rotated(a, 2) ^ Rotated(a, 13) ^ Rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + other;
    }
    const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (size_t index = 0; index < hash.size(); ++index) hash[index] += added[index];
  }
  std::string text;
  for (const uint32_t word : hash) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace kerasformer
