// Runs a bundle on token ids with LiteRT's `CompiledModel`: an encoder, a decoder or an encoder-decoder.
//
//     main FOLDER ID...                     FOLDER has kerasformer.json and the model file
//     main FOLDER --language CODE ID...     for the language of a translation, such as deu_Latn
//
// All names, sizes and ids are read from kerasformer.json; bundle.hpp beside this file does that.

#include "bundle.hpp"

#include "litert/cc/litert_compiled_model.h"
#include "litert/cc/litert_environment.h"
#include "litert/cc/litert_tensor_buffer.h"

using Buffers = litert::FlatHashMap<litert::StringView, litert::TensorBuffer>;

// Returns the value of a result of LiteRT, or throws its error.
template <class T>
T Value(litert::Expected<T> result) {
  if (!result) throw std::runtime_error(std::string(result.Error().Message()));
  return std::move(*result);
}

inline void Check(litert::Expected<void> result) {
  if (!result) throw std::runtime_error(std::string(result.Error().Message()));
}

class Model {
 public:
  explicit Model(const Bundle& bundle)
      : bundle_(bundle),
        environment_(Value(litert::Environment::Create(std::vector<litert::Environment::Option>{}))),
        model_(Value(litert::CompiledModel::Create(environment_, bundle.folder + "/" + File(bundle),
                                                   litert::HwAccelerators::kCpu))) {}

  // Returns the values of the first output of an encoder for the token ids of a text.
  std::vector<float> Run(const Ids& ids, const Ids& segments = {}) {
    Buffers outputs;
    const Signature& signature = Read("forward", ids, segments, outputs);
    return Values(outputs.at(signature.outputs.at(0).name));
  }

  // Continues the token ids of a prompt by greedy search; returns at most `count` new ids.
  Ids Continue(const Ids& prompt, size_t count = 40) {
    CheckLength("prompt", prompt.size(), bundle_.capacity);
    const Signature& decode = bundle_.Decode();
    const Tensors names = OfKind(decode.inputs, {"key", "value", "state"});
    const Buffers caches = Zeros(decode, names), logits = Logits(decode);
    const auto step = [&](const Signature& signature, const Ids& tokens, size_t position) {
      Ids slots;
      for (size_t i = 0; i < tokens.size(); ++i) slots.push_back(position + i);
      Buffers inputs, outputs;
      Add(signature, Find(signature.inputs, "ids"), tokens, inputs);
      Add(signature, Find(signature.inputs, "slots"), slots, inputs);
      Share(caches, inputs);
      Share(caches, outputs);
      if (&signature == &decode) Share(logits, outputs);
      Check(model_.Run(signature.name, inputs, outputs));
    };
    size_t position = 0;
    const auto prefills = bundle_.OfRole("prefill");
    for (auto prefill = prefills.rbegin(); prefill != prefills.rend(); ++prefill) {
      const size_t length = prefill->get().tokens;
      for (; prompt.size() - 1 - position >= length; position += length) {
        step(*prefill, Ids(prompt.begin() + position, prompt.begin() + position + length), position);
      }
    }
    for (; position + 1 < prompt.size(); ++position) step(decode, {prompt[position]}, position);
    Ids generated;
    int64_t token = prompt.back();
    while (generated.size() < count && position < bundle_.capacity) {
      step(decode, {token}, position++);
      token = bundle_.Best(Scores(decode, logits));
      if (bundle_.IsEnd(token)) break;
      generated.push_back(token);
    }
    return generated;
  }

  // Generates at most `count` token ids from those of a text, with the prefix of the task and the end token.
  Ids Rewrite(const Ids& ids, const std::string& language = "", size_t count = 40) {
    const auto [start, first] = bundle_.FirstTokens(language);
    const Signature& decode = bundle_.Decode();
    const Tensors names = OfKind(decode.inputs, {"key", "value", "state"});
    const Tensors cross_names = OfKind(decode.inputs, {"cross_key", "cross_value"});
    Buffers cross_caches = Zeros(decode, cross_names);
    Read("encode", ids, {}, cross_caches);
    const Buffers caches = Zeros(decode, names), logits = Logits(decode);
    Ids mask(ids.size(), 1), generated;
    mask.resize(bundle_.encoder_capacity, 0);
    int64_t token = start;
    while (generated.size() < std::min(count, bundle_.capacity)) {
      Buffers inputs, outputs;
      Add(decode, Find(decode.inputs, "ids"), {token}, inputs);
      Add(decode, Find(decode.inputs, "slots"), {static_cast<int64_t>(generated.size())}, inputs);
      Add(decode, Find(decode.inputs, "memory_mask"), mask, inputs);
      Share(cross_caches, inputs);
      Share(caches, inputs);
      Share(caches, outputs);
      Share(logits, outputs);
      Check(model_.Run(decode.name, inputs, outputs));
      token = generated.empty() && first ? *first : bundle_.Best(Scores(decode, logits));
      if (bundle_.IsEnd(token)) break;
      generated.push_back(token);
    }
    return generated;
  }

