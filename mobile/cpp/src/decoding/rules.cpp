#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "decoding/decoding.hpp"

namespace kerasformer {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void Forbid(Logits& logits, const std::vector<int>& tokens) {
  // Ids beyond the vocabulary cannot be generated anyway.
  for (const int token : tokens) {
    if (static_cast<size_t>(token) < logits.size()) logits[token] = kNever;
  }
}

// Allows only some tokens.
void Force(Logits& logits, const std::vector<int>& tokens) {
  std::fill(logits.begin(), logits.end(), kNever);
  for (const int token : tokens) logits[token] = 0;
}

// Replaces positive logits by `logit / penalty` and negative ones by `logit * penalty`, once for each token.
void Penalize(Logits& logits, const std::vector<int>& tokens, double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const int token : std::set<int>(tokens.begin(), tokens.end())) {
    if (static_cast<size_t>(token) >= logits.size()) continue;
    logits[token] = logits[token] < 0 ? logits[token] * factor : logits[token] / factor;
  }
}

void PenalizeFrequency(Logits& logits, const History& history, const GenerationConfig& config) {
  std::map<int, int> counts;
  for (size_t index = history.width; index < history.ids.size(); ++index) ++counts[history.ids[index]];
  for (const auto& [token, count] : counts) {
    logits[token] -= static_cast<float>(count * config.frequency_penalty + config.presence_penalty);
  }
}

// Whether a text ends with some tokens.
bool EndsWith(const std::vector<int>& ids, std::vector<int>::const_iterator first, std::vector<int>::const_iterator last) {
  const auto size = static_cast<size_t>(last - first);
  return ids.size() >= size && std::equal(first, last, ids.end() - size);
}

// Forbids tokens that, after `previous`, would complete an n-gram that occurs in `tokens`.
void ForbidRepeats(Logits& logits, const std::vector<int>& tokens, const std::vector<int>& previous, size_t size) {
  for (size_t last = size - 1; last < tokens.size(); ++last) {
    const auto end = tokens.begin() + last;
    if (EndsWith(previous, end - (size - 1), end)) Forbid(logits, {tokens[last]});
  }
}

// Forbids tokens that would complete a bad word, except for a word that is only an end token.
void ForbidBadWords(Logits& logits, const std::vector<int>& ids, const GenerationConfig& config) {
  const auto& ends = config.eos_token_id;
  for (const std::vector<int>& word : config.bad_words_ids) {
    const bool is_end = word.size() == 1 && std::count(ends.begin(), ends.end(), word[0]);
    if (!is_end && EndsWith(ids, word.begin(), word.end() - 1)) Forbid(logits, {word.back()});
  }
}

}  // namespace

// The order of the rules is that of `kerasformer.generation.rules`; references are there.
Logits ApplyRules(const History& history, Logits logits, const GenerationConfig& config) {
  if (config.encoder_repetition_penalty != 1) Penalize(logits, history.prompt, 1 / config.encoder_repetition_penalty);
  if (config.repetition_penalty != 1) Penalize(logits, history.ids, config.repetition_penalty);
  if (config.frequency_penalty != 0 || config.presence_penalty != 0) PenalizeFrequency(logits, history, config);
  if (config.no_repeat_ngram_size) ForbidRepeats(logits, history.ids, history.ids, config.no_repeat_ngram_size);
  if (config.encoder_no_repeat_ngram_size) ForbidRepeats(logits, history.prompt, history.ids, config.encoder_no_repeat_ngram_size);
  ForbidBadWords(logits, history.ids, config);
  const auto count = static_cast<int>(history.NumNew());
  if (count < config.min_new_tokens.value_or(0)) Forbid(logits, config.eos_token_id);
  if (config.forced_bos_token_id && history.ids.size() == 1) Force(logits, {*config.forced_bos_token_id});
  if (!config.forced_eos_token_id.empty() && count + 1 == config.max_new_tokens) Force(logits, config.forced_eos_token_id);
  Forbid(logits, config.suppress_tokens);
  const int first = history.width == 1 && config.forced_bos_token_id;
  if (count == first) Forbid(logits, config.begin_suppress_tokens);
  return logits;
}

}  // namespace kerasformer
