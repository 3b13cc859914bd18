#include <algorithm>

#include "kerasformer/tokenizer.hpp"
#include "tokenization/models.hpp"

namespace kerasformer {
namespace {

// Enough context for decoders that treat the first token of a text differently.
constexpr size_t kContext = 4, kWindow = 32;
// The longest pattern that the clean-up of spaces replaces has four characters, plus one for its replacement.
constexpr size_t kCleanUpReach = 5;
constexpr std::string_view kIncomplete = "\uFFFD";

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special_tokens) : tokenizer_(tokenizer), skips_(skip_special_tokens) {}

std::string TextStream::Put(const std::vector<int>& ids) {
  for (const int id : ids) {
    if (tokenizer_.IdToToken(id) && !(skips_ && tokenizer_.IsSpecial(id))) ids_.push_back(id);
  }
  const std::string text = tokenizer_.Decode(ids_);
  const size_t certain = std::min(Certain(text), text.size());
  const std::string piece = certain > sent_ ? text.substr(sent_, certain - sent_) : "";
  sent_ = std::max(sent_, certain);
  if (certain == text.size() && ids_.size() > kWindow) {
    // All text has been returned, and further text depends only on the last tokens.
    ids_.erase(ids_.begin(), ids_.end() - kContext);
    sent_ = tokenizer_.Decode(ids_).size();
  }
  return piece;
}

std::string TextStream::End() {
  const std::string text = tokenizer_.Decode(ids_);
  const std::string piece = text.size() > sent_ ? text.substr(sent_) : "";
  ids_.clear();
  sent_ = 0;
  return piece;
}

// The length of the text that later tokens cannot change.
size_t TextStream::Certain(const std::string& text) const {
  if (tokenizer_.HasByteFallback()) {
    size_t run = ids_.size();
    while (run > 0 && ByteOf(tokenizer_.IdToToken(ids_[run - 1]).value_or("")) >= 0) --run;
    // A run of byte tokens can only be decoded as a whole.
    if (run < ids_.size()) return tokenizer_.Decode({ids_.begin(), ids_.begin() + run}).size();
  }
  size_t certain = text.size();
  // U+FFFD at the end means that the last character is incomplete so far.
  if (certain >= kIncomplete.size() && text.compare(certain - kIncomplete.size(), kIncomplete.size(), kIncomplete) == 0) {
    certain -= kIncomplete.size();
  }
  if (!tokenizer_.CleansSpaces()) return certain;
  // Counts characters, each of which has one or more bytes.
  size_t from = certain;
  for (size_t count = 0; count < kCleanUpReach && from > 0; ++count) {
    do {
      --from;
    } while (from > 0 && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80);
  }
  const size_t space = text.find(' ', from);
  return space == std::string::npos ? certain : std::min(space, certain);
}

}  // namespace kerasformer
