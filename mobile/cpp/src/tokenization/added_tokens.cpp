#include "tokenization/added_tokens.hpp"

#include <algorithm>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t at = PreviousStart(text, text.size());
  return Is(NextCharacter(text, at), kWord);
}

bool StartsWithWord(std::string_view text) {
  size_t at = 0;
  return !text.empty() && Is(NextCharacter(text, at), kWord);
}

}  // namespace

AddedToken AddedToken::Of(const Json& config) {
  AddedToken token;
  token.id = static_cast<int>(config["id"].AsInt());
  token.content = config["content"].AsString();
  token.single_word = config.Bool("single_word", false);
  token.lstrip = config.Bool("lstrip", false);
  token.rstrip = config.Bool("rstrip", false);
  token.special = config.Bool("special", false);
  token.normalized = config.Bool("normalized", !token.special);
  return token;
}

void AddedTokens::Add(const std::string& form, const AddedToken& token) {
  if (form.empty()) return;
  auto& forms = forms_[static_cast<unsigned char>(form[0])];
  const auto longer = [&](const auto& other) { return other.first.size() < form.size(); };
  forms.emplace(std::find_if(forms.begin(), forms.end(), longer), form, token);
}

const AddedToken* AddedTokens::At(std::string_view text, size_t at, size_t& length) const {
  for (const auto& [form, token] : forms_[static_cast<unsigned char>(text[at])]) {
    length = form.size();
    if (text.compare(at, length, form) == 0) return &token;
  }
  return nullptr;
}

std::vector<Section> AddedTokens::Split(std::string_view text) const {
  std::vector<Section> sections;
  size_t last = 0, length = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = At(text, at, length);
    if (!token) {
      ++at;
      continue;
    }
    size_t start = at, end = at + length;
    at = end;
    if (token->single_word && (EndsWithWord(text.substr(0, start)) || StartsWithWord(text.substr(end)))) continue;
    if (token->lstrip) start = std::max(TrailingSpaces(text.substr(0, start)), last);
    if (token->rstrip) end += LeadingSpaces(text.substr(end));
    // A token without `lstrip` may be found again in the spaces that the one before it took.
    if (last < start) sections.push_back({last, start, nullptr});
    sections.push_back({start, end, token});
    last = end;
  }
  if (last < text.size()) sections.push_back({last, text.size(), nullptr});
  return sections;
}

}  // namespace kerasformer
