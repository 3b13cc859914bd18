#include "tokenization/decoders.hpp"

#include <memory>

#include "kerasformer/errors.hpp"
#include "text/utf8.hpp"
#include "tokenization/models.hpp"
#include "tokenization/pattern.hpp"

namespace kerasformer {
namespace {

using Texts = std::vector<std::string>;

// Changes each token by itself.
template <class Change>
Decoder Each(Change change) {
  return [change](Texts tokens) {
    for (size_t index = 0; index < tokens.size(); ++index) tokens[index] = change(std::move(tokens[index]), index, tokens.size());
    return tokens;
  };
}

std::string Replaced(const std::string& text, const Pattern& pattern, const std::string& content) {
  std::string result;
  size_t last = 0;
  pattern.ForEach(text, [&](size_t start, size_t end) {
    result += text.substr(last, start - last) + content;
    last = end;
  });
  return result + text.substr(last);
}

// The text of byte-level tokens; a token with other characters is its own text.
Texts ByteLevel(const Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += BytesOf(token).value_or(token);
  return {WithReplacements(bytes)};
}

// Converts runs of tokens of bytes; each byte of a run that is not valid UTF-8 becomes U+FFFD.
Texts ByteFallback(const Texts& tokens) {
  Texts result;
  std::string run;
  const auto flush = [&] {
    if (IsValidUtf8(run)) {
      if (!run.empty()) result.push_back(run);
    } else {
      result.insert(result.end(), run.size(), "\uFFFD");
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    const int byte = ByteOf(token);
    if (byte >= 0) {
      run += static_cast<char>(byte);
    } else {
      flush();
      result.push_back(token);
    }
  }
  flush();
  return result;
}

Texts Fused(const Texts& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {text};
}

Decoder Metaspace(const Json& config) {
  const std::string space = config.String("replacement", "▁");
  const bool prepends = config.String("prepend_scheme", config.Bool("add_prefix_space", true) ? "always" : "never") != "never";
  const auto pattern = std::make_shared<Pattern>(Pattern::Literal(space));
  return Each([=](const std::string& token, size_t index, size_t) {
    // The space that was put before the text is not a part of it.
    const bool cut = index == 0 && prepends;
    std::string text;
    size_t last = 0;
    pattern->ForEach(token, [&](size_t start, size_t end) {
      text += token.substr(last, start - last) + (cut ? "" : " ");
      last = end;
    });
    return text + token.substr(last);
  });
}

std::string CleanedUp(std::string text) {
  static const std::pair<const char*, const char*> kChanges[] = {
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kChanges) text = Replaced(text, Pattern::Literal(from), to);
  return text;
}

Decoder WordPiece(const Json& config) {
  const std::string prefix = config.String("prefix", "##");
  const bool cleans = config.Bool("cleanup", true);
  return Each([=](std::string token, size_t index, size_t) {
    if (index > 0) token = token.compare(0, prefix.size(), prefix) == 0 ? token.substr(prefix.size()) : " " + token;
    return cleans ? CleanedUp(std::move(token)) : token;
  });
}

Decoder WordsWithSuffix(const Json& config) {
  const auto suffix = std::make_shared<Pattern>(Pattern::Literal(config.String("suffix", "</w>")));
  return Each([=](const std::string& token, size_t index, size_t count) {
    return Replaced(token, *suffix, index + 1 == count ? "" : " ");
  });
}

Decoder Replacing(const Json& config) {
  const Json& regular = config["pattern"]["Regex"];
  const auto pattern = std::make_shared<Pattern>(regular.IsNull() ? Pattern::Literal(config["pattern"]["String"].AsString())
                                                                  : Pattern::Of(regular.AsString()));
  const std::string content = config["content"].AsString();
  return Each([=](const std::string& token, size_t, size_t) { return Replaced(token, *pattern, content); });
}

// Removes up to some characters at the ends of each token.
Decoder Stripping(const Json& config) {
  const std::string content = config["content"].AsString();
  const auto left = config.Int("start", 0), right = config.Int("stop", 0);
  return Each([=](const std::string& token, size_t, size_t) {
    size_t start = 0, end = token.size();
    for (int64_t count = 0; count < left && token.compare(start, content.size(), content) == 0; ++count) start += content.size();
    for (int64_t count = 0; count < right && end >= start + content.size(); ++count) {
      if (token.compare(end - content.size(), content.size(), content) != 0) break;
      end -= content.size();
    }
    return token.substr(start, end - start);
  });
}

Decoder All(const Json& configs) {
  std::vector<Decoder> steps;
  for (const Json& config : configs.AsArray()) steps.push_back(DecoderOf(config));
  return [=](Texts tokens) {
    for (const Decoder& step : steps) tokens = step(std::move(tokens));
    return tokens;
  };
}

}  // namespace

Decoder DecoderOf(const Json& config) {
  if (config.IsNull()) return Each([](const std::string& token, size_t index, size_t) { return (index ? " " : "") + token; });
  const std::string& type = config["type"].AsString();
  if (type == "Sequence") return All(config["decoders"]);
  if (type == "ByteLevel") return ByteLevel;
  if (type == "ByteFallback") return ByteFallback;
  if (type == "Fuse") return Fused;
  if (type == "Metaspace") return Metaspace(config);
  if (type == "WordPiece") return WordPiece(config);
  if (type == "BPEDecoder") return WordsWithSuffix(config);
  if (type == "Replace") return Replacing(config);
  if (type == "Strip") return Stripping(config);
  throw TokenizerError("unsupported decoder in tokenizer.json. Received: " + type);
}

}  // namespace kerasformer
