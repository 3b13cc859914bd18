#include "tokenization/pre_tokenizers.hpp"

#include <memory>

#include "kerasformer/errors.hpp"
#include "text/unicode.hpp"

namespace kerasformer {
namespace {

// Splits words as GPT-2 does.
constexpr std::string_view kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What becomes of the separators between words.
enum class Behavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };

Behavior BehaviorOf(const std::string& name) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  throw TokenizerError("unsupported behavior of a split in tokenizer.json. Received: " + name);
}

// A part of a word: a separator or the text between two of them.
struct Part {
  size_t start, end;
  bool separates;
};

// Calls a function with start and end of each separator in a text.
using Separators = std::function<void(std::string_view text, const std::function<void(size_t, size_t)>& found)>;

bool JoinsPrevious(Behavior behavior, bool before, bool separates) {
  if (behavior == Behavior::kContiguous) return before == separates;
  if (behavior == Behavior::kMergedWithPrevious) return separates && !before;
  return behavior == Behavior::kMergedWithNext && !separates && before;
}

// Splits each word at separators, or, if inverted, at the text between them.
void Split(Words& words, const Separators& separators, Behavior behavior, bool inverted) {
  std::vector<Word> split;
  std::vector<Part> parts;
  for (const Word& word : words.words) {
    const std::string_view text = std::string_view(words.text.text).substr(word.start, word.end - word.start);
    parts.clear();
    size_t last = 0;
    const auto add = [&](size_t start, size_t end, bool separates) {
      if (start < end) parts.push_back({start, end, separates != inverted});
    };
    separators(text, [&](size_t start, size_t end) {
      add(last, start, false);
      add(start, end, true);
      last = end;
    });
    add(last, text.size(), false);
    const size_t first = split.size();
    bool before = false;
    for (const auto& [start, end, separates] : parts) {
      if (behavior == Behavior::kRemoved && separates) continue;
      if (split.size() > first && JoinsPrevious(behavior, before, separates)) {
        split.back().end = word.start + end;
      } else {
        split.push_back({word.start + start, word.start + end, words.text.origins[word.start + start].start});
      }
      before = separates;
    }
  }
  words.words = std::move(split);
}

Separators Matching(std::shared_ptr<Pattern> pattern) {
  return [pattern](std::string_view text, const std::function<void(size_t, size_t)>& found) { pattern->ForEach(text, found); };
}

// Each character with a property is a separator.
Separators Having(Property property) {
  return [property](std::string_view text, const std::function<void(size_t, size_t)>& found) {
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      if (Is(NextCharacter(text, at), property)) found(start, at);
    }
  };
}

PreTokenizer Splitting(Separators separators, Behavior behavior, bool inverted = false) {
  return [=](Words& words) { Split(words, separators, behavior, inverted); };
}

// Splits into runs of letters and digits, and runs of other characters that are no spaces.
void SplitWordsAndOthers(Words& words) {
  std::vector<Word> split;
  for (const Word& word : words.words) {
    int before = 0;  // 1 for a letter, 2 for another character, 0 for a space
    for (size_t at = word.start; at < word.end;) {
      const size_t start = at;
      const char32_t c = NextCharacter(words.text.text, at);
      const int kind = Is(c, kWord) ? 1 : Is(c, kSpace) ? 0 : 2;
      if (kind != 0 && kind == before) {
        split.back().end = at;
      } else if (kind != 0) {
        split.push_back({start, at, words.text.origins[start].start});
      }
      before = kind;
    }
  }
  words.words = std::move(split);
}

// Puts a prefix before each word for which a condition is true.
template <class Condition>
void Prefix(Words& words, std::string_view prefix, const Condition& wanted) {
  Words result;
  for (const Word& word : words.words) {
    const size_t start = result.text.text.size();
    if (wanted(word)) result.text.Add(prefix, words.text.origins[word.start]);
    result.text.Add(words.text, word.start, word.end);
    result.words.push_back({start, result.text.text.size(), word.origin});
  }
  words = std::move(result);
}

bool StartsWith(const Words& words, const Word& word, std::string_view prefix) {
  return words.text.text.compare(word.start, std::min(prefix.size(), word.end - word.start), prefix) == 0;
}

PreTokenizer ByteLevel(const Json& config) {
  const bool prefixes = config.Bool("add_prefix_space", true), splits = config.Bool("use_regex", true);
  const auto pattern = std::make_shared<Pattern>(Pattern::Of(kByteLevelWords));
  return [=](Words& words) {
    if (prefixes) Prefix(words, " ", [&](const Word& word) { return !StartsWith(words, word, " "); });
    if (splits) Split(words, Matching(pattern), Behavior::kIsolated, false);
  };
}

