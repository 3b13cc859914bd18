#include "kerasformer/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "kerasformer/errors.hpp"
#include "text/files.hpp"
#include "text/unicode.hpp"
#include "tokenization/added_tokens.hpp"
#include "tokenization/decoders.hpp"
#include "tokenization/models.hpp"
#include "tokenization/normalizers.hpp"
#include "tokenization/post_processors.hpp"
#include "tokenization/pre_tokenizers.hpp"
#include "tokenization/words.hpp"

namespace kerasformer {
namespace {

constexpr size_t kShown = 10;  // the maximum number of characters in an error message

// The number of spaces at the start and the end of a token.
struct Spaces {
  int leading = 0, trailing = 0;
};

Spaces SpacesOf(std::string_view token) {
  Spaces spaces;
  int count = 0;
  bool only = true;
  for (size_t at = 0; at < token.size(); ++count) {
    const char32_t c = NextCharacter(token, at);
    const bool space = c == U'Ġ' || Is(c, kSpace);
    only = only && space;
    spaces.leading += only;
    spaces.trailing = space ? spaces.trailing + 1 : 0;
  }
  return spaces;
}

// Adds the tokens of a text, without what a template decides.
void Add(const Encoding& tokens, Encoding& result) {
  result.ids.insert(result.ids.end(), tokens.ids.begin(), tokens.ids.end());
  result.offsets.insert(result.offsets.end(), tokens.offsets.begin(), tokens.offsets.end());
  result.word_ids.insert(result.word_ids.end(), tokens.word_ids.begin(), tokens.word_ids.end());
  result.sequence_ids.insert(result.sequence_ids.end(), tokens.sequence_ids.begin(), tokens.sequence_ids.end());
}

}  // namespace

struct Tokenizer::Parts {
  Parts(const Json& content, const Json& settings)
      : settings(settings),
        normalize(NormalizerOf(content["normalizer"])),
        split(PreTokenizerOf(content["pre_tokenizer"])),
        word_rule(normalize, split),
        model(ModelOf(content["model"], !StepOf(content["pre_tokenizer"], "ByteLevel").IsNull())),
        post(PostProcessorOf(content["post_processor"])),
        decode(DecoderOf(content["decoder"])) {
    if (content.Has("added_tokens")) {
      for (const Json& each : content["added_tokens"].AsArray()) AddToken(AddedToken::Of(each));
    }
    const Json& decoder = content["decoder"];
    skips_incomplete = settings.String("errors", "") == "ignore" && decoder.Has("type") && decoder["type"].AsString() == "ByteLevel";
    cleans_spaces = settings.Bool("clean_up_tokenization_spaces", false);
    byte_fallback = model->TokenToId("<0x0A>").has_value();
    if (post.trims_offsets) {
      for (size_t id = 0; id < model->size(); ++id) {
        const std::string* token = model->IdToToken(static_cast<int>(id));
        spaces.push_back(token ? SpacesOf(*token) : Spaces{});
      }
    }
    const std::string removed = settings.String("dropped_characters", "");
    for (size_t at = 0; at < removed.size();) dropped.insert(NextCharacter(removed, at));
  }

  void AddToken(const AddedToken& token) {
    by_id[token.id] = token;
    by_content[token.content] = token.id;
    if (token.special && settings.Bool("split_special_tokens", false)) return;
    if (token.normalized) {
      normalized.Add(normalize(Aligned::Of(token.content)).text, token);
    } else {
      plain.Add(token.content, token);
    }
  }

  const std::string* TokenOf(int id) const {
    const auto found = by_id.find(id);
    return found == by_id.end() ? model->IdToToken(id) : &found->second.content;
  }

  bool IsSpecial(int id) const {
    const auto found = by_id.find(id);
    return found != by_id.end() && found->second.special;
  }

  // Adds the tokens of one text, without special tokens around it.
  void Tokenize(std::string_view text, int sequence, Encoding& tokens) const {
    if (!IsValidUtf8(text)) {
      throw InputError("a text is not valid UTF-8. Expected: Unicode in UTF-8, without surrogates. Decode its bytes first");
    }
    const Aligned whole = Aligned::Of(text);
    int word = 0;
    for (const Section& section : plain.Split(text)) {
      if (section.token) {
        AddWhole(*section.token, whole, section, word++, tokens);
        continue;
      }
      const bool all = section.start == 0 && section.end == text.size();
      const Aligned part = normalize(all ? whole : whole.Slice(section.start, section.end));
      const auto found = normalized.Split(part.text);
      for (const Section& inner : found) {
        if (inner.token) {
          AddWhole(*inner.token, part, inner, word++, tokens);
        } else {
          // Only a part of a text that was split starts where its first character does.
          const int origin = found.size() == 1 ? whole.origins[section.start].start : part.origins[inner.start].start;
          AddWords(found.size() == 1 ? part : part.Slice(inner.start, inner.end), origin, word, tokens);
        }
      }
    }
    std::fill(tokens.sequence_ids.begin(), tokens.sequence_ids.end(), sequence);
    word_rule.Apply(text, tokens, [this](int id) {
      const auto found = by_id.find(id);
      return found == by_id.end() ? nullptr : &found->second.content;
    });
    if (!dropped.empty()) CheckCharacters(text, tokens);
  }

