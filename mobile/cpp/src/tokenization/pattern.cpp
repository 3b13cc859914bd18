#include "tokenization/pattern.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "kerasformer/errors.hpp"
#include "kerasformer/json.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr int kUnbounded = std::numeric_limits<int>::max();
constexpr int kMostRepetitions = 2000;  // of a group; each one needs a part of the stack

// A set of characters.
struct Set {
  bool negated = false;
  uint32_t categories = 0, properties = 0;
  std::vector<std::pair<char32_t, char32_t>> ranges;
  std::vector<Set> parts;         // sets whose characters belong to this one
  std::vector<Set> intersection;  // sets that must contain a character too
  uint64_t ascii[2] = {0, 0};     // the same answers for characters below 128, see `Finish`

  bool Matches(char32_t c) const {
    bool inside = ((categories >> CategoryOf(c)) & 1) != 0 || Is(c, properties);
    for (const auto& [first, last] : ranges) inside = inside || (first <= c && c <= last);
    for (const Set& part : parts) inside = inside || part.Matches(c);
    for (const Set& other : intersection) inside = inside && other.Matches(c);
    return inside != negated;
  }

  void Finish() {
    for (char32_t c = 0; c < 128; ++c) ascii[c / 64] |= static_cast<uint64_t>(Matches(c)) << (c % 64);
  }

  bool Has(char32_t c) const { return c < 128 ? ((ascii[c / 64] >> (c % 64)) & 1) != 0 : Matches(c); }
};

struct Node;
using Sequence = std::vector<Node>;

// A part of an expression: a set of characters or a group, which may be repeated, or a condition.
struct Node {
  enum class Kind { kSet, kGroup, kAhead, kBehind, kTextStart, kTextEnd, kLineStart, kLineEnd };
  Kind kind = Kind::kSet;
  bool negated = false;                   // of a look around
  bool lazy = false, possessive = false;  // of a repetition
  int least = 1, most = 1;                // number of repetitions
  size_t width = 0;                       // the most characters that a look behind reads
  Set set;
  std::vector<Sequence> alternatives;
};

// A reference to a function that returns the end of a match after a position, or `kNone`.
class Then {
 public:
  template <class Function>
  explicit Then(const Function& function)
      : function_(&function),
        call_([](const void* object, size_t at) { return (*static_cast<const Function*>(object))(at); }) {}

  size_t operator()(size_t at) const { return call_(function_, at); }

 private:
  const void* function_;
  size_t (*call_)(const void*, size_t);
};

