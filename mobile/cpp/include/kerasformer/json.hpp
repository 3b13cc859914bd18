// A small reader of JSON, for the files of a bundle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kerasformer {

// A value of JSON. Objects keep the order of their fields, and numbers their text, so that nothing is lost.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(bool value) : value_(value) {}
  Json(int value) : value_(Number{std::to_string(value)}) {}
  Json(int64_t value) : value_(Number{std::to_string(value)}) {}
  Json(double value);
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  Json(const std::vector<int>& values) : value_(Array(values.begin(), values.end())) {}
  Json(const std::vector<std::string>& values) : value_(Array(values.begin(), values.end())) {}

  // Parses a whole document; throws `std::invalid_argument` with the position of a mistake.
  static Json Parse(std::string_view text);

  bool IsNull() const { return std::holds_alternative<std::monostate>(value_); }
  bool IsBool() const { return std::holds_alternative<bool>(value_); }
  bool IsNumber() const { return std::holds_alternative<Number>(value_); }
  bool IsInteger() const;
  bool IsString() const { return std::holds_alternative<std::string>(value_); }
  bool IsArray() const { return std::holds_alternative<Array>(value_); }
  bool IsObject() const { return std::holds_alternative<Object>(value_); }

  // The value as one type; these throw `std::invalid_argument` if it has another one.
  bool AsBool() const;
  double AsDouble() const;
  int64_t AsInt() const;
  const std::string& AsString() const;
  const Array& AsArray() const;
  const Object& AsObject() const;

  // The value of a field, which is null if there is none or if this is no object.
  const Json& operator[](std::string_view name) const;
  bool Has(std::string_view name) const { return !(*this)[name].IsNull(); }

  // The value of a field as one type, or a default if it is absent or null.
  bool Bool(std::string_view name, bool usual) const;
  int64_t Int(std::string_view name, int64_t usual) const;
  std::string String(std::string_view name, const std::string& usual) const;

  // Integers of this array, or this integer alone; none for null.
  std::vector<int> Ints() const;
  // The strings of this array.
  std::vector<std::string> Strings() const;

  // The value as Python shows it in messages: `None`, `True`, `'text'`.
  std::string Shown() const;

  // Compact text with sorted fields and escaped characters, as `json.dumps(..., sort_keys=True, separators=(",", ":"))`
  // writes it in Python. A field of the top object can be omitted.
  std::string Canonical(std::string_view omitted = {}) const;

 private:
  struct Number {
    std::string text;
  };
  friend class JsonReader;

  std::variant<std::monostate, bool, Number, std::string, Array, Object> value_;
};

// A text as Python shows it in messages, in single quotation marks.
std::string Shown(std::string_view text);

// A text in quotation marks, as it is shown in messages.
std::string Quoted(std::string_view text);

}  // namespace kerasformer
