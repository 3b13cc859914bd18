// ONNX Runtime behind its C interface.
//
// The interface is a table of functions whose order never changes: later releases append functions. This file declares the
// functions that it calls, by their places in the table of `onnxruntime_c_api.h`.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "engines/library.hpp"
#include "kerasformer/engine.hpp"

namespace kerasformer {
namespace {

constexpr uint32_t kApiVersion = 14;
constexpr int kErrorsOnly = 3;  // severity of the log
constexpr int kFloat = 1, kInt64 = 7;  // types of elements
constexpr int kCpuAllocator = 0, kDefaultMemory = 0;

struct Env;
struct Status;
struct Session;
struct SessionOptions;
struct MemoryInfo;
struct Value;
struct ShapeInfo;

struct ApiBase {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// The functions of a loaded runtime.
struct Api {
  explicit Api(const void* const* table) : table(table) {}

  // The function at a place of the table.
  template <class... Arguments>
  void Call(size_t place, Arguments... arguments) const {
    Status* status = reinterpret_cast<Status* (*)(Arguments...)>(const_cast<void*>(table[place]))(arguments...);
    if (!status) return;
    const std::string message = reinterpret_cast<const char* (*)(const Status*)>(const_cast<void*>(table[kGetErrorMessage]))(status);
    Release(kReleaseStatus, status);
    throw EngineError("ONNX Runtime failed: " + message);
  }

  template <class Object>
  void Release(size_t place, Object* object) const {
    reinterpret_cast<void (*)(Object*)>(const_cast<void*>(table[place]))(object);
  }

  // An object that is released when nothing refers to it.
  template <class Object>
  std::shared_ptr<Object> Owned(Object* object, size_t release) const {
    return std::shared_ptr<Object>(object, [api = *this, release](Object* each) { api.Release(release, each); });
  }

  enum Place : size_t {
    kGetErrorMessage = 2,
    kCreateEnv = 3,
    kCreateSession = 7,
    kRun = 9,
    kCreateSessionOptions = 10,
    kSetLogSeverity = 22,
    kSetThreads = 24,
    kCreateTensor = 49,
    kGetData = 51,
    kGetNumDimensions = 61,
    kGetDimensions = 62,
    kGetShape = 65,
    kCreateCpuMemory = 69,
    kReleaseEnv = 92,
    kReleaseStatus = 93,
    kReleaseMemory = 94,
    kReleaseSession = 95,
    kReleaseValue = 96,
    kReleaseShape = 99,
    kReleaseOptions = 100,
  };

  const void* const* table;
};

const void* const* LoadedTable(const SharedLibrary& library) {
  const auto* base = library.Get<const ApiBase*()>("OrtGetApiBase")();
  const void* const* table = base->GetApi(kApiVersion);
  if (!table) {
    throw EngineError(std::string("ONNX Runtime is too old. Expected: release 1.") + std::to_string(kApiVersion) +
                      " or later. Received: " + base->GetVersionString());
  }
  return table;
}

// A value of the runtime, which may use the memory of a tensor of ours.
struct Held {
  std::shared_ptr<Value> value;
  Tensor source;
};

class OnnxRuntime : public Engine {
 public:
  OnnxRuntime(const std::string& folder, const Manifest& manifest, const EngineOptions& options)
      : library_(options.library.empty() ? "libonnxruntime.so" : options.library), api_(LoadedTable(library_)) {
    Env* env = nullptr;
    api_.Call(Api::kCreateEnv, kErrorsOnly, "kerasformer", &env);
    env_ = api_.Owned(env, Api::kReleaseEnv);
    SessionOptions* created = nullptr;
    api_.Call(Api::kCreateSessionOptions, &created);
    const auto settings = api_.Owned(created, Api::kReleaseOptions);
    api_.Call(Api::kSetThreads, created, options.threads);
    api_.Call(Api::kSetLogSeverity, created, kErrorsOnly);
    MemoryInfo* memory = nullptr;
    api_.Call(Api::kCreateCpuMemory, kCpuAllocator, kDefaultMemory, &memory);
    memory_ = api_.Owned(memory, Api::kReleaseMemory);
    for (const Signature& signature : manifest.signatures) {
      if (sessions_.count(signature.file)) continue;
      const auto path = std::filesystem::path(folder) / signature.file;
      Session* session = nullptr;
      api_.Call(Api::kCreateSession, static_cast<const Env*>(env), path.c_str(), static_cast<const SessionOptions*>(created), &session);
      sessions_[signature.file] = api_.Owned(session, Api::kReleaseSession);
    }
  }

  Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>& kept) override {
    std::vector<const char*> names, output_names;
    std::vector<const Value*> values;
    std::vector<std::shared_ptr<Held>> held;
    for (const TensorInfo& info : signature.inputs) {
      const auto found = inputs.find(info.name);
      if (found == inputs.end()) continue;
      held.push_back(found->second.handle ? std::static_pointer_cast<Held>(found->second.handle) : Created(info, std::move(found->second)));
      names.push_back(info.name.c_str());
      values.push_back(held.back()->value.get());
    }
    for (const TensorInfo& info : signature.outputs) output_names.push_back(info.name.c_str());
    std::vector<Value*> results(output_names.size());
    api_.Call(Api::kRun, sessions_.at(signature.file).get(), static_cast<const void*>(nullptr), names.data(), values.data(), values.size(),
              output_names.data(), output_names.size(), results.data());
    Tensors outputs;
    for (size_t index = 0; index < results.size(); ++index) {
      const std::string& name = signature.outputs[index].name;
      const auto value = api_.Owned(results[index], Api::kReleaseValue);
      outputs[name] = std::count(kept.begin(), kept.end(), name) ? Kept(value) : Read(value);
    }
    return outputs;
  }

