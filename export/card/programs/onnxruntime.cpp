// Runs a bundle on token ids with ONNX Runtime: an encoder, a decoder or an encoder-decoder.
//
//     main FOLDER ID...                     FOLDER has kerasformer.json and the model files
//     main FOLDER --language CODE ID...     for the language of a translation, such as deu_Latn
//
// All names, sizes and ids are read from kerasformer.json; bundle.hpp beside this file does that.

#include "bundle.hpp"

#include <filesystem>

#include <onnxruntime_cxx_api.h>

class Model {
 public:
  // The environment logs errors alone: it would warn of every optional input.
  explicit Model(const Bundle& bundle) : bundle_(bundle), environment_(ORT_LOGGING_LEVEL_ERROR, "") {}

  // Returns the values of the first output of an encoder for the token ids of a text.
  std::vector<float> Run(const Ids& ids, const Ids& segments = {}) {
    CheckLength("text", ids.size(), bundle_.max_length);
    const auto outputs = Read(bundle_.OfRole("forward").at(0), ids, segments);
    const float* first = outputs[0].GetTensorData<float>();
    return {first, first + outputs[0].GetTensorTypeAndShapeInfo().GetElementCount()};
  }

  // Continues the token ids of a prompt by greedy search; returns at most `count` new ids.
  Ids Continue(Ids tokens, size_t count = 40) {
    CheckLength("prompt", tokens.size(), bundle_.capacity);
    std::map<std::string, Ids> values;
    Ids generated;
    Start();
    while (generated.size() < count && values["mask"].size() + tokens.size() <= bundle_.capacity) {
      values["positions"].clear();
      for (size_t i = 0; i < tokens.size(); ++i) values["positions"].push_back(values["mask"].size() + i);
      values["mask"].resize(values["mask"].size() + tokens.size(), 1);
      values["ids"] = tokens;
      tokens = {Step(values)};
      if (bundle_.IsEnd(tokens[0])) break;
      generated.push_back(tokens[0]);
    }
    return generated;
  }

  // Generates at most `count` token ids from those of a text, with the prefix of the task and the end token.
  Ids Rewrite(const Ids& ids, const std::string& language = "", size_t count = 40) {
    CheckLength("text", ids.size(), bundle_.encoder_capacity ? bundle_.encoder_capacity : bundle_.max_length);
    const auto [start, first] = bundle_.FirstTokens(language);
    memory_ = Read(bundle_.OfRole("encode").at(0), ids, {});
    std::map<std::string, Ids> values{{"memory_mask", Ids(ids.size(), 1)}, {"ids", {start}}};
    Ids generated;
    Start();
    while (generated.size() < std::min(count, bundle_.capacity)) {
      int64_t token = Step(values);
      if (generated.empty() && first) token = *first;
      if (bundle_.IsEnd(token)) break;
      generated.push_back(token);
      values["ids"] = {token};
    }
    return generated;
  }

 private:
  // Returns a tensor (1, N) that shares the memory of these ids.
  static Ort::Value Tensor(Ids& ids) {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const int64_t shape[] = {1, static_cast<int64_t>(ids.size())};
    return Ort::Value::CreateTensor<int64_t>(memory, ids.data(), ids.size(), shape, 2);
  }

  Ort::Session Open(const Signature& signature) {
    return {environment_, (std::filesystem::path(bundle_.folder) / signature.file).c_str(), Ort::SessionOptions{}};
  }

  // Runs a session on the bound inputs; returns the outputs in the order of the names.
  static std::vector<Ort::Value> Call(Ort::Session& session, Ort::IoBinding& binding,
                                      const std::vector<std::string>& names) {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    for (const std::string& name : names) binding.BindOutput(name.c_str(), memory);
    session.Run(Ort::RunOptions{nullptr}, binding);
    return binding.GetOutputValues();
  }

  // Runs a signature on a text; returns its outputs.
  std::vector<Ort::Value> Read(const Signature& signature, const Ids& ids, const Ids& segments) {
    Ort::Session session = Open(signature);
    Ort::IoBinding binding(session);
    std::vector<Ids> inputs(signature.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorInfo& tensor = signature.inputs[i];
      inputs[i] = tensor.kind == "ids" ? ids : tensor.kind == "segments" ? segments : Ids();
      inputs[i].resize(ids.size(), tensor.kind == "mask" ? 1 : tensor.fill);
      binding.BindInput(tensor.name.c_str(), Tensor(inputs[i]));
    }
    std::vector<std::string> names;
    for (const TensorInfo& tensor : signature.outputs) names.push_back(tensor.name);
    return Call(session, binding, names);
  }

  // Opens the decoder, with keys and values of length 0, and other states of zeros.
  void Start() {
    const Signature& step = bundle_.Decode();
    session_.emplace(Open(step));
    past_ = OfKind(step.inputs, {"key", "value", "state", "cross_key", "cross_value"});
    Ort::AllocatorWithDefaultOptions allocator;
    for (const TensorInfo& cache : past_) {
      const int64_t shape[] = {1, cache.shape[1], cache.shape[2], cache.shape[3]};
      caches_.push_back(Ort::Value::CreateTensor<float>(allocator, shape, 4));
      std::fill_n(caches_.back().GetTensorMutableData<float>(), shape[1] * shape[2] * shape[3], 0.0f);
      names_.push_back(Find(step.outputs, cache.kind, cache.layer).name);
    }
    names_.push_back(Find(step.outputs, "logits").name);
  }

  // Reads the next tokens, given by their kinds with what describes them; returns the most probable one after them.
  int64_t Step(std::map<std::string, Ids>& values) {
    const Signature& step = bundle_.Decode();
    Ort::IoBinding binding(*session_);
    for (const TensorInfo& tensor : step.inputs) {
      if (const auto value = values.find(tensor.kind); value != values.end()) {
        binding.BindInput(tensor.name.c_str(), Tensor(value->second));
      }
      if (tensor.kind == "memory") binding.BindInput(tensor.name.c_str(), memory_.at(0));
    }
    for (size_t i = 0; i < past_.size(); ++i) binding.BindInput(past_[i].name.c_str(), caches_[i]);
    caches_ = Call(*session_, binding, names_);
    // The logits (1, N, V) are the last output, and those of the last position are the last of them.
    const auto shape = caches_.back().GetTensorTypeAndShapeInfo();
    const float* end = caches_.back().GetTensorData<float>() + shape.GetElementCount();
    return bundle_.Best(std::vector<float>(end - shape.GetShape().back(), end));
  }

  const Bundle& bundle_;
  Ort::Env environment_;
  std::optional<Ort::Session> session_;
  Tensors past_;
  std::vector<std::string> names_;
  std::vector<Ort::Value> caches_, memory_;
};

int main(int count, char** arguments) { return RunProgram<Model>(count, arguments); }
