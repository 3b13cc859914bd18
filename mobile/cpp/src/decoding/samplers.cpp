// The order of operations and the float32 arithmetic are those of `kerasformer.generation.samplers`; references are there.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "decoding/decoding.hpp"
#include "kerasformer/errors.hpp"

namespace kerasformer {
namespace {

// Tokens that can be sampled, in the order of their ids.
struct Candidates {
  Logits logits;
  std::vector<int> tokens;
};

template <class Condition>
Candidates Keep(const Candidates& from, const Condition& condition) {
  Candidates kept;
  for (size_t index = 0; index < from.logits.size(); ++index) {
    if (!condition(index)) continue;
    kept.logits.push_back(from.logits[index]);
    kept.tokens.push_back(from.tokens[index]);
  }
  return kept;
}

// Unnormalized probabilities, scaled so that the greatest is 1.
std::vector<float> Weights(const Logits& logits) {
  const float greatest = logits[ArgMax(logits)];
  std::vector<float> weights;
  for (const float logit : logits) weights.push_back(static_cast<float>(std::exp(static_cast<double>(logit - greatest))));
  return weights;
}

double Sum(const std::vector<float>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// The `k` most probable tokens, including ties.
Candidates TopK(Candidates from, size_t k) {
  if (k >= from.logits.size()) return from;
  Logits sorted = from.logits;
  std::nth_element(sorted.begin(), sorted.end() - k, sorted.end());
  const float least = *(sorted.end() - k);
  return Keep(from, [&](size_t index) { return from.logits[index] >= least; });
}

// The nucleus: the smallest set of most probable tokens with total probability `p`; of equally probable tokens, the last come
// first. Tokens with probabilities below `(1 - p) / V` have less than `1 - p` together, and need not be sorted.
Candidates TopP(const Candidates& from, double p) {
  const std::vector<float> all = Weights(from.logits);
  const double total = Sum(all), size = static_cast<double>(all.size());
  Candidates probable = Keep(from, [&](size_t index) { return all[index] >= (1 - p) * total / size; });
  if (probable.logits.empty()) probable = from;
  const Logits& logits = probable.logits;
  const std::vector<float> weights = Weights(logits);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t one, size_t other) {
    return logits[one] != logits[other] ? logits[one] > logits[other] : one > other;
  });
  std::vector<bool> nucleus(logits.size());
  double mass = 0;
  for (const size_t index : order) {
    nucleus[index] = true;
    mass += weights[index];
    if (mass >= p * total) break;
  }
  return Keep(probable, [&](size_t index) { return nucleus[index]; });
}

// Tokens with at least `p` times the probability of the best one.
Candidates MinP(const Candidates& from, double p) {
  const float greatest = from.logits[ArgMax(from.logits)], least = static_cast<float>(std::log(p));
  return Keep(from, [&](size_t index) { return from.logits[index] - greatest >= least; });
}

// An index in proportion to the weights, by inverting the cumulative distribution.
size_t SampledIndex(const std::vector<float>& weights, double uniform) {
  const double target = uniform * Sum(weights);
  double sum = 0;
  size_t last = 0;
  for (size_t index = 0; index < weights.size(); ++index) {
    sum += weights[index];
    if (sum > target) return index;
    if (weights[index] > 0) last = index;
  }
  return last;  // reached only because of rounding
}

}  // namespace

size_t ArgMax(const Logits& values) {
  size_t best = 0;
  for (size_t index = 0; index < values.size(); ++index) {
    if (std::isnan(values[index])) return index;
    if (values[index] > values[best]) best = index;
  }
  return best;
}

int Choose(const Logits& logits, const GenerationConfig& config, const std::function<double()>& uniform) {
  const size_t best = ArgMax(logits);
  if (!std::isfinite(logits[best])) {
    const std::string shown = std::isnan(logits[best]) ? "nan" : logits[best] < 0 ? "-inf" : "inf";
    throw GenerationError("no token can be chosen. Expected a finite greatest logit in each row. Received: " + shown +
                          ". Check that the rules (suppress_tokens, ...) allow at least one token and that the model's weights "
                          "contain no NaN.");
  }
  if (!config.do_sample) return static_cast<int>(best);
  Candidates candidates{logits, std::vector<int>(logits.size())};
  std::iota(candidates.tokens.begin(), candidates.tokens.end(), 0);
  if (config.temperature != 1) {
    for (float& logit : candidates.logits) logit /= static_cast<float>(config.temperature);
  }
  if (config.top_k) candidates = TopK(std::move(candidates), config.top_k);
  if (config.top_p < 1) candidates = TopP(candidates, config.top_p);
  if (config.min_p) candidates = MinP(candidates, *config.min_p);
  return candidates.tokens[SampledIndex(Weights(candidates.logits), uniform())];
}

}  // namespace kerasformer
