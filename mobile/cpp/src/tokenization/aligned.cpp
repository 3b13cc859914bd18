#include "tokenization/aligned.hpp"

#include <algorithm>

namespace kerasformer {

Aligned Aligned::Of(std::string_view text) {
  Aligned aligned{std::string(text), {}};
  aligned.origins.reserve(text.size());
  int characters = 0;
  for (const char byte : text) {
    characters += !Continues(byte);
    aligned.origins.push_back({characters - 1, characters});
  }
  return aligned;
}

Aligned Aligned::Slice(size_t start, size_t end) const {
  return {text.substr(start, end - start), {origins.begin() + start, origins.begin() + end}};
}

void Aligned::Add(std::string_view part, Offsets origin) {
  text += part;
  origins.resize(text.size(), origin);
}

void Aligned::Add(const Aligned& from, size_t start, size_t end) {
  text.append(from.text, start, end - start);
  origins.insert(origins.end(), from.origins.begin() + start, from.origins.begin() + end);
}

void Rewriter::Replace(char32_t c, int more) {
  const Offsets origin = from_.origins[std::min(at_, from_.origins.size() - 1)];
  Append(c, result_.text);
  result_.origins.resize(result_.text.size(), origin);
  for (int count = 0; count <= more && at_ < from_.text.size(); ++count) at_ += CharacterBytes(from_.text[at_]);
}

void Rewriter::Insert(char32_t c) {
  const Offsets origin = at_ > 0 ? from_.origins[at_ - 1] : Offsets{0, 0};
  Append(c, result_.text);
  result_.origins.resize(result_.text.size(), origin);
}

Aligned Rewriter::Changes(const std::vector<Changed>& characters) {
  for (const auto& [c, change] : characters) {
    if (change > 0) {
      Insert(c);
    } else {
      Replace(c, -change);
    }
  }
  return Take();
}

void Rewriter::CopyTo(size_t end) {
  if (end > at_) result_.Add(from_, at_, end);
  at_ = std::max(at_, end);
}

}  // namespace kerasformer
