// The regular expressions of `tokenizer.json`, in the syntax of Oniguruma as far as tokenizers use it: classes, categories,
// groups, repetition, alternatives, anchors, and looking ahead and behind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kerasformer {

class Pattern {
 public:
  // Throws `TokenizerError` for a part that is unsupported. A literal pattern matches the text itself.
  static Pattern Of(std::string_view expression);
  static Pattern Literal(std::string_view text);

  ~Pattern();
  Pattern(Pattern&&) noexcept;

  // Calls a function with start and end of each non-empty match, from left to right.
  void ForEach(std::string_view text, const std::function<void(size_t start, size_t end)>& found) const;

 private:
  struct Program;
  explicit Pattern(std::unique_ptr<Program> program);

  std::unique_ptr<Program> program_;
};

}  // namespace kerasformer