 private:
  std::shared_ptr<Held> Created(const TensorInfo& info, Tensor tensor) const {
    auto held = std::make_shared<Held>(Held{nullptr, std::move(tensor)});
    const bool integers = info.dtype == "int64";
    void* data = integers ? static_cast<void*>(held->source.integers.data()) : held->source.floats.data();
    const size_t bytes = integers ? held->source.integers.size() * sizeof(int64_t) : held->source.floats.size() * sizeof(float);
    static float nothing;  // the address of an empty tensor
    Value* value = nullptr;
    api_.Call(Api::kCreateTensor, static_cast<const MemoryInfo*>(memory_.get()), data ? data : &nothing, bytes,
              static_cast<const int64_t*>(held->source.shape.data()), held->source.shape.size(), integers ? kInt64 : kFloat, &value);
    held->value = api_.Owned(value, Api::kReleaseValue);
    return held;
  }

  static Tensor Kept(std::shared_ptr<Value> value) {
    Tensor tensor;
    tensor.handle = std::make_shared<Held>(Held{std::move(value), {}});
    return tensor;
  }

  Tensor Read(const std::shared_ptr<Value>& value) const {
    ShapeInfo* created = nullptr;
    api_.Call(Api::kGetShape, static_cast<const Value*>(value.get()), &created);
    const auto shape = api_.Owned(created, Api::kReleaseShape);
    size_t rank = 0;
    api_.Call(Api::kGetNumDimensions, static_cast<const ShapeInfo*>(created), &rank);
    Tensor tensor;
    tensor.shape.resize(rank);
    api_.Call(Api::kGetDimensions, static_cast<const ShapeInfo*>(created), tensor.shape.data(), rank);
    size_t size = 1;
    for (const int64_t length : tensor.shape) size *= length;
    void* data = nullptr;
    api_.Call(Api::kGetData, value.get(), &data);
    tensor.floats.assign(static_cast<float*>(data), static_cast<float*>(data) + size);
    return tensor;
  }

  const SharedLibrary library_;
  const Api api_;
  std::shared_ptr<Env> env_;
  std::shared_ptr<MemoryInfo> memory_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
};

}  // namespace

std::unique_ptr<Engine> OpenOnnxRuntime(const std::string& folder, const Manifest& manifest, const EngineOptions& options) {
  // From 1.29 on, ONNX Runtime sends usage data from the moment that it is loaded, unless this is set. The choice of the
  // app or its user holds.
  setenv("ORT_DISABLE_TELEMETRY", "1", /*overwrite=*/0);
  return std::make_unique<OnnxRuntime>(folder, manifest, options);
}

}  // namespace kerasformer