// Tries to match an expression by backtracking.
class Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text) {}

  // The end of a match of any of several sequences, or `kNone`.
  size_t Any(const std::vector<Sequence>& alternatives, size_t at, const Then& then) const {
    for (const Sequence& alternative : alternatives) {
      const size_t end = All(alternative, 0, at, then);
      if (end != kNone) return end;
    }
    return kNone;
  }

 private:
  // The end of a match of the parts from an index on, and of what follows them.
  size_t All(const Sequence& sequence, size_t index, size_t at, const Then& then) const {
    for (; index < sequence.size(); ++index) {
      const Node& node = sequence[index];
      const bool once = node.least == 1 && node.most == 1;
      if (node.kind == Node::Kind::kSet && once) {
        if (at >= text_.size() || !node.set.Has(NextCharacter(text_, at))) return kNone;
      } else if (node.kind == Node::Kind::kSet || node.kind == Node::Kind::kGroup) {
        const auto rest = [&](size_t next) { return All(sequence, index + 1, next, then); };
        if (node.kind == Node::Kind::kSet) return Repeated(node, at, Then(rest));
        return once ? Any(node.alternatives, at, Then(rest)) : Group(node, 0, at, Then(rest));
      } else if (!Holds(node, at)) {
        return kNone;
      }
    }
    return then(at);
  }

  size_t Repeated(const Node& node, size_t at, const Then& then) const {
    int count = 0;
    const auto more = [&] {
      size_t next = at;
      if (count == node.most || at >= text_.size() || !node.set.Has(NextCharacter(text_, next))) return false;
      at = next;
      ++count;
      return true;
    };
    if (node.lazy) {
      do {
        const size_t end = count < node.least ? kNone : then(at);
        if (end != kNone) return end;
      } while (more());
      return kNone;
    }
    while (more()) {
    }
    for (; count >= node.least; --count) {
      const size_t end = then(at);
      if (end != kNone || node.possessive || count == 0) return end;
      at = PreviousStart(text_, at);
    }
    return kNone;
  }

  // Matches a group that has been repeated `count` times.
  size_t Group(const Node& node, int count, size_t at, const Then& then) const {
    if (count == kMostRepetitions) throw InputError("a text repeats a group of a split pattern too often. Split the text");
    size_t end = node.lazy && count >= node.least ? then(at) : kNone;
    if (end != kNone) return end;
    const auto again = [&](size_t next) {
      return next == at && count >= node.least ? kNone : Group(node, count + 1, next, then);
    };
    if (count < node.most) end = Any(node.alternatives, at, Then(again));
    return end == kNone && !node.lazy && count >= node.least ? then(at) : end;
  }

  bool Holds(const Node& node, size_t at) const {
    const size_t size = text_.size();
    switch (node.kind) {
      case Node::Kind::kTextStart:
        return at == 0;
      case Node::Kind::kTextEnd:
        return at == size;
      case Node::Kind::kLineStart:
        return at == 0 || (at < size && text_[at - 1] == '\n');
      case Node::Kind::kLineEnd:
        return at < size ? text_[at] == '\n' : size == 0 || text_[size - 1] != '\n';
      case Node::Kind::kAhead: {
        const auto found = [](size_t end) { return end; };
        return (Any(node.alternatives, at, Then(found)) != kNone) != node.negated;
      }
      default: {
        const auto here = [at](size_t end) { return end == at ? at : kNone; };
        size_t start = at;
        for (size_t back = 0; back <= node.width; ++back) {
          if (Any(node.alternatives, start, Then(here)) != kNone) return !node.negated;
          if (start == 0) break;
          start = PreviousStart(text_, start);
        }
        return node.negated;
      }
    }
  }

  const std::string_view text_;
};

class Parser {
 public:
  explicit Parser(std::string_view expression) : text_(expression) {}

  std::vector<Sequence> Whole() {
    auto alternatives = Alternatives();
    if (at_ != text_.size()) Refuse("a parenthesis that is not open");
    return alternatives;
  }

 private:
  [[noreturn]] void Refuse(const std::string& part) const {
    throw TokenizerError("unsupported part of a regular expression in tokenizer.json: " + part + ". Received: " +
                         Quoted(text_) + ", at byte " + std::to_string(at_));
  }

  bool Take(std::string_view part) {
    if (text_.substr(at_, part.size()) != part) return false;
    at_ += part.size();
    return true;
  }

  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  char32_t Next() {
    if (AtEnd()) Refuse("an end inside of a part");
    return NextCharacter(text_, at_);
  }

  std::vector<Sequence> Alternatives() {
    std::vector<Sequence> alternatives(1);
    while (!AtEnd() && Peek() != ')') {
      if (Take("|")) {
        alternatives.emplace_back();
      } else {
        Node node = Part();
        Repeat(node);
        if (node.kind == Node::Kind::kSet) node.set.Finish();
        alternatives.back().push_back(std::move(node));
      }
    }
    return alternatives;
  }

  Node Part() {
    Node node;
    const auto condition = [&](Node::Kind kind) {
      node.kind = kind;
      return node;
    };
    if (Take("(")) return Group();
    if (Take("\\A")) return condition(Node::Kind::kTextStart);
    if (Take("\\z")) return condition(Node::Kind::kTextEnd);
    if (Take("^")) return condition(Node::Kind::kLineStart);
    if (Take("$")) return condition(Node::Kind::kLineEnd);
    if (Take("[")) {
      node.set = Class();
    } else if (Take(".")) {
      node.set.negated = true;
      node.set.ranges = {{'\n', '\n'}};
    } else if (Take("\\")) {
      Escape(node.set);
    } else {
      AddCharacter(Next(), node.set);
    }
    return node;
  }

