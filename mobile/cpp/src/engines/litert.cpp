// LiteRT behind its C interface: `CompiledModel` on the CPU. This file declares the functions that it calls, as LiteRT 2.2 and
// later have them.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engines/library.hpp"
#include "kerasformer/engine.hpp"

namespace kerasformer {
namespace {

constexpr int kCpu = 1;
constexpr int kReading = 0, kWriting = 1;  // modes of a lock

// Objects of LiteRT are pointers whose content is its own.
using Object = void*;

// The description of a tensor's type and shape, which only LiteRT reads; it has less than 128 bytes.
struct alignas(16) TensorType {
  char bytes[128] = {};
};

// The functions of a loaded runtime; all return 0 unless they fail.
struct Api {
  explicit Api(const SharedLibrary& library)
      : create_environment(library.Get<int(int, const void*, Object*)>("LiteRtCreateEnvironment")),
        create_model(library.Get<int(Object, const char*, Object*)>("LiteRtCreateModelFromFile")),
        create_options(library.Get<int(Object*)>("LiteRtCreateOptions")),
        set_accelerators(library.Get<int(Object, int)>("LiteRtSetOptionsHardwareAccelerators")),
        compile(library.Get<int(Object, Object, Object, Object*)>("LiteRtCreateCompiledModel")),
        num_signatures(library.Get<int(Object, size_t*)>("LiteRtGetNumModelSignatures")),
        signature(library.Get<int(Object, size_t, Object*)>("LiteRtGetModelSignature")),
        signature_key(library.Get<int(Object, const char**)>("LiteRtGetSignatureKey")),
        num_inputs(library.Get<int(Object, size_t*)>("LiteRtGetNumSignatureInputs")),
        num_outputs(library.Get<int(Object, size_t*)>("LiteRtGetNumSignatureOutputs")),
        input_name(library.Get<int(Object, size_t, const char**)>("LiteRtGetSignatureInputName")),
        output_name(library.Get<int(Object, size_t, const char**)>("LiteRtGetSignatureOutputName")),
        input_tensor(library.Get<int(Object, size_t, Object*)>("LiteRtGetSignatureInputTensorByIndex")),
        output_tensor(library.Get<int(Object, size_t, Object*)>("LiteRtGetSignatureOutputTensorByIndex")),
        tensor_type(library.Get<int(Object, TensorType*)>("LiteRtGetRankedTensorType")),
        input_requirements(library.Get<int(Object, size_t, size_t, Object*)>("LiteRtGetCompiledModelInputBufferRequirements")),
        output_requirements(library.Get<int(Object, size_t, size_t, Object*)>("LiteRtGetCompiledModelOutputBufferRequirements")),
        create_buffer(library.Get<int(Object, const TensorType*, Object, Object*)>("LiteRtCreateManagedTensorBufferFromRequirements")),
        packed_size(library.Get<int(Object, size_t*)>("LiteRtGetTensorBufferPackedSize")),
        lock(library.Get<int(Object, void**, int)>("LiteRtLockTensorBuffer")),
        unlock(library.Get<int(Object)>("LiteRtUnlockTensorBuffer")),
        run(library.Get<int(Object, size_t, size_t, Object*, size_t, Object*)>("LiteRtRunCompiledModel")),
        destroy_environment(library.Get<void(Object)>("LiteRtDestroyEnvironment")),
        destroy_model(library.Get<void(Object)>("LiteRtDestroyModel")),
        destroy_options(library.Get<void(Object)>("LiteRtDestroyOptions")),
        destroy_compiled(library.Get<void(Object)>("LiteRtDestroyCompiledModel")),
        destroy_buffer(library.Get<void(Object)>("LiteRtDestroyTensorBuffer")) {}

