#include <algorithm>

#include "decoding/decoding.hpp"
#include "kerasformer/errors.hpp"

namespace kerasformer {
namespace {

constexpr int kDefaultNewTokens = 20;
constexpr size_t kMargin = 16;  // additional tokens that are decoded, because some tokens have no text

// The first token that the decoder of an encoder-decoder reads.
int DecoderStart(const StepModel& model, const GenerationConfig& config) {
  const auto start = config.decoder_start_token_id ? config.decoder_start_token_id : config.bos_token_id;
  if (start && *start < model.vocab_size()) return *start;
  throw GenerationError("an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, from 0 to " +
                        std::to_string(model.vocab_size() - 1) + ". Received: " + (start ? std::to_string(*start) : "None") +
                        ". Pass it to the call or set it in generation_config.json.");
}

void CheckForced(const StepModel& model, const GenerationConfig& config) {
  std::vector<int> forced = config.forced_eos_token_id;
  if (config.forced_bos_token_id) forced.push_back(*config.forced_bos_token_id);
  if (std::all_of(forced.begin(), forced.end(), [&](int token) { return token < model.vocab_size(); })) return;
  throw GenerationError("forced tokens must be from 0 to " + std::to_string(model.vocab_size() - 1) + ". Received: " +
                        Json(forced).Shown() + ". Set forced_bos_token_id and forced_eos_token_id to tokens of this model.");
}

// Greedy search and sampling, one token at a time.
Generated Search(const Plan& plan) {
  Random random(plan.config.seed ? *plan.config.seed : FreshSeed());
  History history{plan.prefix, plan.prefix.size(), plan.prompt};
  State state = plan.model.Start(plan.prompt);
  std::string reason;
  for (int count = 0; count < *plan.config.max_new_tokens && reason.empty(); ++count) {
    auto [logits, next] = plan.model.Step(history.ids.back(), std::move(state));
    state = std::move(next);
    const int token = Choose(ApplyRules(history, std::move(logits), plan.config), plan.config, [&] { return random.Next(); });
    history.ids.push_back(token);
    plan.controls.on_token(token);
    reason = plan.EndOf(history);
  }
  return {{history.ids.begin() + history.width, history.ids.end()}, reason.empty() ? plan.last : reason};
}

}  // namespace

std::string Plan::EndOf(const History& history) const {
  const auto& ends = config.eos_token_id;
  if (std::count(ends.begin(), ends.end(), history.ids.back())) return "eos";
  if (!config.stop_strings.empty() && CompletesString(config.stop_strings, history, controls.decode)) return "stop";
  if (controls.cancelled()) return "cancelled";
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started;
  return config.max_time && passed.count() > *config.max_time ? "time" : "";
}

bool CompletesString(const std::vector<std::string>& strings, const History& history,
                     const std::function<std::string(const std::vector<int>&)>& decode) {
  // A token with text has at least one byte, so it is enough to decode the end of the row.
  size_t longest = 0;
  for (const std::string& string : strings) longest = std::max(longest, string.size());
  std::vector<int> end(history.ids.end() - std::min(longest + kMargin, history.ids.size()), history.ids.end());
  std::string text = decode(end);
  if (text.rfind("\uFFFD", 0) == 0) {
    // The text starts inside a character, which may make a whole run of bytes unreadable.
    end = history.ids;
    text = decode(end);
  }
  // A string that is complete before the first new token does not count.
  const size_t old = end.size() > history.NumNew() ? end.size() - history.NumNew() : 0;
  size_t known = 0;
  if (old) {
    const std::string before = decode({end.begin(), end.begin() + old});
    while (known < std::min(before.size(), text.size()) && before[known] == text[known]) ++known;
  }
  return std::any_of(strings.begin(), strings.end(), [&](const std::string& string) {
    return text.find(string, known >= string.size() ? known - string.size() + 1 : 0) != std::string::npos;
  });
}

Generated Generate(StepModel& model, const std::vector<int>& prompt, GenerationConfig config, const Controls& controls) {
  const std::vector<int> prefix = model.is_encoder_decoder() ? std::vector<int>{DecoderStart(model, config)} : prompt;
  CheckForced(model, config);
  const int width = static_cast<int>(prefix.size());
  const int requested = config.max_new_tokens ? *config.max_new_tokens : config.max_length ? *config.max_length - width : kDefaultNewTokens;
  if (requested < 1) {
    throw GenerationError("max_length includes the prompt and must exceed its length. Received: max_length=" +
                          std::to_string(config.max_length.value_or(0)) + " for a prompt of " + std::to_string(width) +
                          " tokens. Set max_new_tokens instead.");
  }
  const int room = model.capacity() - width;
  if (room < 1) {
    throw CapacityError("the prompt leaves no room for a new token. Expected at most " + std::to_string(model.capacity() - 1) +
                            " tokens. Received: " + std::to_string(width) +
                            ". Shorten the prompt, or load or export the model with a larger capacity.",
                        model.capacity() - 1, width);
  }
  config.min_new_tokens = config.min_new_tokens ? *config.min_new_tokens : std::max(config.min_length - width, 0);
  config.max_new_tokens = std::min(requested, room);
  const Plan plan{model, prompt, prefix, config, requested <= room ? "length" : "capacity", controls};
  if (config.num_beams == 1) return Search(plan);
  Generated result = BeamSearch(plan);
  for (const int token : result.tokens) controls.on_token(token);
  return result;
}

}  // namespace kerasformer
