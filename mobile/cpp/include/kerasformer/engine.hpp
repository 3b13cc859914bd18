// The interface of the runtimes that compute a model, and those that are supported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// An input or output of a signature.
struct TensorInfo {
  std::string name, dtype;
  std::string kind;            // what it contains, such as "ids", "mask" or "key"
  std::vector<int64_t> shape;  // -1 for a dimension of any size
  std::string continues;       // for an output: the input whose next state it is
  bool in_place = false;       // for such an output: whether it may share a buffer with that input
  int fill = 0;                // for an input of integers: what fills the rest of a fixed length
};

// A function of a model file.
struct Signature {
  std::string name, file;
  std::string role;                  // its purpose, such as "forward" or "decode"
  std::optional<int> rows, tokens;   // numbers of texts, and of tokens of each; absent for any number
  std::optional<int> cache_length;   // number of slots that the tokens attend to
  std::vector<TensorInfo> inputs, outputs;

  // The first input or output of a kind, or null.
  const TensorInfo* Input(const std::string& kind) const;
  const TensorInfo* Output(const std::string& kind) const;
};

// The content of `kerasformer.json`, which describes a bundle.
struct Manifest {
  std::string format;  // "tflite", "onnx" or "table"
  Json info;           // task, labels, ids and lengths
  std::vector<Signature> signatures;
  std::optional<int> capacity;          // number of slots of the decoder's cache
  std::optional<int> encoder_capacity;  // the longest input of an encoder-decoder, in tokens
  std::vector<std::string> files;

  // Reads and checks the manifest of a folder, and the checksums of the other files.
  // Throws `BundleError` for a missing, changed or newer file.
  static Manifest Read(const std::string& folder);

  std::vector<const Signature*> OfRole(const std::string& role) const;
};

// Values, or a tensor inside of an engine.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> integers;  // of an input of integers
  std::vector<float> floats;
  std::shared_ptr<void> handle;  // a tensor inside of the engine, instead of values
};

using Tensors = std::map<std::string, Tensor>;

// A runtime with a loaded bundle. Calls must not overlap.
class Engine {
 public:
  virtual ~Engine() = default;

  // Runs a signature; returns all outputs by name. Those that are `kept` stay inside of the engine, and can be inputs of
  // later calls. An input tensor that nothing else refers to may be reused for the output that continues it.
  // Throws `EngineError` if the runtime fails.
  virtual Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>& kept) = 0;
};

// Options of the engines.
struct EngineOptions {
  int threads = 1;      // of ONNX Runtime; LiteRT chooses a number itself
  std::string library;  // path of the runtime's shared library; by default its usual name
};

// Loads a bundle with LiteRT (libLiteRt.so) or ONNX Runtime (libonnxruntime.so); the shared library is loaded when it is
// needed. Throws `EngineError` if that fails.
std::unique_ptr<Engine> OpenLiteRt(const std::string& folder, const Manifest& manifest, const EngineOptions& options = {});
std::unique_ptr<Engine> OpenOnnxRuntime(const std::string& folder, const Manifest& manifest, const EngineOptions& options = {});

// Loads a table of token vectors, which needs no runtime. Throws `BundleError` if the file does not fit to the manifest.
std::unique_ptr<Engine> OpenTable(const std::string& folder, const Manifest& manifest);

}  // namespace kerasformer