PreTokenizer Metaspace(const Json& config) {
  const std::string space = config.String("replacement", "▁");
  const std::string scheme = config.String("prepend_scheme", config.Bool("add_prefix_space", true) ? "always" : "never");
  const bool splits = config.Bool("split", true);
  const auto pattern = std::make_shared<Pattern>(Pattern::Literal(space));
  return [=](Words& words) {
    Words replaced;
    for (const Word& word : words.words) {
      const size_t start = replaced.text.text.size();
      for (size_t at = word.start; at < word.end;) {
        const size_t stop = std::min(words.text.text.find(' ', at), word.end);
        replaced.text.Add(words.text, at, stop);
        if (stop < word.end) replaced.text.Add(space, words.text.origins[stop]);
        at = stop + 1;
      }
      replaced.words.push_back({start, replaced.text.text.size(), word.origin});
    }
    words = std::move(replaced);
    if (scheme != "never") {
      Prefix(words, space, [&](const Word& word) {
        return (scheme != "first" || word.origin == 0) && !StartsWith(words, word, space);
      });
    }
    if (splits) Split(words, Matching(pattern), Behavior::kMergedWithNext, false);
  };
}

PreTokenizer SplitAtPattern(const Json& config) {
  const Json& regular = config["pattern"]["Regex"];
  const auto pattern = std::make_shared<Pattern>(regular.IsNull() ? Pattern::Literal(config["pattern"]["String"].AsString())
                                                                  : Pattern::Of(regular.AsString()));
  return Splitting(Matching(pattern), BehaviorOf(config["behavior"].AsString()), config.Bool("invert", false));
}

PreTokenizer Digits(const Json& config) {
  const bool individual = config.Bool("individual_digits", false);
  return Splitting(Having(kNumeric), individual ? Behavior::kIsolated : Behavior::kContiguous);
}

PreTokenizer All(const Json& configs) {
  std::vector<PreTokenizer> steps;
  for (const Json& config : configs.AsArray()) {
    if (&config != &configs.AsArray().back() && !StepOf(config, "ByteLevel").IsNull()) {
      throw TokenizerError("unsupported pre-tokenizer in tokenizer.json: ByteLevel was expected as the last step");
    }
    steps.push_back(PreTokenizerOf(config));
  }
  return [=](Words& words) {
    for (const PreTokenizer& step : steps) step(words);
  };
}

}  // namespace

PreTokenizer PreTokenizerOf(const Json& config) {
  if (config.IsNull()) return [](Words&) {};
  const std::string& type = config["type"].AsString();
  if (type == "Sequence") return All(config["pretokenizers"]);
  if (type == "ByteLevel") return ByteLevel(config);
  if (type == "Metaspace") return Metaspace(config);
  if (type == "Split") return SplitAtPattern(config);
  if (type == "Digits") return Digits(config);
  if (type == "Whitespace") return SplitWordsAndOthers;
  if (type == "WhitespaceSplit") return Splitting(Having(kSpace), Behavior::kRemoved);
  if (type == "Punctuation") return Splitting(Having(kPunctuation), BehaviorOf(config.String("behavior", "Isolated")));
  if (type == "CharDelimiterSplit") {
    const auto pattern = std::make_shared<Pattern>(Pattern::Literal(config["delimiter"].AsString()));
    return Splitting(Matching(pattern), Behavior::kRemoved);
  }
  if (type == "BertPreTokenizer") {
    const PreTokenizer spaces = Splitting(Having(kSpace), Behavior::kRemoved);
    const PreTokenizer punctuation = Splitting(Having(kPunctuation), Behavior::kIsolated);
    return [=](Words& words) {
      spaces(words);
      punctuation(words);
    };
  }
  throw TokenizerError("unsupported pre-tokenizer in tokenizer.json. Received: " + type);
}

const Json& StepOf(const Json& config, std::string_view type) {
  static const Json kNull;
  if (config["type"].IsString() && config["type"].AsString() == type) return config;
  for (const char* steps : {"normalizers", "pretokenizers", "processors", "decoders"}) {
    if (!config.Has(steps)) continue;
    for (const Json& each : config[steps].AsArray()) {
      const Json& found = StepOf(each, type);
      if (!found.IsNull()) return found;
    }
  }
  return kNull;
}

}  // namespace kerasformer
