#include "engines/models.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerasformer/errors.hpp"

namespace kerasformer {
namespace {

constexpr int kUnlimited = std::numeric_limits<int>::max();

// The id that fills the rest of a text's ids: that of padding, if it is a token of the texts that the model reads.
int PaddingOf(const Json& info) {
  const int64_t padding = info.Int("pad_token_id", 0), size = info.Int("vocab_size", 0);
  return static_cast<int>(size && padding >= size ? 0 : padding);
}

// The shortest signature for a number of tokens.
const Signature& Smallest(const std::vector<const Signature*>& signatures, size_t length, const std::string& what) {
  for (const Signature* signature : signatures) {
    if (!signature->tokens || *signature->tokens >= static_cast<int>(length)) return *signature;
  }
  if (signatures.empty()) throw BundleError("The bundle has no signature that reads a " + what + ". Export the model again");
  const int most = *signatures.back()->tokens;
  throw CapacityError("The " + what + " must have at most " + std::to_string(most) + " tokens. Received: " + std::to_string(length) +
                          ". Shorten the " + what,
                      most, length);
}

using Values = std::map<std::string, std::vector<int64_t>>;  // by kind

// Tensors of integers for the inputs of some kinds; kinds that the signature does not take are omitted. Lists that are shorter
// than a static dimension are padded.
void Add(const Signature& signature, const Values& values, int padding, Tensors& inputs) {
  for (const TensorInfo& info : signature.inputs) {
    const auto found = values.find(info.kind);
    if (found == values.end()) continue;
    Tensor tensor;
    tensor.integers = found->second;
    if (!info.shape.empty() && info.shape.back() > static_cast<int64_t>(tensor.integers.size())) {
      tensor.integers.resize(info.shape.back(), info.kind == "ids" ? padding : info.fill);
    }
    const auto size = static_cast<int64_t>(tensor.integers.size());
    tensor.shape = info.shape.size() == 1 ? std::vector<int64_t>{size} : std::vector<int64_t>{1, size};
    inputs[info.name] = std::move(tensor);
  }
}

bool IsCache(const TensorInfo& info) { return info.kind == "key" || info.kind == "value" || info.kind == "state"; }
bool IsCrossCache(const TensorInfo& info) { return info.kind == "cross_key" || info.kind == "cross_value"; }

std::vector<std::string> Names(const std::vector<TensorInfo>& tensors, bool (*wanted)(const TensorInfo&)) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) {
    if (wanted(tensor)) names.push_back(tensor.name);
  }
  return names;
}

// A cache of zeros. Keys and values of a length that is not fixed are empty.
Tensor Zeros(const TensorInfo& info) {
  Tensor tensor;
  int64_t size = 1;
  for (size_t axis = 0; axis < info.shape.size(); ++axis) {
    const int64_t length = info.shape[axis] >= 0 ? info.shape[axis] : axis == 0 ? 1 : 0;
    tensor.shape.push_back(length);
    size *= length;
  }
  tensor.floats.resize(size);
  return tensor;
}

// The state of a text after the tokens so far.
struct TextState {
  Tensors caches;
  std::shared_ptr<const Tensors> memory;  // what the decoder reads of an encoded text
  std::vector<int64_t> memory_mask;
  int memory_length = 0;
  int position = 0;  // number of tokens in the caches
};

// What all generating models have in common.
class BundleStepModel : public StepModel {
 public:
  BundleStepModel(Engine& engine, const Manifest& manifest, const Signature& decode)
      : engine_(engine), manifest_(manifest), decode_(decode), padding_(PaddingOf(manifest.info)) {
    const TensorInfo* logits = decode.Output("logits");
    if (!logits) throw BundleError("A step with logits was expected. Received: " + decode.name + ". Export the model again");
    logits_ = logits->name;
    vocab_size_ = static_cast<int>(logits->shape.back());
  }

  bool is_encoder_decoder() const override { return manifest_.info.Bool("is_encoder_decoder", false); }
  int capacity() const override { return capacity_; }
  int vocab_size() const override { return vocab_size_; }

  State Start(const std::vector<int>& ids) override {
    TextState state;
    if (is_encoder_decoder()) Encode(ids, state);
    for (const TensorInfo& input : decode_.inputs) {
      if (IsCache(input)) state.caches[input.name] = Zeros(input);
    }
    if (!is_encoder_decoder()) {
      CheckRoom(static_cast<int>(ids.size()));
      Prefill({ids.begin(), ids.end() - 1}, state);
    }
    return std::make_shared<TextState>(std::move(state));
  }

