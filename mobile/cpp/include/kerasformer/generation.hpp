// Generation settings, with the names, meanings and defaults of `kerasformer.GenerationConfig` in Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// The settings of a call by their names, such as `{{"max_new_tokens", 40}, {"top_p", 0.9}, {"seed", 1}}`. As in Python, a
// sampling setting (or a seed) without `do_sample` enables sampling, settings of the bundle apply unless they are given, and
// null restores a default.
using Settings = Json::Object;

// Checked settings.
struct GenerationConfig {
  std::optional<int> max_new_tokens, max_length, min_new_tokens;
  int min_length = 0;
  bool do_sample = false;
  int num_beams = 1;
  double length_penalty = 1;
  bool early_stopping = false, never_stops_early = false;  // the latter is "never"
  double temperature = 1, top_p = 1;
  int top_k = 0;
  std::optional<double> min_p;
  std::optional<uint64_t> seed;
  double encoder_repetition_penalty = 1, repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  int no_repeat_ngram_size = 0, encoder_no_repeat_ngram_size = 0;
  std::vector<std::vector<int>> bad_words_ids;
  std::optional<int> forced_bos_token_id, pad_token_id, bos_token_id, decoder_start_token_id;
  std::vector<int> forced_eos_token_id, suppress_tokens, begin_suppress_tokens, eos_token_id;
  std::vector<std::string> stop_strings;
  std::optional<double> max_time;  // in seconds
};

// Combines the settings of a bundle with those of a call, which take precedence.
// Throws `GenerationError` for an unknown name, an invalid value, or sampling with several beams.
GenerationConfig Settle(const Settings& stored, const Settings& given);

// The names of settings of a bundle that have an effect in Python but are unsupported here.
std::vector<std::string> IgnoredSettings(const Settings& stored);

}  // namespace kerasformer
