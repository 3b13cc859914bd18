#include "kerasformer/json.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iomanip>
#include <locale>
#include <sstream>
#include <stdexcept>

#include "text/utf8.hpp"

namespace kerasformer {
namespace {

constexpr int kDeepest = 200;  // nested arrays and objects; deeper ones could exhaust the stack

[[noreturn]] void Refuse(const char* expected) {
  throw std::invalid_argument(std::string("a JSON value of another type was expected: ") + expected);
}

void AppendEscape(unsigned unit, std::string& out) {
  static const char* const kDigits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 15];
}

// Appends a string with everything but printable ASCII escaped, or only what JSON requires.
void AppendQuoted(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = NextCharacter(text, at);
    const size_t short_form = c < 0x80 ? std::string_view("\"\\\b\f\n\r\t").find(static_cast<char>(c)) : std::string_view::npos;
    if (short_form != std::string_view::npos) {
      out += '\\';
      out += "\"\\bfnrt"[short_form];
    } else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) {
      AppendEscape(c, out);
    } else if (ascii && c >= 0x10000) {
      AppendEscape(0xd800 + ((c - 0x10000) >> 10), out);
      AppendEscape(0xdc00 + ((c - 0x10000) & 0x3ff), out);
    } else {
      out.append(text.substr(start, at - start));
    }
  }
  out += '"';
}

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json Document() {
    Json value = Value(0);
    Space();
    if (at_ != text_.size()) Fail("the end");
    return value;
  }

 private:
  [[noreturn]] void Fail(const char* expected) const {
    throw std::invalid_argument(std::string("not valid JSON: ") + expected + " was expected at byte " + std::to_string(at_));
  }

  void Space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }

  bool Take(char c) {
    Space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json Value(int depth) {
    if (depth > kDeepest) Fail("a value that is nested less deeply");
    Json value;
    Space();
    if (Take('{')) {
      value.value_ = Fields(depth);
    } else if (Take('[')) {
      value.value_ = Items(depth);
    } else if (at_ < text_.size() && text_[at_] == '"') {
      value.value_ = String();
    } else if (TakeWord("true")) {
      value.value_ = true;
    } else if (TakeWord("false")) {
      value.value_ = false;
    } else if (!TakeWord("null")) {
      value.value_ = Json::Number{std::string(NumberText())};
    }
    return value;
  }

  Json::Object Fields(int depth) {
    Json::Object fields;
    if (Take('}')) return fields;
    do {
      Space();
      std::string name = String();
      if (!Take(':')) Fail("a colon");
      fields.emplace_back(std::move(name), Value(depth + 1));
    } while (Take(','));
    if (!Take('}')) Fail("a comma or }");
    return fields;
  }

  Json::Array Items(int depth) {
    Json::Array items;
    if (Take(']')) return items;
    do {
      items.push_back(Value(depth + 1));
    } while (Take(','));
    if (!Take(']')) Fail("a comma or ]");
    return items;
  }

  std::string_view NumberText() {
    const size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos) ++at_;
    if (at_ == start) Fail("a value");
    return text_.substr(start, at_ - start);
  }

  unsigned Unit() {
    unsigned unit = 0;
    const auto digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (error != std::errc() || end != digits.data() + 4) Fail("four hexadecimal digits");
    at_ += 4;
    return unit;
  }

  std::string String() {
    if (at_ == text_.size() || text_[at_] != '"') Fail("a string");
    ++at_;
    std::string value;
    while (true) {
      const size_t stop = text_.find_first_of("\"\\", at_);
      if (stop == std::string_view::npos) Fail("the end of a string");
      value.append(text_.substr(at_, stop - at_));
      at_ = stop + 1;
      if (text_[stop] == '"') return value;
      if (at_ == text_.size()) Fail("an escaped character");
      const char c = text_[at_++];
      if (c == 'u') {
        char32_t character = Unit();
        // Two units of UTF-16 encode one character; a unit without its other one becomes U+FFFD.
        if (character >= 0xd800 && character < 0xdc00 && TakeWord("\\u")) {
          const char32_t low = Unit();
          character = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((character - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
        }
        Append(character >= 0xd800 && character < 0xe000 ? 0xfffd : character, value);
      } else {
        const size_t index = std::string_view("\"\\/bfnrt").find(c);
        if (index == std::string_view::npos) Fail("an escaped character");
        value += "\"\\/\b\f\n\r\t"[index];
      }
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
};

Json::Json(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << std::setprecision(17) << value;
  value_ = Number{text.str()};
}

Json Json::Parse(std::string_view text) { return JsonReader(text).Document(); }

bool Json::IsInteger() const {
  return IsNumber() && std::get<Number>(value_).text.find_first_of(".eE") == std::string::npos;
}

bool Json::AsBool() const {
  if (!IsBool()) Refuse("true or false");
  return std::get<bool>(value_);
}

double Json::AsDouble() const {
  if (!IsNumber()) Refuse("a number");
  const std::string& text = std::get<Number>(value_).text;
#if defined(__cpp_lib_to_chars)
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
#else
  return std::strtod(text.c_str(), nullptr);
#endif
}

int64_t Json::AsInt() const {
  if (!IsInteger()) Refuse("an integer");
  const std::string& text = std::get<Number>(value_).text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) Refuse("an integer of 64 bits");
  return value;
}

const std::string& Json::AsString() const {
  if (!IsString()) Refuse("a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::AsArray() const {
  if (!IsArray()) Refuse("an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::AsObject() const {
  if (!IsObject()) Refuse("an object");
  return std::get<Object>(value_);
}

const Json& Json::operator[](std::string_view name) const {
  static const Json kNull;
  if (!IsObject()) return kNull;
  for (const auto& [key, value] : std::get<Object>(value_)) {
    if (key == name) return value;
  }
  return kNull;
}

bool Json::Bool(std::string_view name, bool usual) const { return Has(name) ? (*this)[name].AsBool() : usual; }

int64_t Json::Int(std::string_view name, int64_t usual) const { return Has(name) ? (*this)[name].AsInt() : usual; }

std::string Json::String(std::string_view name, const std::string& usual) const {
  return Has(name) ? (*this)[name].AsString() : usual;
}

std::vector<int> Json::Ints() const {
  std::vector<int> values;
  if (IsNull()) return values;
  if (!IsArray()) return {static_cast<int>(AsInt())};
  for (const Json& item : AsArray()) values.push_back(static_cast<int>(item.AsInt()));
  return values;
}

std::vector<std::string> Json::Strings() const {
  std::vector<std::string> values;
  for (const Json& item : AsArray()) values.push_back(item.AsString());
  return values;
}

std::string Json::Canonical(std::string_view omitted) const {
  if (IsNull()) return "null";
  if (IsBool()) return AsBool() ? "true" : "false";
  if (IsNumber()) return std::get<Number>(value_).text;
  std::string text;
  if (IsString()) {
    AppendQuoted(AsString(), true, text);
  } else if (IsArray()) {
    for (const Json& item : AsArray()) text += (text.empty() ? "[" : ",") + item.Canonical();
    text += text.empty() ? "[]" : "]";
  } else {
    std::vector<const std::pair<std::string, Json>*> fields;
    for (const auto& field : AsObject()) {
      if (omitted.empty() || field.first != omitted) fields.push_back(&field);
    }
    std::sort(fields.begin(), fields.end(), [](const auto* one, const auto* other) { return one->first < other->first; });
    for (const auto* field : fields) {
      text += text.empty() ? "{" : ",";
      AppendQuoted(field->first, true, text);
      text += ":" + field->second.Canonical();
    }
    text += text.empty() ? "{}" : "}";
  }
  return text;
}

std::string Json::Shown() const {
  if (IsNull()) return "None";
  if (IsBool()) return AsBool() ? "True" : "False";
  if (IsString()) return kerasformer::Shown(AsString());
  if (IsNumber()) return std::get<Number>(value_).text;
  std::string text;
  if (IsArray()) {
    for (const Json& item : AsArray()) text += (text.empty() ? "" : ", ") + item.Shown();
    return "[" + text + "]";
  }
  for (const auto& [name, value] : AsObject()) text += (text.empty() ? "" : ", ") + kerasformer::Shown(name) + ": " + value.Shown();
  return "{" + text + "}";
}

std::string Shown(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string shown(1, quote);
  for (const char c : text) {
    const size_t control = std::string_view("\n\r\t").find(c);
    if (c == quote || c == '\\') shown += '\\';
    if (control == std::string_view::npos) {
      shown += c;
    } else {
      shown += '\\';
      shown += "nrt"[control];
    }
  }
  return shown + quote;
}

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendQuoted(text, false, quoted);
  return quoted;
}

}  // namespace kerasformer