  std::pair<Logits, State> Step(int token, State state) override {
    const auto before = std::static_pointer_cast<const TextState>(std::move(state));
    CheckRoom(before->position + 1);
    // A state that nothing else refers to gives its caches away.
    TextState next = before.use_count() == 1 ? std::move(const_cast<TextState&>(*before)) : *before;
    Logits logits = Read({token}, next, true);
    return {std::move(logits), std::make_shared<TextState>(std::move(next))};
  }

 protected:
  // Encodes a text for the decoder.
  virtual void Encode(const std::vector<int>& ids, TextState& state) = 0;

  // Reads tokens of a prompt.
  virtual void Prefill(const std::vector<int>& ids, TextState& state) = 0;

  // Reads tokens and replaces the caches; returns the logits after the last token if they are wanted.
  virtual Logits Read(const std::vector<int>& ids, TextState& state, bool wanted) = 0;

  // Runs a signature on values and on the caches, which it replaces.
  Logits Run(const Signature& signature, const Values& values, TextState& state, bool wanted) {
    Tensors inputs = std::move(state.caches);
    if (state.memory) inputs.insert(state.memory->begin(), state.memory->end());
    Add(signature, values, padding_, inputs);
    Tensors outputs = engine_.Run(signature, std::move(inputs), Names(signature.outputs, IsCache));
    state.caches.clear();
    for (const TensorInfo& output : signature.outputs) {
      if (IsCache(output)) state.caches[output.continues.empty() ? output.name : output.continues] = std::move(outputs.at(output.name));
    }
    if (!wanted) return {};
    Logits logits = std::move(outputs.at(logits_).floats);
    logits.erase(logits.begin(), logits.end() - vocab_size_);
    return logits;
  }

  void CheckRoom(int length) const {
    if (length <= capacity_) return;
    throw CapacityError("The model holds " + std::to_string(capacity_) + " tokens, including the prompt. Received: " +
                            std::to_string(length) + ". Shorten the prompt, request fewer tokens, or export with a larger capacity",
                        capacity_, length);
  }

  Engine& engine_;
  const Manifest& manifest_;
  const Signature& decode_;
  const int padding_;
  int capacity_ = 0, vocab_size_ = 0;

 private:
  std::string logits_;
};

// TFLite files have static shapes, and a signature for each length. Slots after those that are filled may have any content.
class StaticStepModel : public BundleStepModel {
 public:
  StaticStepModel(Engine& engine, const Manifest& manifest, std::vector<const Signature*> steps)
      : BundleStepModel(engine, manifest, *steps.back()), steps_(std::move(steps)), prefills_(manifest.OfRole("prefill")) {
    const auto cache = std::find_if(decode_.inputs.begin(), decode_.inputs.end(), IsCache);
    if (cache == decode_.inputs.end()) throw BundleError("A step with caches was expected. Received: " + decode_.name);
    capacity_ = manifest.capacity ? *manifest.capacity : static_cast<int>(cache->shape[2]);
  }