  Node Group() {
    Node node;
    node.kind = Node::Kind::kGroup;
    const bool outside = ignores_case_;
    if (Take("?i:")) {
      ignores_case_ = true;
    } else if (Take("?=") || Take("?!")) {
      node.kind = Node::Kind::kAhead;
      node.negated = text_[at_ - 1] == '!';
    } else if (Take("?<=") || Take("?<!")) {
      node.kind = Node::Kind::kBehind;
      node.negated = text_[at_ - 1] == '!';
    } else if (!Take("?:") && Peek() == '?') {
      Refuse("a kind of group");
    }
    node.alternatives = Alternatives();
    if (!Take(")")) Refuse("a parenthesis that is not closed");
    ignores_case_ = outside;
    if (node.kind == Node::Kind::kBehind) node.width = Width(node.alternatives);
    return node;
  }

  size_t Width(const std::vector<Sequence>& alternatives) const {
    size_t widest = 0;
    for (const Sequence& sequence : alternatives) {
      size_t width = 0;
      for (const Node& node : sequence) {
        if (node.most == kUnbounded) Refuse("looking behind for a text of any length");
        const bool reads = node.kind == Node::Kind::kSet || node.kind == Node::Kind::kGroup;
        if (reads) width += node.most * (node.kind == Node::Kind::kSet ? 1 : Width(node.alternatives));
      }
      widest = std::max(widest, width);
    }
    return widest;
  }

  void Repeat(Node& node) {
    const size_t start = at_;
    bool counted = false;
    if (Take("?")) {
      node.least = 0;
    } else if (Take("*")) {
      node.least = 0;
      node.most = kUnbounded;
    } else if (Take("+")) {
      node.most = kUnbounded;
    } else if (Peek() == '{') {
      counted = Counts(node);
    }
    if (at_ == start) return;
    if (node.kind != Node::Kind::kSet && node.kind != Node::Kind::kGroup) Refuse("a repeated condition");
    if (Take("?")) node.lazy = true;
    if (std::string_view("?*+").find(Peek()) == std::string_view::npos || AtEnd()) return;
    if (node.lazy || counted || node.kind != Node::Kind::kSet || !Take("+")) Refuse("a repeated repetition");
    node.possessive = true;
  }

  // Reads `{2}`, `{2,}`, `{,3}` or `{2,3}`; other braces stand for themselves.
  bool Counts(Node& node) {
    const size_t start = at_++;
    const int least = Number(0);
    const bool separated = Take(",");
    const int most = separated ? Number(kUnbounded) : least;
    if (!Take("}") || at_ - start < 3) {
      at_ = start;
      return false;
    }
    node.least = least;
    node.most = most;
    return true;
  }