  int (*create_environment)(int, const void*, Object*);
  int (*create_model)(Object, const char*, Object*);
  int (*create_options)(Object*);
  int (*set_accelerators)(Object, int);
  int (*compile)(Object, Object, Object, Object*);
  int (*num_signatures)(Object, size_t*);
  int (*signature)(Object, size_t, Object*);
  int (*signature_key)(Object, const char**);
  int (*num_inputs)(Object, size_t*);
  int (*num_outputs)(Object, size_t*);
  int (*input_name)(Object, size_t, const char**);
  int (*output_name)(Object, size_t, const char**);
  int (*input_tensor)(Object, size_t, Object*);
  int (*output_tensor)(Object, size_t, Object*);
  int (*tensor_type)(Object, TensorType*);
  int (*input_requirements)(Object, size_t, size_t, Object*);
  int (*output_requirements)(Object, size_t, size_t, Object*);
  int (*create_buffer)(Object, const TensorType*, Object, Object*);
  int (*packed_size)(Object, size_t*);
  int (*lock)(Object, void**, int);
  int (*unlock)(Object);
  int (*run)(Object, size_t, size_t, Object*, size_t, Object*);
  void (*destroy_environment)(Object);
  void (*destroy_model)(Object);
  void (*destroy_options)(Object);
  void (*destroy_compiled)(Object);
  void (*destroy_buffer)(Object);
};

void Check(int status, const std::string& what) {
  if (status != 0) throw EngineError("LiteRT failed to " + what + ". Received: status " + std::to_string(status));
}

using Owner = std::shared_ptr<void>;

// How buffers of an input or output are created.
struct Slot {
  std::string name;
  TensorType type;
  Object requirements;
};

// A signature of the file, with its inputs and outputs in the order of the runtime.
struct Function {
  size_t index;
  std::vector<Slot> inputs, outputs;
};

class LiteRt : public Engine {
 public:
  LiteRt(const std::string& folder, const Manifest& manifest, const EngineOptions& options)
      : library_(options.library.empty() ? "libLiteRt.so" : options.library), api_(library_) {
    std::string file;
    for (const Signature& signature : manifest.signatures) {
      // The file of a tokenizer contains operators of TF Text.
      if (signature.role == "tokenize") continue;
      if (!file.empty() && file != signature.file) throw BundleError("A TFLite bundle has one model file. Received: " + file + ", " + signature.file);
      file = signature.file;
    }
    environment_ = Created([&](Object* object) { return api_.create_environment(0, nullptr, object); }, api_.destroy_environment, "start");
    const std::string path = (std::filesystem::path(folder) / file).string();
    model_ = Created([&](Object* object) { return api_.create_model(environment_.get(), path.c_str(), object); }, api_.destroy_model,
                     "load " + path);
    const Owner settings = Created([&](Object* object) { return api_.create_options(object); }, api_.destroy_options, "create options");
    Check(api_.set_accelerators(settings.get(), kCpu), "select the CPU");
    compiled_ = Created([&](Object* object) { return api_.compile(environment_.get(), model_.get(), settings.get(), object); },
                        api_.destroy_compiled, "compile " + path);
    size_t count = 0;
    Check(api_.num_signatures(model_.get(), &count), "count signatures");
    for (size_t index = 0; index < count; ++index) AddFunction(index);
  }

  Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>& kept) override {
    const auto found = functions_.find(signature.name);
    if (found == functions_.end()) throw EngineError("The model file lacks the signature " + signature.name + ". Export the model again");
    const Function& function = found->second;
    std::vector<Object> sources, targets;
    std::map<std::string, Owner> held, results;
    for (const Slot& slot : function.inputs) {
      const auto given = inputs.find(slot.name);
      if (given == inputs.end()) throw EngineError("The signature " + signature.name + " needs the input " + slot.name + ". Received: none");
      held[slot.name] = given->second.handle ? std::move(given->second.handle) : Filled(slot, given->second);
      sources.push_back(held[slot.name].get());
    }
    inputs.clear();
    for (const Slot& slot : function.outputs) {
      results[slot.name] = Target(signature, slot, held);
      targets.push_back(results[slot.name].get());
    }
    Check(api_.run(compiled_.get(), function.index, sources.size(), sources.data(), targets.size(), targets.data()), "run " + signature.name);
    Tensors outputs;
    for (const TensorInfo& info : signature.outputs) {
      Tensor& tensor = outputs[info.name];
      tensor.shape = info.shape;
      if (std::count(kept.begin(), kept.end(), info.name)) {
        tensor.handle = results.at(info.name);
      } else {
        tensor.floats = Read(results.at(info.name).get(), info);
      }
    }
    return outputs;
  }

 private:
  template <class Create>
  static Owner Created(const Create& create, void (*destroy)(Object), const std::string& what) {
    Object object = nullptr;
    Check(create(&object), what);
    return Owner(object, destroy);
  }

