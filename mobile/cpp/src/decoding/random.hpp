// The random numbers of NumPy's `default_rng(seed)`, so that a seed gives the same text as in Python.
#pragma once

#include <cstdint>

namespace kerasformer {

// A stream of numbers in [0, 1).
// References: O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
// Generation" (PCG64, XSL-RR output); O'Neill 2015, "Developing a seed_seq Alternative", as NumPy's `SeedSequence`
// implements it.
class Random {
 public:
  explicit Random(uint64_t seed);

  // The next number, with 53 random bits.
  double Next();

 private:
  void Advance();

  // Numbers of 128 bits, which C++ has not, as two halves.
  uint64_t high_ = 0, low_ = 0, increment_high_ = 0, increment_low_ = 0;
};

// A seed that differs at each call.
uint64_t FreshSeed();

}  // namespace kerasformer
