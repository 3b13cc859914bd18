// The part of LiteRT's C++ interface that the programs of a card call, as its sources declare it (litert/cc), with a mock model:
// every output value is the number of values that were written to the inputs, so that the greatest is the token 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace litert {

using StringView = std::string_view;
template <class T>
using Span = std::span<T>;
template <class K, class V>
using FlatHashMap = std::unordered_map<K, V>;

enum class Status { kErrorInvalidArgument = 1 };
enum class HwAccelerators { kCpu = 1 };

class Error {
 public:
  explicit Error(Status, std::string message = "") : message_(std::move(message)) {}
  const std::string& Message() const { return message_; }

 private:
  std::string message_;
};

template <class T>
class Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}
  Expected(litert::Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return value_.has_value(); }
  T& operator*() { return *value_; }
  const litert::Error& Error() const { return *error_; }

 private:
  std::optional<T> value_;
  std::optional<litert::Error> error_;
};

template <>
class Expected<void> {
 public:
  Expected() = default;
  Expected(litert::Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return !error_.has_value(); }
  const litert::Error& Error() const { return *error_; }

 private:
  std::optional<litert::Error> error_;
};

class TensorBuffer {
 public:
  explicit TensorBuffer(size_t count) : values_(std::make_shared<std::vector<float>>(count)) {}

  template <class T>
  Expected<void> Write(const std::vector<T>& values) {
    if (values.size() > values_->size()) return Error(Status::kErrorInvalidArgument, "more values than the buffer holds");
    values_->assign(values.begin(), values.end());
    return {};
  }

  template <class T>
  Expected<void> Read(Span<T> target) {
    if (target.size() > values_->size()) return Error(Status::kErrorInvalidArgument, "fewer values than expected");
    for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<T>((*values_)[i]);
    return {};
  }

  Expected<TensorBuffer> Duplicate() const { return *this; }
  Expected<size_t> PackedSize() const { return values_->size() * sizeof(float); }

 private:
  std::shared_ptr<std::vector<float>> values_;
};

class Environment {
 public:
  struct Option {};
  static Expected<Environment> Create(const std::vector<Option>&) { return Environment(); }
};

class CompiledModel {
 public:
  static Expected<CompiledModel> Create(Environment&, const std::string&, HwAccelerators) { return CompiledModel(); }

  Expected<TensorBuffer> CreateInputBuffer(StringView, StringView) const { return TensorBuffer(kSize); }
  Expected<TensorBuffer> CreateOutputBuffer(StringView, StringView) const { return TensorBuffer(kSize); }

  Expected<void> Run(StringView signature, const FlatHashMap<StringView, TensorBuffer>&,
                     const FlatHashMap<StringView, TensorBuffer>&) const {
    std::cerr << signature << "\n";
    return {};
  }

 private:
  static constexpr size_t kSize = 1 << 12;
};

}  // namespace litert