  int Number(int usual) {
    int value = usual;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc()) at_ = end - text_.data();
    return value;
  }

  // Reads a class after its bracket.
  Set Class() {
    Set set;
    set.negated = Take("^");
    for (bool first = true; first || Peek() != ']'; first = false) {
      if (Take("[")) {
        if (Peek() == ':') Refuse("a class with a name");
        set.parts.push_back(Class());
      } else if (Take("&&")) {
        // The rest of the class is the other side; its bracket also ends this class.
        Set other = Class();
        set.intersection.push_back(std::move(other));
        return set;
      } else {
        ClassItem(set);
      }
    }
    Take("]");
    return set;
  }

  void ClassItem(Set& set) {
    char32_t first = 0;
    if (!Take("\\")) {
      first = Next();
    } else if (!EscapedCharacter(first)) {
      Escape(set);
      return;
    }
    char32_t last = first;
    if (Peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
      Take("-");
      if (!Take("\\")) {
        last = Next();
      } else if (!EscapedCharacter(last)) {
        Refuse("a range that ends in a class");
      }
    }
    if (first == last) {
      AddCharacter(first, set);
    } else {
      set.ranges.emplace_back(first, last);
    }
  }

  void AddCharacter(char32_t c, Set& set) const {
    set.ranges.emplace_back(c, c);
    if (!ignores_case_) return;
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c >= 128) Refuse("a letter beyond ASCII without regard to case");
    if (letter) set.ranges.emplace_back(c ^ 0x20, c ^ 0x20);
    if ((c | 0x20) == 's') set.ranges.emplace_back(0x17f, 0x17f);  // the long s
    if ((c | 0x20) == 'k') set.ranges.emplace_back(0x212a, 0x212a);  // the sign of Kelvin
  }

  // Reads an escaped character after its backslash, if it is one character.
  bool EscapedCharacter(char32_t& c) {
    static constexpr std::string_view kNames = "nrtfvae", kValues = "\n\r\t\f\v\a\x1b";
    const size_t control = kNames.find(Peek());
    if (Take("x{")) {
      c = Hexadecimal(text_.substr(at_, text_.substr(at_).find('}')));
      Take("}");
    } else if (Take("x")) {
      c = Hexadecimal(text_.substr(at_, 2));
    } else if (Take("u")) {
      c = Hexadecimal(text_.substr(at_, 4));
    } else if (control != std::string_view::npos) {
      c = kValues[control];
      ++at_;
    } else if ((Peek() & 0x80) == 0 && Peek() != '_' && Is(Peek(), kPatternWord)) {
      return false;  // a letter or digit, which names a class
    } else {
      c = Next();
    }
    return true;
  }

  char32_t Hexadecimal(std::string_view digits) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) Refuse("an escaped code");
    at_ += digits.size();
    return value;
  }

  // Adds an escaped character or class after its backslash.
  void Escape(Set& set) {
    char32_t c = 0;
    if (EscapedCharacter(c)) return AddCharacter(c, set);
    const char name = static_cast<char>(Next());
    const bool negated = name >= 'A' && name <= 'Z';
    Set named;
    switch (name | 0x20) {
      case 's':
        named.properties = kSpace;
        break;
      case 'w':
        named.properties = kPatternWord;
        break;
      case 'd':
        named.categories = Categories("Nd");
        break;
      case 'p': {
        const size_t close = text_.substr(at_).find('}');
        if (Peek() != '{' || close == std::string_view::npos) Refuse("a category without braces");
        ++at_;
        named.negated = Take("^");
        const std::string_view category = text_.substr(at_, text_.substr(at_).find('}'));
        named.categories = Categories(category);
        at_ += category.size() + 1;
        break;
      }
      default:
        Refuse(std::string("the escaped character ") + name);
    }
    named.negated = named.negated != negated;
    set.parts.push_back(std::move(named));
  }

  // The bits of the categories whose names start with a text.
  uint32_t Categories(std::string_view name) const {
    uint32_t bits = 0;
    for (size_t index = 0; index < kCategories.size(); ++index) {
      if (!name.empty() && kCategories[index].compare(0, name.size(), name) == 0) bits |= 1u << index;
    }
    if (bits == 0) Refuse("the category " + std::string(name));
    return bits;
  }

  const std::string_view text_;
  size_t at_ = 0;
  bool ignores_case_ = false;
};

}  // namespace

struct Pattern::Program {
  std::vector<Sequence> alternatives;  // of an expression
  std::string literal;
};

Pattern::Pattern(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

Pattern Pattern::Of(std::string_view expression) {
  return Pattern(std::make_unique<Program>(Program{Parser(expression).Whole(), {}}));
}

Pattern Pattern::Literal(std::string_view text) {
  return Pattern(std::make_unique<Program>(Program{{}, std::string(text)}));
}

void Pattern::ForEach(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  const std::string& literal = program_->literal;
  if (program_->alternatives.empty()) {
    for (size_t at = literal.empty() ? kNone : text.find(literal); at != kNone; at = text.find(literal, at + literal.size())) {
      found(at, at + literal.size());
    }
    return;
  }
  const Matcher matcher(text);
  const auto accept = [](size_t end) { return end; };
  for (size_t at = 0; at < text.size();) {
    const size_t end = matcher.Any(program_->alternatives, at, Then(accept));
    if (end != kNone && end > at) {
      found(at, end);
      at = end;
    } else {
      at += CharacterBytes(text[at]);
    }
  }
}

}  // namespace kerasformer
