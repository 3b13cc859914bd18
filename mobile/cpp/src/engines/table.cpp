// Static embeddings: a table of token vectors and their mean, without a runtime. The table is a safetensors file: the number of
// bytes of a header, the header in JSON, and the tensors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "kerasformer/engine.hpp"
#include "kerasformer/errors.hpp"
#include "text/files.hpp"

namespace kerasformer {
namespace {

class TableEngine : public Engine {
 public:
  TableEngine(const std::string& folder, const Manifest& manifest) {
    const auto signatures = manifest.OfRole("forward");
    if (signatures.empty()) throw BundleError("A signature of the role forward was expected. Export the model again");
    const Signature& signature = *signatures[0];
    file_ = ReadFile(folder, signature.file);
    count_ = manifest.info.Int("vocab_size", 0);
    normalized_ = manifest.info["embedding"].Bool("normalized", false);
    size_ = signature.outputs.at(0).shape.back();
    try {
      ReadTensors();
    } catch (const std::invalid_argument& error) {
      throw BundleError(signature.file + " is not a table of token vectors: " + error.what() + ". Export the model again");
    }
  }

  Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>&) override {
    const std::vector<int64_t>& ids = inputs.at(signature.Input("ids")->name).integers;
    const std::vector<int64_t>& mask = inputs.at(signature.Input("mask")->name).integers;
    for (const int64_t id : ids) {
      if (id < 0 || id >= count_) {
        throw InputError("Ids must be from 0 to " + std::to_string(count_ - 1) + ". Received: " + std::to_string(id));
      }
    }
    const TensorInfo& output = signature.outputs.at(0);
    Tensor result;
    if (output.name != "sentence_embedding") {
      const auto length = static_cast<int64_t>(ids.size());
      result.shape = {1, length, size_};
      result.floats.resize(length * size_);
      for (int64_t index = 0; index < length; ++index) Add(ids[index], &result.floats[index * size_]);
      return {{output.name, std::move(result)}};
    }
    result.shape = {1, size_};
    result.floats.resize(size_);
    int64_t counted = 0;
    for (size_t index = 0; index < ids.size(); ++index) {
      if (!mask[index] || skipped_.count(ids[index])) continue;
      Add(ids[index], result.floats.data());
      ++counted;
    }
    double squares = 0;
    for (float& value : result.floats) {
      value /= static_cast<float>(std::max<int64_t>(1, counted));
      squares += static_cast<double>(value) * value;
    }
    if (normalized_) {
      for (float& value : result.floats) value = static_cast<float>(value / std::max(std::sqrt(squares), 1e-12));
    }
    return {{output.name, std::move(result)}};
  }

 private:
  // Finds the tensors in the file; throws `std::invalid_argument` if they do not have the sizes that the manifest states.
  void ReadTensors() {
    uint64_t length = 0;
    if (file_.size() < 8) throw std::invalid_argument("it has " + std::to_string(file_.size()) + " bytes");
    std::memcpy(&length, file_.data(), 8);
    if (length > file_.size() - 8) throw std::invalid_argument("its header has " + std::to_string(length) + " bytes");
    const Json header = Json::Parse(std::string_view(file_).substr(8, length));
    const auto find = [&](const char* name, const std::string& dtype, int64_t bytes) -> const char* {
      if (!header.Has(name)) return nullptr;
      const std::vector<Json>& range = header[name]["data_offsets"].AsArray();
      const int64_t first = range.at(0).AsInt(), last = range.at(1).AsInt();
      const bool fits = first >= 0 && last >= first && last <= static_cast<int64_t>(file_.size() - 8 - length);
      if (!fits || header[name]["dtype"].AsString() != dtype || (bytes >= 0 && last - first != bytes)) {
        throw std::invalid_argument(std::string(name) + " must be " + dtype + " with " + std::to_string(bytes) + " bytes");
      }
      return file_.data() + 8 + length + first;
    };
    const int64_t half = (size_ + 1) / 2;
    if ((levels_ = find("embeddings", "F32", 4 * count_ * size_))) {
      bits_ = 32;
    } else if ((levels_ = find("embeddings_int8", "U8", count_ * size_))) {
      bits_ = 8;
    } else if ((levels_ = find("embeddings_int4", "U8", count_ * half))) {
      bits_ = 4;
    } else {
      throw std::invalid_argument("it has neither embeddings nor embeddings_int8 nor embeddings_int4");
    }
    scales_ = find("scales", "F32", 4 * count_);
    if (bits_ != 32 && !scales_) throw std::invalid_argument("it has no scales");
    if (const char* skipped = find("skipped", "I32", -1)) {
      const std::vector<Json>& range = header["skipped"]["data_offsets"].AsArray();
      for (int64_t offset = 0; offset < range[1].AsInt() - range[0].AsInt(); offset += 4) {
        int32_t id;
        std::memcpy(&id, skipped + offset, 4);
        skipped_.insert(id);
      }
    }
  }

  static float Float(const char* from, int64_t index) {
    float value;
    std::memcpy(&value, from + 4 * index, 4);  // tensors may begin at any address
    return value;
  }

  // Adds the vector of a token.
  void Add(int64_t id, float* sum) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(levels_);
    for (int64_t index = 0; index < size_; ++index) {
      if (bits_ == 32) {
        sum[index] += Float(levels_, id * size_ + index);
      } else if (bits_ == 8) {
        sum[index] += static_cast<float>(bytes[id * size_ + index] - 128) * Float(scales_, id);
      } else {
        const int level = (bytes[id * ((size_ + 1) / 2) + index / 2] >> (4 * (index % 2))) & 15;
        sum[index] += static_cast<float>(level - 8) * Float(scales_, id);
      }
    }
  }

  std::string file_;
  int64_t count_ = 0, size_ = 0;
  bool normalized_ = false;
  int bits_ = 32;
  const char *levels_ = nullptr, *scales_ = nullptr;
  std::set<int64_t> skipped_;
};

}  // namespace

std::unique_ptr<Engine> OpenTable(const std::string& folder, const Manifest& manifest) {
  return std::make_unique<TableEngine>(folder, manifest);
}

}  // namespace kerasformer