  void AddWhole(const AddedToken& token, const Aligned& text, const Section& section, int word, Encoding& tokens) const {
    const Spaces around = post.trims_offsets ? SpacesOf(std::string_view(text.text).substr(section.start, section.end - section.start))
                                             : Spaces{};
    AddTo(tokens, token.id, {text.origins[section.start].start, text.origins[section.end - 1].end}, around, word);
  }

  void AddWords(Aligned text, int origin, int& word, Encoding& tokens) const {
    Words words{std::move(text), {}};
    words.words.push_back({0, words.text.text.size(), origin});
    split(words);
    std::vector<Piece> pieces;
    for (const Word& each : words.words) {
      model->Tokenize(std::string_view(words.text.text).substr(each.start, each.end - each.start), pieces);
      for (const auto& [id, start, end] : pieces) {
        const Offsets offsets = {words.text.origins[each.start + start].start, words.text.origins[each.start + end - 1].end};
        AddTo(tokens, id, offsets, post.trims_offsets ? spaces[id] : Spaces{}, word);
      }
      ++word;
    }
  }

  void AddTo(Encoding& tokens, int id, Offsets offsets, Spaces around, int word) const {
    if (around.leading > 0) {
      // A single space before the text may have been added, and is then no part of it.
      const bool added = around.leading == 1 && post.adds_prefix_space && (tokens.ids.empty() || offsets.start == 0);
      offsets.start = std::min(offsets.start + (added ? 0 : around.leading), offsets.end);
    }
    if (around.trailing > 0 && offsets.end >= around.trailing) offsets.end = std::max(offsets.end - around.trailing, offsets.start);
    tokens.ids.push_back(id);
    tokens.offsets.push_back(offsets);
    tokens.word_ids.push_back(word);
    tokens.sequence_ids.push_back(0);
  }

  // The tokens of one or two texts, with special tokens around them.
  Encoding Joined(const Encoding (&texts)[2], bool is_pair, bool add_special_tokens) const {
    const std::vector<TemplatePart> plain = {{{}, 0, 0}, {{}, 1, post.one_segment ? 0 : 1}};
    Encoding result;
    for (const TemplatePart& part : !add_special_tokens ? plain : is_pair ? post.pair : post.single) {
      if (part.sequence >= 0) {
        Add(texts[part.sequence], result);
        result.special_tokens_mask.resize(result.size(), 0);
      } else {
        result.ids.insert(result.ids.end(), part.ids.begin(), part.ids.end());
        result.offsets.resize(result.size());
        result.word_ids.resize(result.size(), -1);
        result.sequence_ids.resize(result.size(), -1);
        result.special_tokens_mask.resize(result.size(), 1);
      }
      result.type_ids.resize(result.size(), part.type_id);
    }
    for (size_t index = 0; index < result.size(); ++index) result.positions.push_back(static_cast<int>(index));
    return result;
  }

  // Throws if an unknown token contains characters that were removed from the vocabulary.
  void CheckCharacters(std::string_view text, const Encoding& tokens) const {
    std::set<char32_t> found;
    for (size_t index = 0; index < tokens.ids.size(); ++index) {
      if (tokens.ids[index] != model->unknown()) continue;
      const std::string part = normalize(Aligned::Of(Between(text, tokens.offsets[index]))).text;
      for (size_t at = 0; at < part.size();) {
        const char32_t c = NextCharacter(part, at);
        if (dropped.count(c)) found.insert(c);
      }
    }
    if (found.empty()) return;
    std::string shown;
    size_t count = 0;
    for (const char32_t c : found) {
      if (count++ == kShown) break;
      if (!shown.empty()) shown += ", ";
      Append(c, shown);
    }
    const std::string more = found.size() > kShown ? " and " + std::to_string(found.size() - kShown) + " more" : "";
    throw InputError(
        "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the languages "
        "for which it was pruned. Received: " + shown + more + ". Change it, or use the original model");
  }

