#include "decoding/random.hpp"

#include <random>
#include <vector>

namespace kerasformer {
namespace {

constexpr uint64_t kMultiplierHigh = 0x2360ed051fc65da4, kMultiplierLow = 0x4385df649fccf645;
constexpr size_t kPoolSize = 4;

// The high half of the product of two numbers of 64 bits.
uint64_t HighProduct(uint64_t one, uint64_t other) {
  const uint64_t a = one >> 32, b = one & 0xffffffff, c = other >> 32, d = other & 0xffffffff;
  const uint64_t low = b * d, first = a * d + (low >> 32), second = b * c + (first & 0xffffffff);
  return a * c + (first >> 32) + (second >> 32);
}

std::vector<uint32_t> MixedPool(uint64_t seed) {
  uint32_t constant = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875;
    value *= constant;
    return value ^ (value >> 16);
  };
  const auto mixed = [](uint32_t x, uint32_t y) {
    const uint32_t value = 0xca01f9dd * x - 0x4973f715 * y;
    return value ^ (value >> 16);
  };
  std::vector<uint32_t> pool;
  for (size_t index = 0; index < kPoolSize; ++index) pool.push_back(hashed(index < 2 ? static_cast<uint32_t>(seed >> (32 * index)) : 0));
  for (size_t from = 0; from < kPoolSize; ++from) {
    for (size_t to = 0; to < kPoolSize; ++to) {
      if (from != to) pool[to] = mixed(pool[to], hashed(pool[from]));
    }
  }
  return pool;
}

// `SeedSequence(seed).generate_state(4, uint64)`.
std::vector<uint64_t> SeedWords(uint64_t seed) {
  const std::vector<uint32_t> pool = MixedPool(seed);
  uint32_t constant = 0x8b51f9dd;
  std::vector<uint64_t> words(4);
  for (size_t index = 0; index < 8; ++index) {
    uint32_t word = pool[index % kPoolSize] ^ constant;
    constant *= 0x58f38ded;
    word *= constant;
    words[index / 2] |= static_cast<uint64_t>(word ^ (word >> 16)) << (32 * (index % 2));
  }
  return words;
}

}  // namespace

Random::Random(uint64_t seed) {
  const std::vector<uint64_t> words = SeedWords(seed);
  increment_high_ = words[2] << 1 | words[3] >> 63;
  increment_low_ = words[3] << 1 | 1;
  Advance();
  const uint64_t low = low_ + words[1];
  high_ += words[0] + (low < low_);
  low_ = low;
  Advance();
}

void Random::Advance() {
  const uint64_t high = HighProduct(low_, kMultiplierLow) + high_ * kMultiplierLow + low_ * kMultiplierHigh;
  const uint64_t product = low_ * kMultiplierLow;
  low_ = product + increment_low_;
  high_ = high + increment_high_ + (low_ < product);
}

double Random::Next() {
  Advance();
  const uint64_t folded = high_ ^ low_;
  const unsigned turn = static_cast<unsigned>(high_ >> 58);
  const uint64_t bits = folded >> turn | folded << ((64 - turn) & 63);
  return static_cast<double>(bits >> 11) / 9007199254740992.0;
}

uint64_t FreshSeed() { return std::random_device{}(); }

}  // namespace kerasformer