 private:
  static std::string File(const Bundle& bundle) {
    const auto steps = bundle.OfRole("decode");
    return (steps.empty() ? bundle.OfRole("forward") : steps).at(0).get().file;
  }

  // Runs the shortest signature of a role that has room for a text; creates the outputs that have no buffer.
  const Signature& Read(const std::string& role, const Ids& ids, const Ids& segments, Buffers& outputs) {
    const auto signatures = bundle_.OfRole(role);
    CheckLength("text", ids.size(), signatures.back().get().tokens);
    const Signature& signature = *std::find_if(signatures.begin(), signatures.end(),
                                               [&](const Signature& one) { return one.tokens >= ids.size(); });
    Buffers inputs;
    for (const TensorInfo& tensor : signature.inputs) {
      const bool is_ids = tensor.kind == "ids";
      Ids values = is_ids ? ids : tensor.kind == "segments" ? segments : Ids();
      if (tensor.kind == "mask") values.assign(ids.size(), 1);
      values.resize(signature.tokens, is_ids ? bundle_.padding : tensor.fill);
      Add(signature, tensor, values, inputs);
    }
    for (const TensorInfo& tensor : signature.outputs) {
      if (outputs.find(tensor.name) != outputs.end()) continue;
      outputs.emplace(tensor.name, Value(model_.CreateOutputBuffer(signature.name, tensor.name)));
    }
    Check(model_.Run(signature.name, inputs, outputs));
    return signature;
  }

  // Adds an input buffer with these values.
  void Add(const Signature& signature, const TensorInfo& tensor, const Ids& values, Buffers& inputs) {
    auto buffer = Value(model_.CreateInputBuffer(signature.name, tensor.name));
    Check(buffer.Write<int32_t>(std::vector<int32_t>(values.begin(), values.end())));
    inputs.emplace(tensor.name, std::move(buffer));
  }

  // Returns buffers of zeros for inputs of a step.
  Buffers Zeros(const Signature& signature, const Tensors& tensors) {
    Buffers caches;
    for (const TensorInfo& tensor : tensors) {
      auto buffer = Value(model_.CreateInputBuffer(signature.name, tensor.name));
      Check(buffer.Write<float>(std::vector<float>(Value(buffer.PackedSize()) / sizeof(float))));
      caches.emplace(tensor.name, std::move(buffer));
    }
    return caches;
  }

  Buffers Logits(const Signature& decode) {
    const TensorInfo& tensor = Find(decode.outputs, "logits");
    Buffers logits;
    logits.emplace(tensor.name, Value(model_.CreateOutputBuffer(decode.name, tensor.name)));
    return logits;
  }

  // Adds the same buffers to the inputs or outputs of a call; a cache that is both is updated in place.
  static void Share(const Buffers& buffers, Buffers& target) {
    for (const auto& [name, buffer] : buffers) target.emplace(name, Value(buffer.Duplicate()));
  }

  static std::vector<float> Values(litert::TensorBuffer& buffer) {
    std::vector<float> values(Value(buffer.PackedSize()) / sizeof(float));
    Check(buffer.Read<float>(litert::Span<float>(values)));
    return values;
  }

  // Returns the score of each token as the next one.
  static std::vector<float> Scores(const Signature& decode, const Buffers& logits) {
    auto buffer = Value(logits.begin()->second.Duplicate());
    std::vector<float> scores = Values(buffer);
    scores.resize(Find(decode.outputs, "logits").shape.back());
    return scores;
  }

  const Bundle& bundle_;
  litert::Environment environment_;
  litert::CompiledModel model_;
};

int main(int count, char** arguments) { return RunProgram<Model>(count, arguments); }