  // The steps of one text, in ascending order of the number of slots to which they attend.
  static std::vector<const Signature*> Steps(const Manifest& manifest) {
    std::vector<const Signature*> steps;
    for (const Signature* step : manifest.OfRole("decode")) {
      if (step->rows == 1) steps.push_back(step);
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Signature* one, const Signature* other) {
      return one->cache_length.value_or(kUnlimited) < other->cache_length.value_or(kUnlimited);
    });
    return steps;
  }

 protected:
  void Encode(const std::vector<int>& ids, TextState& state) override {
    const Signature& encode = Smallest(manifest_.OfRole("encode"), ids.size(), "input");
    const std::vector<int64_t> ones(ids.size(), 1);
    Tensors inputs;
    Add(encode, {{"ids", {ids.begin(), ids.end()}}, {"mask", ones}}, padding_, inputs);
    std::vector<std::string> kept;
    for (const TensorInfo& output : encode.outputs) kept.push_back(output.name);
    state.memory = std::make_shared<Tensors>(engine_.Run(encode, std::move(inputs), kept));
    state.memory_mask = ones;
    state.memory_length = static_cast<int>(ids.size());
  }

  // The last call may be up to two and a half times longer than the remaining tokens, because the additional slots are
  // overwritten before they are read. It must not exceed the cache: the runtime would then move the whole write back and
  // overwrite older tokens.
  void Prefill(const std::vector<int>& ids, TextState& state) override {
    for (size_t read = 0; read < ids.size();) {
      const int left = static_cast<int>(ids.size() - read);
      const Signature *whole = nullptr, *enough = nullptr;
      for (const Signature* prefill : prefills_) {
        const int length = *prefill->tokens;
        if (state.position + length > capacity_) continue;
        if (length <= left) whole = prefill;
        if (length >= left && !enough) enough = prefill;
      }
      const bool padded = enough && (2 * *enough->tokens <= 5 * left || !whole);
      const Signature* chosen = left == 1 ? nullptr : padded ? enough : whole;
      const size_t count = chosen ? std::min(*chosen->tokens, left) : 1;
      const std::vector<int> part(ids.begin() + read, ids.begin() + read + count);
      if (chosen) {
        RunSlots(*chosen, part, state, false);
      } else {
        Read(part, state, false);
      }
      read += count;
    }
  }

  Logits Read(const std::vector<int>& ids, TextState& state, bool wanted) override {
    // The step with the smallest sufficient cache length.
    const int reach = std::max(state.position + 1, state.memory_length);
    for (const Signature* step : steps_) {
      if (reach <= step->cache_length.value_or(kUnlimited)) return RunSlots(*step, ids, state, wanted);
    }
    return RunSlots(decode_, ids, state, wanted);
  }

 private:
  Logits RunSlots(const Signature& signature, const std::vector<int>& ids, TextState& state, bool wanted) {
    Values values = {{"ids", {ids.begin(), ids.end()}}, {"memory_mask", state.memory_mask}};
    const TensorInfo* input = signature.Input("ids");
    for (int64_t index = 0; index < (input ? input->shape.back() : 1); ++index) values["slots"].push_back(state.position + index);
    Logits logits = Run(signature, values, state, wanted);
    state.position += static_cast<int>(ids.size());
    return logits;
  }

  const std::vector<const Signature*> steps_, prefills_;
};

// ONNX files have dynamic lengths; each call returns longer caches.
class DynamicStepModel : public BundleStepModel {
 public:
  DynamicStepModel(Engine& engine, const Manifest& manifest, const Signature& decode) : BundleStepModel(engine, manifest, decode) {
    if (!manifest.capacity) throw BundleError("The manifest of a model that generates must have a capacity. Received: none");
    capacity_ = *manifest.capacity;
  }

 protected:
  // Encodes the text, and computes its keys and values once for all steps.
  void Encode(const std::vector<int>& ids, TextState& state) override {
    const int most = manifest_.encoder_capacity.value_or(kUnlimited);
    if (static_cast<int>(ids.size()) > most) {
      throw CapacityError("The model reads at most " + std::to_string(most) + " tokens. Received: " + std::to_string(ids.size()) +
                              ". Shorten the text",
                          most, ids.size());
    }
    const Signature& encode = Smallest(manifest_.OfRole("encode"), ids.size(), "input");
    const std::vector<int64_t> ones(ids.size(), 1);
    Tensors inputs;
    Add(encode, {{"ids", {ids.begin(), ids.end()}}, {"mask", ones}}, padding_, inputs);
    const std::string hidden = encode.outputs.at(0).name;
    const TensorInfo* memory = decode_.Input("memory");
    if (!memory) throw BundleError("A decoder that reads an encoded text was expected. Received: " + decode_.name);
    Tensors known;
    known[memory->name] = engine_.Run(encode, std::move(inputs), {hidden}).at(hidden);
    Add(decode_, {{"memory_mask", ones}}, padding_, known);
    inputs = known;
    for (const TensorInfo& input : decode_.inputs) {
      if (IsCache(input) || IsCrossCache(input)) inputs[input.name] = Zeros(input);
    }
    Add(decode_, {{"ids", {0}}, {"cache_length", {0}}}, padding_, inputs);
    Tensors outputs = engine_.Run(decode_, std::move(inputs), Names(decode_.outputs, [](const TensorInfo& info) {
      return IsCache(info) || IsCrossCache(info);
    }));
    for (const TensorInfo& output : decode_.outputs) {
      if (IsCrossCache(output)) known[output.continues] = std::move(outputs.at(output.name));
    }
    state.memory = std::make_shared<Tensors>(std::move(known));
  }

