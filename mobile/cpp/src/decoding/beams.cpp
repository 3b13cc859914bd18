// Beam search for one text, as in `kerasformer.generation.beams`: extends the `n` best hypotheses in parallel.
//
// At each step, the `n` running hypotheses have `n * V` continuations. The best `2n` of them are examined (more with several
// end tokens): those among the first `n` that end become finished hypotheses, and the best `n` that do not end continue. Of
// equal sums, the continuation of the better hypothesis comes first, then that with the lower token id. As in Python, sums
// are float32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "decoding/decoding.hpp"
#include "kerasformer/errors.hpp"

namespace kerasformer {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Tokens, the sum of their log-probabilities, and the state after all but the last one.
struct Hypothesis {
  std::vector<int> ids;
  float sum;
  State state;
};

// A hypothesis, with a sum for each next token.
struct Extended {
  const Hypothesis* before;
  State state;
  Logits sums;
};

Logits LogSoftmax(Logits logits) {
  const float greatest = logits[ArgMax(logits)];
  if (!std::isfinite(greatest)) {
    throw GenerationError("no token can be chosen. Expected a finite greatest logit in each row. Received: " +
                          std::string(std::isnan(greatest) ? "nan" : greatest < 0 ? "-inf" : "inf") +
                          ". Check that the model's weights contain no NaN.");
  }
  double total = 0;
  for (float& logit : logits) {
    logit -= greatest;
    total += static_cast<float>(std::exp(static_cast<double>(logit)));
  }
  const auto log = static_cast<float>(std::log(total));
  for (float& logit : logits) logit -= log;
  return logits;
}

// The best continuations of all hypotheses, in descending order.
std::vector<Hypothesis> Best(const std::vector<Extended>& extended, size_t count) {
  struct Candidate {
    float sum;
    const Extended* from;
    int token;
  };
  std::vector<Candidate> candidates;
  for (const Extended& each : extended) {
    Logits sorted = each.sums;
    const size_t kept = std::min(count, sorted.size());
    std::nth_element(sorted.begin(), sorted.end() - kept, sorted.end());
    const float least = *(sorted.end() - kept);
    for (size_t token = 0; token < each.sums.size(); ++token) {
      const float sum = each.sums[token];
      if (sum >= least && sum > kNever) candidates.push_back({sum, &each, static_cast<int>(token)});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& one, const auto& other) { return one.sum > other.sum; });
  std::vector<Hypothesis> best;
  for (size_t index = 0; index < std::min(count, candidates.size()); ++index) {
    const auto& [sum, from, token] = candidates[index];
    best.push_back({from->before->ids, sum, from->state});
    best.back().ids.push_back(token);
  }
  return best;
}

// The best finished hypotheses, best first, and whether better ones are possible.
class Finished {
 public:
  explicit Finished(const GenerationConfig& config) : config_(config) {}

  bool empty() const { return best_.empty(); }

  // Whether no further hypothesis is accepted.
  bool closed() const { return hopeless_ || (full() && config_.early_stopping); }

  Generated best() const { return best_.empty() ? Generated{{}, "none"} : best_[0].result; }

  // Adds a hypothesis if it is among the best.
  void Add(float sum, Generated result) {
    const float score = Score(sum, result.tokens.size());
    best_.push_back({score, std::move(result)});
    std::stable_sort(best_.begin(), best_.end(), [](const Entry& one, const Entry& other) { return one.score > other.score; });
    if (best_.size() > static_cast<size_t>(config_.num_beams)) best_.pop_back();
  }

  // Ends the search if the best running sum cannot exceed the worst finished score. A continuation can only lower the sum, but
  // the sum of a longer text is divided by more: "never" uses the greatest length, otherwise the current one is used.
  void LookAhead(float sum, size_t count) {
    const bool longest = config_.never_stops_early && config_.length_penalty > 0;
    const float worst = full() ? best_.back().score : kNever;
    const float possible = Score(sum, longest ? *config_.max_new_tokens : count);
    hopeless_ = hopeless_ || sum == kNever || possible <= worst;
  }

 private:
  struct Entry {
    float score;
    Generated result;
  };

  bool full() const { return best_.size() == static_cast<size_t>(config_.num_beams); }

  float Score(float sum, size_t length) const {
    return sum / static_cast<float>(std::pow(static_cast<double>(length), config_.length_penalty));
  }

  const GenerationConfig& config_;
  std::vector<Entry> best_;
  bool hopeless_ = false;
};

// Adds the hypotheses that end to `finished`, and returns those that continue.
std::vector<Hypothesis> Advance(const Plan& plan, Finished& finished, const std::vector<Extended>& extended, int count) {
  const auto& config = plan.config;
  const size_t beams = config.num_beams, width = plan.prefix.size();
  std::vector<Hypothesis> longer = Best(extended, std::max<size_t>(2, 1 + config.eos_token_id.size()) * beams);
  if (longer.empty() && finished.empty()) {
    throw GenerationError("no token can be chosen: rules exclude all of them. Check that the rules (suppress_tokens, ...) allow one.");
  }
  std::vector<Hypothesis> running;
  for (size_t rank = 0; rank < longer.size(); ++rank) {
    std::string reason = plan.EndOf({longer[rank].ids, width, plan.prompt});
    if (reason.empty() && count == config.max_new_tokens) reason = plan.last;
    if (reason.empty()) {
      if (running.size() < beams) running.push_back(std::move(longer[rank]));
    } else if (rank < beams) {
      finished.Add(longer[rank].sum, {{longer[rank].ids.begin() + width, longer[rank].ids.end()}, reason});
    }
  }
  finished.LookAhead(running.empty() ? kNever : running[0].sum, count);
  if (finished.closed()) running.clear();
  return running;
}

}  // namespace

Generated BeamSearch(const Plan& plan) {
  Finished finished(plan.config);
  std::vector<Hypothesis> running;
  running.push_back({plan.prefix, 0, plan.model.Start(plan.prompt)});
  for (int count = 1; !running.empty(); ++count) {
    std::vector<Extended> extended;
    for (const Hypothesis& hypothesis : running) {
      auto [logits, state] = plan.model.Step(hypothesis.ids.back(), hypothesis.state);
      Logits sums = ApplyRules({hypothesis.ids, plan.prefix.size(), plan.prompt}, LogSoftmax(std::move(logits)), plan.config);
      for (float& sum : sums) sum += hypothesis.sum;
      extended.push_back({&hypothesis, std::move(state), std::move(sums)});
    }
    running = Advance(plan, finished, extended, count);
  }
  return finished.best();
}

}  // namespace kerasformer