  void AddFunction(size_t index) {
    Object signature = nullptr;
    Check(api_.signature(model_.get(), index, &signature), "read a signature");
    const char* key = nullptr;
    Check(api_.signature_key(signature, &key), "read the name of a signature");
    Function& function = functions_[key];
    function.index = index;
    size_t count = 0;
    Check(api_.num_inputs(signature, &count), "count inputs");
    function.inputs.resize(count);
    for (size_t at = 0; at < count; ++at) {
      Describe(function.inputs[at], signature, at, api_.input_name, api_.input_tensor);
      Check(api_.input_requirements(compiled_.get(), index, at, &function.inputs[at].requirements), "describe an input");
    }
    Check(api_.num_outputs(signature, &count), "count outputs");
    function.outputs.resize(count);
    for (size_t at = 0; at < count; ++at) {
      Describe(function.outputs[at], signature, at, api_.output_name, api_.output_tensor);
      Check(api_.output_requirements(compiled_.get(), index, at, &function.outputs[at].requirements), "describe an output");
    }
  }

  void Describe(Slot& slot, Object signature, size_t at, int (*name_of)(Object, size_t, const char**),
                int (*tensor_of)(Object, size_t, Object*)) const {
    const char* name = nullptr;
    Object tensor = nullptr;
    Check(name_of(signature, at, &name), "read the name of a tensor");
    Check(tensor_of(signature, at, &tensor), "read a tensor");
    Check(api_.tensor_type(tensor, &slot.type), "read the type of a tensor");
    slot.name = name;
  }

  Owner Buffer(const Slot& slot) const {
    return Created([&](Object* object) { return api_.create_buffer(environment_.get(), &slot.type, slot.requirements, object); },
                   api_.destroy_buffer, "create a buffer for " + slot.name);
  }

  // A buffer with the values of a tensor; integers have 32 bits.
  Owner Filled(const Slot& slot, const Tensor& tensor) const {
    Owner buffer = Buffer(slot);
    const std::vector<int32_t> integers(tensor.integers.begin(), tensor.integers.end());
    const void* values = integers.empty() ? static_cast<const void*>(tensor.floats.data()) : integers.data();
    const size_t bytes = sizeof(float) * std::max(integers.size(), tensor.floats.size());
    size_t size = 0;
    Check(api_.packed_size(buffer.get(), &size), "measure a buffer");
    if (size != bytes) {
      throw EngineError("The input " + slot.name + " has another size. Expected: " + std::to_string(size) + " bytes. Received: " +
                        std::to_string(bytes));
    }
    void* memory = nullptr;
    Check(api_.lock(buffer.get(), &memory, kWriting), "write a buffer");
    std::memcpy(memory, values, bytes);
    Check(api_.unlock(buffer.get()), "write a buffer");
    return buffer;
  }

  // The buffer of an output: that of the input which it continues, if nothing else refers to that and both may share one.
  Owner Target(const Signature& signature, const Slot& slot, const std::map<std::string, Owner>& held) const {
    for (const TensorInfo& info : signature.outputs) {
      const auto before = held.find(info.continues);
      if (info.name == slot.name && info.in_place && before != held.end() && before->second.use_count() == 1) return before->second;
    }
    return Buffer(slot);
  }

  std::vector<float> Read(Object buffer, const TensorInfo& info) const {
    size_t size = 1;
    for (const int64_t length : info.shape) size *= static_cast<size_t>(std::max<int64_t>(length, 1));
    size_t bytes = 0;
    Check(api_.packed_size(buffer, &bytes), "measure a buffer");
    std::vector<float> values(std::min(size, bytes / sizeof(float)));
    void* memory = nullptr;
    Check(api_.lock(buffer, &memory, kReading), "read a buffer");
    std::memcpy(values.data(), memory, values.size() * sizeof(float));
    Check(api_.unlock(buffer), "read a buffer");
    return values;
  }

  const SharedLibrary library_;
  const Api api_;
  Owner environment_, model_, compiled_;
  std::map<std::string, Function> functions_;
};

}  // namespace

std::unique_ptr<Engine> OpenLiteRt(const std::string& folder, const Manifest& manifest, const EngineOptions& options) {
  return std::make_unique<LiteRt>(folder, manifest, options);
}

}  // namespace kerasformer
