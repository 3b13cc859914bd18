// Entities of types that are named in the call, with a model of GLiNER, as `kerasformer.pipelines.span_extraction` finds them. The
// model reads the names of the types, each after a mark, a separator, and the words of the text. It scores the spans of up to
// `max_width` words for each type.
#include <algorithm>
#include <cmath>
#include <set>

#include "engines/models.hpp"
#include "tasks/parts.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

// A word of a text.
struct TextWord {
  std::string text;
  Offsets offsets;
};

// A span of words with its type.
struct Candidate {
  int first, last, label;
  float score;  // as in Python, where those of very certain spans are equal
};

// A letter, a digit or an underscore, `\w` of Python's patterns.
bool IsOfWord(char32_t c) {
  const char category = kCategories[CategoryOf(c)][0];
  return category == 'L' || category == 'N' || c == U'_';
}

// A space of Python's patterns.
bool IsSpace(char32_t c) { return Is(c, kSpace) || (c >= 0x1c && c <= 0x1f); }

// The words of a text, perhaps with hyphens, and other characters that are no spaces: `\w+(?:[-_]\w+)*|\S` in Python.
std::vector<TextWord> WordsOf(std::string_view text) {
  std::vector<TextWord> words;
  bool open = false;  // whether the last word can continue
  int index = 0;
  for (size_t at = 0; at < text.size(); ++index) {
    const size_t start = at;
    const char32_t c = NextCharacter(text, at);
    size_t behind = at;
    const bool joins = open && c == U'-' && at < text.size() && IsOfWord(NextCharacter(text, behind));
    const bool continues = joins || IsOfWord(c);
    if (!IsSpace(c)) {
      if (!(open && continues)) words.push_back({"", {index, index}});
      words.back().text += text.substr(start, at - start);
      words.back().offsets.end = index + 1;
    }
    open = continues;
  }
  return words;
}

std::vector<std::string> TextsOf(const std::vector<TextWord>& words) {
  std::vector<std::string> texts;
  for (const TextWord& word : words) texts.push_back(word.text);
  return texts;
}

void CheckLabels(const std::vector<std::string>& labels, const std::string& mark, const std::string& separator, std::optional<int> most) {
  const auto is_empty = [](const std::string& label) {
    for (size_t at = 0; at < label.size();) {
      if (!IsSpace(NextCharacter(label, at))) return false;
    }
    return true;
  };
  if (labels.empty() || std::any_of(labels.begin(), labels.end(), is_empty)) {
    throw InputError("labels must be names of types, such as ['person', 'city'], none of them empty. Received: " + Json(labels).Shown());
  }
  std::set<std::string> known, several;
  for (const std::string& label : labels) {
    if (!known.insert(label).second) several.insert(label);
  }
  if (!several.empty()) {
    std::string shown;
    for (const std::string& label : several) shown += (shown.empty() ? "" : ", ") + Shown(label);
    throw InputError("labels must differ. Received several times: " + shown);
  }
  for (const std::string& label : labels) {
    if (label.find(mark) != std::string::npos || label.find(separator) != std::string::npos) {
      throw InputError("labels must not contain " + mark + " or " + separator + ". Received: " + Shown(label));
    }
  }
  if (most && static_cast<int>(labels.size()) > *most) {
    throw CapacityError("The bundle reads at most " + std::to_string(*most) + " labels in one call. Received: " +
                            std::to_string(labels.size()) + ". Call it several times, or export the model with a larger num_labels",
                        *most, labels.size());
  }
}

// The index of the first word of a text after so many labels, their marks and the separator.
int FirstWord(size_t labels) { return 2 * static_cast<int>(labels) + 1; }

// The number of words of a text that the model can read: a word counts if all of its tokens fit.
int Fitting(const Encoding& tokens, size_t labels, std::optional<int> limit, int most) {
  const int first = FirstWord(labels), size = static_cast<int>(tokens.size());
  int last = size - 1;
  while (tokens.word_ids[last] < 0) --last;
  const int space = limit ? *limit - (size - 1 - last) : last + 1;  // without special tokens at the end
  const int cut = space <= last ? tokens.word_ids[std::max(space, 0)] : tokens.word_ids[last] + 1;
  const int count = std::min(cut - first, most);
  if (count >= 1) return count;
  const auto needed = std::count_if(tokens.word_ids.begin(), tokens.word_ids.end(), [&](int word) { return word >= 0 && word < first; });
  throw CapacityError("The labels leave no space for a text. Expected: fewer than " + std::to_string(limit.value_or(0)) +
                          " tokens with special tokens. Received: " + std::to_string(needed) + " tokens of " + std::to_string(labels) +
                          " labels. Pass fewer labels, or shorter ones",
                      limit.value_or(0), needed);
}

// The slots of the first tokens of words, and of the marks of labels.
Slots SlotsOf(const Encoding& tokens, size_t labels, size_t words) {
  std::vector<int64_t> first(FirstWord(labels) + words, -1);
  for (size_t slot = 0; slot < tokens.size(); ++slot) {
    const int word = tokens.word_ids[slot];
    if (word >= 0 && first[word] < 0) first[word] = static_cast<int64_t>(slot);
  }
  Slots slots{{first.begin() + FirstWord(labels), first.end()}, {}};
  for (size_t label = 0; label < labels; ++label) slots.labels.push_back(first[2 * label]);
  return slots;
}