  Json settings;
  Normalizer normalize;
  PreTokenizer split;
  WordRule word_rule;
  std::unique_ptr<Model> model;
  PostProcessor post;
  Decoder decode;
  std::unordered_map<int, AddedToken> by_id;
  std::unordered_map<std::string, int> by_content;
  AddedTokens plain, normalized;  // those found in the text itself, and those found after its normalization
  std::vector<Spaces> spaces;     // by id
  std::set<char32_t> dropped;
  bool skips_incomplete, cleans_spaces, byte_fallback;
};

Tokenizer::Tokenizer(const Json& content, const Json& settings) {
  try {
    parts_ = std::make_unique<Parts>(content, settings);
  } catch (const std::invalid_argument& error) {
    throw TokenizerError(std::string("tokenizer.json is damaged: ") + error.what());
  } catch (const std::out_of_range&) {
    throw TokenizerError("tokenizer.json is damaged: a list is too short");
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::Open(const std::string& folder, const std::string& file) {
  const auto read = [&](const std::string& name) {
    try {
      return Json::Parse(ReadFile(folder, name));
    } catch (const std::invalid_argument& error) {
      throw TokenizerError(name + " is damaged: " + error.what());
    }
  };
  const bool has_settings = std::filesystem::exists(std::filesystem::path(folder) / "tokenizer_config.json");
  const Json settings = has_settings ? read("tokenizer_config.json") : Json();
  if (!std::filesystem::exists(std::filesystem::path(folder) / file) && has_settings) {
    throw TokenizerError("this library cannot tokenize texts as this model does: the rules of " +
                         settings.String("tokenizer_class", "its tokenizer") +
                         " cannot be written as tokenizer.json. Run it in Python");
  }
  return Tokenizer(read(file), settings);
}

Encoding Tokenizer::Encode(std::string_view text, std::optional<std::string_view> pair, bool add_special_tokens) const {
  Encoding texts[2];
  parts_->Tokenize(text, 0, texts[0]);
  if (pair) parts_->Tokenize(*pair, 1, texts[1]);
  return parts_->Joined(texts, pair.has_value(), add_special_tokens);
}

Encoding Tokenizer::EncodeWords(const std::vector<std::string>& words, bool add_special_tokens) const {
  Encoding texts[2];
  for (size_t index = 0; index < words.size(); ++index) {
    Encoding word;
    parts_->Tokenize(words[index], 0, word);
    std::fill(word.word_ids.begin(), word.word_ids.end(), static_cast<int>(index));
    Add(word, texts[0]);
  }
  return parts_->Joined(texts, false, add_special_tokens);
}

std::string Tokenizer::Decode(const std::vector<int>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  std::string bytes;
  for (const int id : ids) {
    const std::string* token = parts_->TokenOf(id);
    if (!token || (skip_special_tokens && parts_->IsSpecial(id))) continue;
    if (parts_->skips_incomplete) {
      bytes += parts_->by_id.count(id) ? *token : BytesOf(*token).value_or("");
    } else {
      tokens.push_back(*token);
    }
  }
  std::string text;
  if (parts_->skips_incomplete) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = ValidCharacterBytes(bytes, at);
      text += bytes.substr(at, count);
      at += std::max<size_t>(count, 1);
    }
    return text;
  }
  if (tokens.empty()) return text;
  for (const std::string& part : parts_->decode(std::move(tokens))) text += part;
  if (parts_->cleans_spaces) {
    for (const std::string pattern : {" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"}) {
      const std::string stripped = pattern.substr(1, pattern.find_last_not_of(' '));
      for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, at + stripped.size())) {
        text.replace(at, pattern.size(), stripped);
      }
    }
  }
  return text;
}

std::optional<int> Tokenizer::TokenToId(std::string_view token) const {
  const auto found = parts_->by_content.find(std::string(token));
  return found == parts_->by_content.end() ? parts_->model->TokenToId(token) : std::optional(found->second);
}

std::optional<std::string> Tokenizer::IdToToken(int id) const {
  const std::string* token = parts_->TokenOf(id);
  return token ? std::optional(*token) : std::nullopt;
}

std::vector<std::pair<std::string, int>> Tokenizer::Vocabulary() const {
  std::vector<std::pair<std::string, int>> tokens;
  int last = static_cast<int>(parts_->model->size());
  for (const auto& [id, token] : parts_->by_id) last = std::max(last, id + 1);
  for (int id = 0; id < last; ++id) {
    const std::string* token = parts_->TokenOf(id);
    if (token) tokens.emplace_back(*token, id);
  }
  return tokens;
}

bool Tokenizer::IsSpecial(int id) const { return parts_->IsSpecial(id); }

std::optional<std::string> Tokenizer::Named(const std::string& name) const {
  const Json& value = parts_->settings[name];
  if (value.IsNull()) return std::nullopt;
  return value.IsString() ? value.AsString() : value["content"].AsString();
}

bool Tokenizer::TruncatesLeft() const { return parts_->settings.String("truncation_side", "right") == "left"; }

bool Tokenizer::HasByteFallback() const { return parts_->byte_fallback; }

bool Tokenizer::CleansSpaces() const { return parts_->cleans_spaces; }

std::string_view Between(std::string_view text, Offsets offsets) {
  size_t start = 0, end = 0;
  int count = 0;
  for (size_t at = 0; at < text.size() && count < offsets.end; ++count) {
    if (count == offsets.start) start = at;
    at += CharacterBytes(text[at]);
    end = std::min(at, text.size());
  }
  return offsets.start < offsets.end && count > offsets.start ? text.substr(start, end - start) : std::string_view();
}

}  // namespace kerasformer