  void Prefill(const std::vector<int>& ids, TextState& state) override {
    if (!ids.empty()) Read(ids, state, false);
  }

  Logits Read(const std::vector<int>& ids, TextState& state, bool wanted) override {
    const int count = static_cast<int>(ids.size()), end = state.position + count;
    Values values = {{"ids", {ids.begin(), ids.end()}},
                     {"mask", std::vector<int64_t>(end, 1)},
                     {"cache_length", {state.position}},
                     // The runtime computes all outputs, and the logits of one token take the least time.
                     {"logits_start", {count - 1}}};
    for (int position = state.position; position < end; ++position) values["positions"].push_back(position);
    Logits logits = Run(decode_, values, state, wanted);
    state.position = end;
    return logits;
  }
};

// Whether an input of a kind has room for values.
bool Holds(const Signature& signature, const std::string& kind, const std::vector<int64_t>& values) {
  const TensorInfo* info = signature.Input(kind);
  return info && (info->shape.back() < 0 || info->shape.back() >= static_cast<int64_t>(values.size()));
}

// The scores `(W, K, C)` of spans that begin with one of the words, for the labels.
std::vector<float> WithoutPadding(const std::vector<float>& scores, const std::vector<int64_t>& shape, size_t words, size_t labels) {
  const size_t rows = words * shape.at(2), columns = shape.at(3);
  std::vector<float> kept;
  for (size_t row = 0; row < rows; ++row) kept.insert(kept.end(), scores.begin() + row * columns, scores.begin() + row * columns + labels);
  return kept;
}

}  // namespace

std::map<std::string, std::vector<float>> Forward(Engine& engine, const Manifest& manifest, const Encoding& tokens, const Slots& slots) {
  auto signatures = manifest.OfRole("forward");
  const bool finds_spans = !slots.words.empty();
  if (finds_spans) {
    const auto is_short = [&](const Signature* each) { return !Holds(*each, "word_slots", slots.words) || !Holds(*each, "label_slots", slots.labels); };
    signatures.erase(std::remove_if(signatures.begin(), signatures.end(), is_short), signatures.end());
  }
  const Signature& signature = Smallest(signatures, tokens.size(), "text");
  Tensors inputs;
  Add(signature,
      {{"ids", {tokens.ids.begin(), tokens.ids.end()}},
       {"mask", std::vector<int64_t>(tokens.size(), 1)},
       {"segments", {tokens.type_ids.begin(), tokens.type_ids.end()}},
       {"word_slots", slots.words},
       {"label_slots", slots.labels}},
      PaddingOf(manifest.info), inputs);
  // Outputs with an entry for each token have a third axis, except the scores of tokens as the start or end of an answer.
  const bool scores_tokens = manifest.info.String("task", "") == "question-answering";
  std::map<std::string, std::vector<float>> outputs;
  for (auto& [name, tensor] : engine.Run(signature, std::move(inputs), {})) {
    std::vector<float>& values = outputs[name] = std::move(tensor.floats);
    if (finds_spans) {
      values = WithoutPadding(values, tensor.shape, slots.words.size(), slots.labels.size());
    } else if (signature.tokens && (tensor.shape.size() > 2 || scores_tokens)) {
      values.resize(values.size() / *signature.tokens * tokens.size());
    }
    for (const float value : values) {
      if (std::isfinite(value)) continue;
      throw InputError("The model's output for a text is not finite. Expected: finite numbers. Received: " + std::to_string(value) +
                       " in " + name + ". Its weights are so large that sums of them exceed the range of its numbers, or the question "
                       "has more tokens than a model with global tokens accepts.");
    }
  }
  return outputs;
}

std::unique_ptr<StepModel> StepModelOf(Engine& engine, const Manifest& manifest) {
  if (manifest.format == "tflite") {
    auto steps = StaticStepModel::Steps(manifest);
    if (!steps.empty()) return std::make_unique<StaticStepModel>(engine, manifest, std::move(steps));
  } else {
    const auto steps = manifest.OfRole("decode");
    if (!steps.empty()) return std::make_unique<DynamicStepModel>(engine, manifest, *steps[0]);
  }
  return nullptr;
}

}  // namespace kerasformer
