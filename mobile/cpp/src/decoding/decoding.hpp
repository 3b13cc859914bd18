// Chooses the tokens of a text: rules, greedy search, sampling and beam search, with the results of `kerasformer.generation`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/random.hpp"
#include "kerasformer/generation.hpp"

namespace kerasformer {

using Logits = std::vector<float>;

// The tokens so far.
struct History {
  std::vector<int> ids;     // all tokens: the prompt (for an encoder-decoder, the start token) and the new tokens
  size_t width;             // number of tokens before the first new one
  std::vector<int> prompt;  // the prompt; for an encoder-decoder, the encoder's input

  size_t NumNew() const { return ids.size() - width; }
};

// The state of a text after some tokens, such as its caches. States are never changed, so that several hypotheses can
// continue from one.
using State = std::shared_ptr<const void>;

// A generating model.
class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual bool is_encoder_decoder() const = 0;
  virtual int capacity() const = 0;    // number of slots of the decoder's cache, for the prompt and the new tokens
  virtual int vocab_size() const = 0;  // number of logits

  // Reads all but the last token of a prompt, or encodes a text.
  virtual State Start(const std::vector<int>& ids) = 0;

  // Reads one more token; returns the logits of the next one. The state may be used up if nothing else refers to it.
  virtual std::pair<Logits, State> Step(int token, State state) = 0;
};

// Returns the logits after all rules that the settings activate.
Logits ApplyRules(const History& history, Logits logits, const GenerationConfig& config);

// Chooses a token. Throws `GenerationError` if rules exclude all tokens, or for logits that are not finite.
int Choose(const Logits& logits, const GenerationConfig& config, const std::function<double()>& uniform);

// The index of the first greatest value, or of the first NaN if there is one.
size_t ArgMax(const Logits& values);

// Whether the last new token completes one of the strings, which may span several tokens and start in the prompt.
bool CompletesString(const std::vector<std::string>& strings, const History& history,
                     const std::function<std::string(const std::vector<int>&)>& decode);

// What may end a text besides its settings, and what is told about it.
struct Controls {
  std::function<void(int token)> on_token = [](int) {};
  std::function<bool()> cancelled = [] { return false; };
  std::function<std::string(const std::vector<int>&)> decode;  // to find stop strings
};

// New tokens, with the end token, and why they ended: "eos", "stop", "length", "capacity", "time" or "cancelled".
struct Generated {
  std::vector<int> tokens;
  std::string reason;
};

// Generates a text. Throws `CapacityError` if the prompt leaves no room for a new token, and `GenerationError`.
Generated Generate(StepModel& model, const std::vector<int>& prompt, GenerationConfig config, const Controls& controls);

// A prepared run; see `Generate`.
struct Plan {
  StepModel& model;
  std::vector<int> prompt;
  std::vector<int> prefix;   // the decoder's tokens before the first new one
  GenerationConfig config;   // with `max_new_tokens` and `min_new_tokens`
  std::string last;          // the reason if the text ends after `max_new_tokens`
  const Controls& controls;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  // Why a text ends after its last token, or "".
  std::string EndOf(const History& history) const;
};

// Beam search for one text; the reason is "none" if rules exclude every hypothesis.
Generated BeamSearch(const Plan& plan);

}  // namespace kerasformer
