#include <algorithm>
#include <cmath>
#include <map>

#include "kerasformer/errors.hpp"
#include "kerasformer/generation.hpp"
#include "text/closest.hpp"

namespace kerasformer {
namespace {

constexpr int64_t kMostBeams = 4096;

using Check = bool (*)(const Json&);

// Whether a value is valid, with the words that describe what is.
struct Kind {
  const char* expected;
  Check valid;
};

bool IsAtLeast(const Json& value, int64_t least) { return value.IsInteger() && value.AsInt() >= least; }

bool IsBetween(const Json& value, double low, double high) {
  return value.IsNumber() && low <= value.AsDouble() && value.AsDouble() <= high;
}

bool IsToken(const Json& value) { return IsAtLeast(value, 0) && value.AsInt() <= INT32_MAX; }

template <class Test>
bool AreAll(const Json& values, Test valid) {
  return values.IsArray() && std::all_of(values.AsArray().begin(), values.AsArray().end(), valid);
}

bool AreTokens(const Json& value) { return IsToken(value) || AreAll(value, IsToken); }

bool IsText(const Json& value) { return value.IsString() && !value.AsString().empty(); }

const Kind kFrom0 = {"an integer of at least 0", [](const Json& value) { return IsAtLeast(value, 0); }};
const Kind kFrom1 = {"an integer of at least 1", [](const Json& value) { return IsAtLeast(value, 1); }};
const Kind kBeams = {"an integer from 1 to 4096",
                     [](const Json& value) { return IsAtLeast(value, 1) && value.AsInt() <= kMostBeams; }};
const Kind kFlag = {"True or False", [](const Json& value) { return value.IsBool(); }};
const Kind kNumber = {"a finite number", [](const Json& value) { return value.IsNumber() && std::isfinite(value.AsDouble()); }};
const Kind kPositive = {"a number above 0",
                        [](const Json& value) { return value.IsNumber() && value.AsDouble() > 0 && std::isfinite(value.AsDouble()); }};
const Kind kShare = {"a number from 0 to 1", [](const Json& value) { return IsBetween(value, 0, 1); }};
// With smaller values, the divided logits would exceed float32.
const Kind kTemperature = {"0 (greedy search) or a number of at least 1e-06", [](const Json& value) {
                             return value.IsNumber() && (value.AsDouble() == 0 || (value.AsDouble() >= 1e-6 && std::isfinite(value.AsDouble())));
                           }};
const Kind kEarly = {"True, False or 'never'",
                     [](const Json& value) { return value.IsBool() || (value.IsString() && value.AsString() == "never"); }};
const Kind kToken = {"a token id", IsToken};
const Kind kTokens = {"a token id or a list of token ids", AreTokens};
const Kind kSequences = {"a list of non-empty lists of token ids", [](const Json& value) {
                           return AreAll(value, [](const Json& each) { return AreAll(each, IsToken) && !each.AsArray().empty(); });
                         }};
const Kind kTexts = {"a non-empty string or a list of non-empty strings",
                     [](const Json& value) { return IsText(value) || AreAll(value, IsText); }};

const std::map<std::string, Kind> kSettings = {
    {"max_new_tokens", kFrom1},
    {"max_length", kFrom1},
    {"min_new_tokens", kFrom0},
    {"min_length", kFrom0},
    {"do_sample", kFlag},
    {"num_beams", kBeams},
    {"length_penalty", kNumber},
    {"early_stopping", kEarly},
    {"temperature", kTemperature},
    {"top_k", kFrom0},
    {"top_p", kShare},
    {"min_p", kShare},
    {"seed", kFrom0},
    {"encoder_repetition_penalty", kPositive},
    {"repetition_penalty", kPositive},
    {"frequency_penalty", kNumber},
    {"presence_penalty", kNumber},
    {"no_repeat_ngram_size", kFrom0},
    {"encoder_no_repeat_ngram_size", kFrom0},
    {"bad_words_ids", kSequences},
    {"forced_bos_token_id", kToken},
    {"forced_eos_token_id", kTokens},
    {"suppress_tokens", kTokens},
    {"begin_suppress_tokens", kTokens},
    {"eos_token_id", kTokens},
    {"pad_token_id", kToken},
    {"bos_token_id", kToken},
    {"decoder_start_token_id", kToken},
    {"stop_strings", kTexts},
    {"max_time", kPositive},
};

// Settings that have an effect only on samples.
const std::vector<std::string> kSampling = {"temperature", "top_k", "top_p", "min_p", "seed"};

using Values = std::map<std::string, Json>;

void CheckName(const std::string& name) {
  if (kSettings.count(name)) return;
  std::vector<std::string> names;
  std::string listed;
  for (const auto& [known, kind] : kSettings) {
    names.push_back(known);
    listed += (listed.empty() ? "" : ", ") + known;
  }
  const auto near = Closest(name, names, 1);
  throw GenerationError(name + " is not a generation setting. " +
                        (near.empty() ? "Known names: " + listed + "." : "Did you mean " + near[0] + "?"));
}

bool Has(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found != values.end() && !found->second.IsNull();
}

std::vector<int> Tokens(const Values& values, const std::string& name) {
  return Has(values, name) ? values.at(name).Ints() : std::vector<int>();
}

void Read(const Values& values, const std::string& name, double& target) {
  if (Has(values, name)) target = values.at(name).AsDouble();
}

void Read(const Values& values, const std::string& name, int& target) {
  if (Has(values, name)) target = static_cast<int>(std::min<int64_t>(values.at(name).AsInt(), INT32_MAX));
}

template <class Number>
void Read(const Values& values, const std::string& name, std::optional<Number>& target) {
  if (!Has(values, name)) return;
  Number number{};
  Read(values, name, number);
  target = number;
}

GenerationConfig Checked(const Values& values) {
  for (const auto& [name, value] : values) {
    const Kind& kind = kSettings.at(name);
    if (!value.IsNull() && !kind.valid(value)) {
      throw GenerationError(name + " must be " + kind.expected + ". Received: " + name + "=" + value.Shown());
    }
  }
  GenerationConfig config;
  Read(values, "max_new_tokens", config.max_new_tokens);
  Read(values, "max_length", config.max_length);
  Read(values, "min_new_tokens", config.min_new_tokens);
  Read(values, "min_length", config.min_length);
  Read(values, "num_beams", config.num_beams);
  Read(values, "length_penalty", config.length_penalty);
  if (Has(values, "early_stopping")) {
    const Json& early = values.at("early_stopping");
    config.never_stops_early = early.IsString();
    config.early_stopping = early.IsBool() && early.AsBool();
  }
  Read(values, "temperature", config.temperature);
  Read(values, "top_k", config.top_k);
  Read(values, "top_p", config.top_p);
  Read(values, "min_p", config.min_p);
  if (Has(values, "seed")) config.seed = static_cast<uint64_t>(values.at("seed").AsInt());
  Read(values, "encoder_repetition_penalty", config.encoder_repetition_penalty);
  Read(values, "repetition_penalty", config.repetition_penalty);
  Read(values, "frequency_penalty", config.frequency_penalty);
  Read(values, "presence_penalty", config.presence_penalty);
  Read(values, "no_repeat_ngram_size", config.no_repeat_ngram_size);
  Read(values, "encoder_no_repeat_ngram_size", config.encoder_no_repeat_ngram_size);
  if (Has(values, "bad_words_ids")) {
    for (const Json& word : values.at("bad_words_ids").AsArray()) config.bad_words_ids.push_back(word.Ints());
  }
  Read(values, "forced_bos_token_id", config.forced_bos_token_id);
  Read(values, "pad_token_id", config.pad_token_id);
  Read(values, "bos_token_id", config.bos_token_id);
  Read(values, "decoder_start_token_id", config.decoder_start_token_id);
  config.forced_eos_token_id = Tokens(values, "forced_eos_token_id");
  config.suppress_tokens = Tokens(values, "suppress_tokens");
  config.begin_suppress_tokens = Tokens(values, "begin_suppress_tokens");
  config.eos_token_id = Tokens(values, "eos_token_id");
  if (Has(values, "stop_strings")) {
    const Json& strings = values.at("stop_strings");
    config.stop_strings = strings.IsString() ? std::vector<std::string>{strings.AsString()} : strings.Strings();
  }
  Read(values, "max_time", config.max_time);
  const bool changed = config.temperature != 1 || config.top_k != 0 || config.top_p != 1 || config.min_p ||
                       (config.seed && config.num_beams == 1);
  config.do_sample = Has(values, "do_sample") ? values.at("do_sample").AsBool() : changed;
  if (config.temperature == 0) {
    config.temperature = 1;
    config.do_sample = false;
  }
  return config;
}

}  // namespace

GenerationConfig Settle(const Settings& stored, const Settings& given) {
  Values values = {{"do_sample", false}};
  for (const auto& [name, value] : stored) {
    if (kSettings.count(name) && !value.IsNull()) values[name] = value;
  }
  Values changes;
  for (const auto& [name, value] : given) {
    CheckName(name);
    if (!changes.emplace(name, value).second) throw GenerationError(name + " is passed twice. Remove one of them.");
  }
  if (Has(changes, "max_length")) changes.emplace("max_new_tokens", Json());
  if (Has(changes, "min_length")) changes.emplace("min_new_tokens", Json());
  const Values& beams = Has(changes, "num_beams") ? changes : values;
  // A seed alone does not turn beams into samples.
  const bool single = !Has(beams, "num_beams") || !IsAtLeast(beams.at("num_beams"), 2);
  const bool samples = std::any_of(kSampling.begin(), kSampling.end(), [&](const std::string& name) {
    return Has(changes, name) && (name != "seed" || single);
  });
  if (samples) changes.emplace("do_sample", true);
  for (const auto& [name, value] : changes) values[name] = value;
  const GenerationConfig config = Checked(values);
  if (config.do_sample && config.num_beams > 1) {
    throw GenerationError("beam search with sampling is unsupported here. Received: num_beams=" + std::to_string(config.num_beams) +
                          " with sampling. Set num_beams to 1, or do_sample to false.");
  }
  return config;
}

std::vector<std::string> IgnoredSettings(const Settings& stored) {
  std::vector<std::string> names;
  for (const auto& [name, value] : stored) {
    if (!kSettings.count(name) && !value.IsNull()) names.push_back(name);
  }
  return names;
}

}  // namespace kerasformer
