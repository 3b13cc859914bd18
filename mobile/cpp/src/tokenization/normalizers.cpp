#include "tokenization/normalizers.hpp"

#include <algorithm>
#include <memory>

#include "kerasformer/errors.hpp"
#include "text/unicode.hpp"
#include "tokenization/charsmap.hpp"
#include "tokenization/pattern.hpp"

namespace kerasformer {
namespace {

bool IsAscii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

// Decomposes characters, and orders the marks after each of them.
std::vector<Changed> Decomposed(const std::string& text, bool compatible) {
  std::vector<Changed> characters;
  size_t marks = 0;  // the start of the marks at the end
  const auto add = [&](char32_t c, int change) {
    characters.push_back({c, change});
    const int number = CombiningClass(c);
    if (number == 0) {
      marks = characters.size();
      return;
    }
    for (size_t at = characters.size() - 1; at > marks && CombiningClass(characters[at - 1].c) > number; --at) {
      std::swap(characters[at - 1], characters[at]);
    }
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCharacter(text, at);
    const auto parts = Decomposition(c, compatible);
    if (parts.empty()) add(c, 0);
    for (size_t index = 0; index < parts.size(); ++index) add(parts[index], index > 0);
  }
  return characters;
}

// Composes each character with the marks and letters after it, unless others lie between.
void Compose(std::vector<Changed>& characters) {
  size_t starter = std::string::npos, size = 0;
  int last = -1;  // the class of the character before, or -1 directly after the starter
  for (const Changed next : characters) {
    const int number = CombiningClass(next.c);
    const bool reachable = starter != std::string::npos && last < number;
    const char32_t whole = reachable ? Composition(characters[starter].c, next.c) : 0;
    if (whole) {
      characters[starter] = {whole, characters[starter].change + next.change - 1};
      continue;
    }
    if (number == 0) starter = size;
    last = number == 0 ? -1 : number;
    characters[size++] = next;
  }
  characters.resize(size);
}

Aligned Normalized(Aligned from, bool composed, bool compatible) {
  if (IsAscii(from.text)) return from;
  auto characters = Decomposed(from.text, compatible);
  if (composed) Compose(characters);
  return Rewriter(from).Changes(characters);
}

Aligned WithoutProperty(Aligned from, Property property) {
  if (IsAscii(from.text)) return from;
  Rewriter rewriter(from);
  for (size_t at = 0; at < from.text.size();) {
    const bool removed = Is(NextCharacter(from.text, at), property);
    if (removed) {
      rewriter.SkipTo(at);
    } else {
      rewriter.CopyTo(at);
    }
  }
  return rewriter.Take();
}

Aligned LowerCased(const Aligned& from) {
  Rewriter rewriter(from);
  for (size_t at = 0; at < from.text.size();) {
    const auto lower = LowerCase(NextCharacter(from.text, at));
    if (lower.empty()) {
      rewriter.CopyTo(at);
    } else {
      rewriter.Replace(lower[0]);
      for (const char32_t c : lower.substr(1)) rewriter.Insert(c);
    }
  }
  return rewriter.Take();
}

// The blocks of Chinese characters that BERT treats as words.
bool IsChinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

Aligned Cleaned(const Aligned& from) {
  Rewriter rewriter(from);
  for (size_t at = 0; at < from.text.size();) {
    const char32_t c = NextCharacter(from.text, at);
    if (Is(c, kControl)) {
      rewriter.SkipTo(at);
    } else if (Is(c, kSpace)) {
      rewriter.Replace(' ');
    } else {
      rewriter.CopyTo(at);
    }
  }
  return rewriter.Take();
}

Aligned WithChineseWords(Aligned from) {
  if (IsAscii(from.text)) return from;
  Rewriter rewriter(from);
  for (size_t at = 0; at < from.text.size();) {
    const char32_t c = NextCharacter(from.text, at);
    if (IsChinese(c)) {
      rewriter.Replace(' ');
      rewriter.Insert(c);
      rewriter.Insert(' ');
    } else {
      rewriter.CopyTo(at);
    }
  }
  return rewriter.Take();
}

Normalizer BertNormalizer(const Json& config) {
  const bool cleans = config.Bool("clean_text", true), chinese = config.Bool("handle_chinese_chars", true);
  const bool lower = config.Bool("lowercase", true), strips = config.Bool("strip_accents", lower);
  return [=](Aligned text) {
    if (cleans) text = Cleaned(text);
    if (chinese) text = WithChineseWords(std::move(text));
    if (strips) text = WithoutProperty(Normalized(std::move(text), false, false), kNonSpacingMark);
    return lower ? LowerCased(text) : text;
  };
}

Normalizer Replacing(const Json& config) {
  const Json& regular = config["pattern"]["Regex"];
  const auto pattern = std::make_shared<Pattern>(regular.IsNull() ? Pattern::Literal(config["pattern"]["String"].AsString())
                                                                  : Pattern::Of(regular.AsString()));
  const std::string content = config["content"].AsString();
  return [=](Aligned text) {
    Rewriter rewriter(text);
    pattern->ForEach(text.text, [&](size_t start, size_t end) {
      rewriter.CopyTo(start);
      rewriter.SkipTo(end);
      for (size_t at = 0; at < content.size();) rewriter.Insert(NextCharacter(content, at));
    });
    if (rewriter.At() == 0) return text;
    rewriter.CopyTo(text.text.size());
    return rewriter.Take();
  };
}

Normalizer Stripping(const Json& config) {
  const bool left = config.Bool("strip_left", true), right = config.Bool("strip_right", true);
  return [=](Aligned text) {
    const size_t end = right ? TrailingSpaces(text.text) : text.text.size();
    const size_t start = left ? std::min(LeadingSpaces(text.text), end) : 0;
    return text.Slice(start, end);
  };
}

Normalizer Prepending(const std::string& prefix) {
  return [=](Aligned text) {
    if (text.text.empty()) return text;
    Aligned result;
    result.Add(prefix, text.origins[0]);
    result.Add(text, 0, text.text.size());
    return result;
  };
}

Normalizer All(const Json& configs) {
  std::vector<Normalizer> steps;
  for (const Json& config : configs.AsArray()) steps.push_back(NormalizerOf(config));
  return [=](Aligned text) {
    for (const Normalizer& step : steps) text = step(std::move(text));
    return text;
  };
}

}  // namespace

Normalizer NormalizerOf(const Json& config) {
  if (config.IsNull()) return [](Aligned text) { return text; };
  const std::string& type = config["type"].AsString();
  if (type == "Sequence") return All(config["normalizers"]);
  if (type == "BertNormalizer") return BertNormalizer(config);
  if (type == "Replace") return Replacing(config);
  if (type == "Strip") return Stripping(config);
  if (type == "Prepend") return Prepending(config["prepend"].AsString());
  if (type == "Lowercase") return LowerCased;
  if (type == "StripAccents") return [](Aligned text) { return WithoutProperty(std::move(text), kMark); };
  if (type == "NFC") return [](Aligned text) { return Normalized(std::move(text), true, false); };
  if (type == "NFD") return [](Aligned text) { return Normalized(std::move(text), false, false); };
  if (type == "NFKC") return [](Aligned text) { return Normalized(std::move(text), true, true); };
  if (type == "NFKD") return [](Aligned text) { return Normalized(std::move(text), false, true); };
  if (type == "Precompiled") {
    const auto charsmap = std::make_shared<Charsmap>(config["precompiled_charsmap"].AsString());
    return [=](Aligned text) { return charsmap->Normalize(std::move(text)); };
  }
  throw TokenizerError("unsupported normalizer in tokenizer.json. Received: " + type);
}

}  // namespace kerasformer