// The spans whose probability exceeds a threshold, the most probable first. `logits` are those of the spans of `k + 1` words from
// each word, for each label: `(W, K, C)`.
std::vector<Candidate> Candidates(const std::vector<float>& logits, int words, int labels, double threshold) {
  const int widths = static_cast<int>(logits.size()) / words / labels;
  std::vector<Candidate> found;
  for (int index = 0; index < static_cast<int>(logits.size()); ++index) {
    const int first = index / labels / widths, last = first + index / labels % widths;
    const auto score = static_cast<float>(Sigmoid({logits[index]})[0]);
    if (score > static_cast<float>(threshold) && last < words) found.push_back({first, last, index % labels, score});
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& one, const Candidate& other) { return one.score > other.score; });
  return found;
}

// The spans that do not conflict with a more probable one, in the order of the text. If they are `flat`, spans that overlap conflict
// even if one of them lies within the other; a span may have `several` labels.
std::vector<Candidate> WithoutConflicts(const std::vector<Candidate>& spans, bool flat, bool several) {
  std::vector<Candidate> chosen;
  std::set<std::pair<int, int>> known;
  for (const Candidate& span : spans) {
    const auto conflicts = [&](const std::pair<int, int>& other) {
      const auto [first, last] = other;
      const bool within = (first <= span.first && span.last <= last) || (span.first <= first && last <= span.last);
      return first <= span.last && span.first <= last && (flat || !within);
    };
    if (known.count({span.first, span.last}) ? !several : std::any_of(known.begin(), known.end(), conflicts)) continue;
    known.insert({span.first, span.last});
    chosen.push_back(span);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const Candidate& one, const Candidate& other) { return one.first < other.first; });
  return chosen;
}

}  // namespace

std::vector<Entity> TextModel::Entities(std::string_view text, const std::vector<std::string>& labels, const SpanOptions& options) {
  const Json &info = parts_->manifest.info, &spans = info["spans"];
  if (spans.IsNull()) {
    throw InputError("zero-shot-token-classification needs a model of GLiNER. Received: " + info.String("name", ""));
  }
  const std::string mark = spans["label_token"].AsString(), separator = spans["separator"].AsString();
  CheckLabels(labels, mark, separator, spans.Has("max_labels") ? std::optional(static_cast<int>(spans["max_labels"].AsInt())) : std::nullopt);
  if (!(options.threshold >= 0 && options.threshold <= 1)) {
    throw InputError("threshold must be a number from 0 to 1. Received: threshold=" + Json(options.threshold).Shown());
  }
  const Tokenizer& tokenizer = parts_->tokenizer;
  std::vector<TextWord> words = WordsOf(text);
  // Without those that the tokenizer removes, such as control characters.
  const Encoding alone = tokenizer.EncodeWords(TextsOf(words), false);
  const std::set<int> present(alone.word_ids.begin(), alone.word_ids.end());
  std::vector<TextWord> kept;
  for (size_t index = 0; index < words.size(); ++index) {
    if (present.count(static_cast<int>(index))) kept.push_back(std::move(words[index]));
  }
  if (kept.empty()) return {};
  std::vector<std::string> prompt;
  for (const std::string& label : labels) prompt.insert(prompt.end(), {mark, label});
  prompt.push_back(separator);
  const auto read = [&] {
    std::vector<std::string> all = prompt;
    for (const TextWord& word : kept) all.push_back(word.text);
    return tokenizer.EncodeWords(all);
  };
  Encoding tokens = read();
  const int most = static_cast<int>(spans["max_words"].AsInt());
  const auto limit = parts_->MaxLength();
  const auto count = static_cast<size_t>(Fitting(tokens, labels.size(), limit, most));
  if (count < kept.size()) {
    if (!options.truncation) {
      const std::string fitting = limit ? std::to_string(*limit) : "any number of";
      throw CapacityError("A text is too long. Expected: at most " + std::to_string(most) + " words and, with the labels, " + fitting +
                              " tokens. Received: " + std::to_string(kept.size()) + " words, of which " + std::to_string(count) +
                              " can be read with these labels. Split the text, or pass truncation=True to omit its last words",
                          limit.value_or(0), tokens.size());
    }
    kept.resize(count);
    tokens = read();
  }
  const Slots slots = SlotsOf(tokens, labels.size(), kept.size());
  const auto logits = parts_->Forward(tokens, slots).at("span_logits");
  const auto found = Candidates(logits, static_cast<int>(kept.size()), static_cast<int>(labels.size()), options.threshold);
  std::vector<Entity> entities;
  for (const auto& [first, last, label, score] : WithoutConflicts(found, options.flat_ner, options.multi_label)) {
    const Offsets span = {kept[first].offsets.start, kept[last].offsets.end};
    entities.push_back({labels[label], score, static_cast<int>(slots.words[first]), std::string(Between(text, span)), span.start, span.end});
  }
  return entities;
}

}  // namespace kerasformer
