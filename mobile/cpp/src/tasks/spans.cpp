// Tasks that find parts of a text: named entities, and answers to questions.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "tasks/parts.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

// A token, or the tokens of a word, with the scores of the classes.
struct Piece {
  Vector scores;
  int start, end, index, word;
};

size_t Best(const Vector& scores) { return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin()); }

double Highest(const Vector& scores) { return scores[Best(scores)]; }

bool Has(std::string_view letters, char letter) { return letters.find(letter) != std::string_view::npos; }

// A label such as "B-PER": its place in an entity, "I" for labels without one, and the type of the entity.
struct Tag {
  Tag(const std::string& label, std::string_view places) {
    const bool has_place = label.size() > 1 && label[1] == '-' && Has(places, label[0]);
    place = has_place ? label[0] : 'I';
    kind = has_place ? label.substr(2) : label;
  }

  // Whether a token belongs to the same entity as the token before it.
  bool Continues(const Tag& before) const { return kind == before.kind && !Has("BSU", place) && !Has("ESLU", before.place); }

  char place;
  std::string kind;
};

// The letters before a hyphen that are places in entities: "B" and "I", and those of a scheme that has all letters.
std::string PlacesOf(const std::vector<std::string>& labels) {
  std::string found;
  for (const std::string& label : labels) {
    if (label.size() > 1 && label[1] == '-') found += label[0];
  }
  for (const std::string_view scheme : {"BIES", "BMES", "BILU"}) {
    const bool known = Has(found, 'B') || Has(found, 'I');
    if (known && found.find_first_not_of(scheme) == std::string::npos) return "BI" + std::string(scheme);
  }
  return "BI";
}

// Merges the tokens of a word into one piece.
Piece Merged(const std::vector<Piece>& tokens, const std::string& strategy) {
  Piece merged = tokens[0];
  merged.end = tokens.back().end;
  for (size_t index = 1; index < tokens.size(); ++index) {
    const Vector& scores = tokens[index].scores;
    if (strategy == "max" && Highest(scores) > Highest(merged.scores)) merged.scores = scores;
    for (size_t label = 0; strategy == "average" && label < scores.size(); ++label) merged.scores[label] += scores[label];
  }
  if (strategy == "average") {
    for (double& score : merged.scores) score /= static_cast<double>(tokens.size());
  }
  return merged;
}

std::vector<Piece> WordsOf(const std::vector<Piece>& pieces, const std::string& strategy) {
  std::vector<Piece> words;
  for (size_t first = 0, last = 0; first < pieces.size(); first = last) {
    while (last < pieces.size() && pieces[last].word == pieces[first].word) ++last;
    words.push_back(Merged({pieces.begin() + first, pieces.begin() + last}, strategy));
  }
  return words;
}

// Groups neighbouring pieces of one entity.
std::vector<Entity> Groups(const std::vector<Piece>& pieces, const std::vector<std::string>& labels, std::string_view text) {
  std::vector<Entity> entities;
  std::vector<int> counts;
  const std::string places = PlacesOf(labels);
  std::optional<Tag> last;
  for (const Piece& piece : pieces) {
    const Tag tag(labels.at(Best(piece.scores)), places);
    if (!last || !tag.Continues(*last)) {
      entities.push_back({tag.kind, 0, piece.index, "", piece.start, piece.end});
      counts.push_back(0);
    }
    last = tag;
    entities.back().score += Highest(piece.scores);
    entities.back().end = piece.end;
    ++counts.back();
  }
  for (size_t index = 0; index < entities.size(); ++index) {
    entities[index].score /= counts[index];
    entities[index].word = Between(text, {entities[index].start, entities[index].end});
  }
  return entities;
}

// The longest of overlapping entities; of equally long ones, that with the highest score.
std::vector<Entity> WithoutOverlaps(std::vector<Entity> entities) {
  std::stable_sort(entities.begin(), entities.end(), [](const Entity& one, const Entity& other) { return one.start < other.start; });
  std::vector<Entity> kept;
  for (const Entity& entity : entities) {
    if (kept.empty() || entity.start >= kept.back().end) {
      kept.push_back(entity);
      continue;
    }
    const int longer = (entity.end - entity.start) - (kept.back().end - kept.back().start);
    if (longer > 0 || (longer == 0 && entity.score > kept.back().score)) kept.back() = entity;
  }
  return kept;
}

constexpr int kChunkLength = 384;  // tokens of question and context together
constexpr double kNever = -1e4;
constexpr int kSpans = 20;  // number of candidates in one chunk

struct Span {
  size_t first, last;
  double score;
};

// The most probable spans of one chunk.
std::vector<Span> BestSpans(const Vector& starts, const Vector& ends, const std::vector<bool>& allowed, size_t longest, int count) {
  std::vector<Span> spans;
  for (size_t first = 1; first < starts.size(); ++first) {
    for (size_t last = first; last < std::min(first + longest, ends.size()); ++last) {
      const double score = starts[first] * ends[last];
      if (allowed[first] && allowed[last] && score > 0) spans.push_back({first, last, score});
    }
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& one, const Span& other) { return one.score > other.score; });
  if (spans.size() > static_cast<size_t>(count)) spans.resize(count);
  return spans;
}

Vector Allowed(const std::vector<float>& logits, const std::vector<bool>& allowed) {
  Vector values;
  for (size_t index = 0; index < allowed.size(); ++index) values.push_back(allowed[index] ? logits[index] : kNever);
  return Softmax(values);
}

// The span without spaces at its ends.
Offsets Trimmed(std::string_view text, Offsets span) {
  const std::string_view part = Between(text, span);
  const size_t end = TrailingSpaces(part), start = std::min(LeadingSpaces(part), end);
  if (start == end && !part.empty()) return {span.end, span.end};
  return {span.start + static_cast<int>(CountCharacters(part.substr(0, start))),
          span.end - static_cast<int>(CountCharacters(part.substr(end)))};
}

}  // namespace

std::vector<Entity> TextModel::Tokens(std::string_view text, const EntityOptions& options) {
  const std::string& strategy = options.aggregation_strategy;
  CheckOneOf("aggregation_strategy", strategy, {"none", "simple", "first", "average", "max"});
  CheckOneOf("combine", options.combine, {"tokens", "entities"});
  if (options.combine == "entities" && strategy == "none") {
    throw InputError("combine='entities' needs an aggregation strategy other than 'none', which returns tokens. Received: "
                     "aggregation_strategy='none'");
  }
  const std::vector<std::string> labels = parts_->manifest.info["labels"].Strings();
  const auto chunks = parts_->ChunksOf(text, options.length);
  std::vector<std::vector<Vector>> scores;
  for (const Encoding& chunk : chunks) {
    scores.push_back(Rows(parts_->Forward(chunk).at("logits"), chunk.size()));
    for (Vector& row : scores.back()) row = Softmax(row);
  }
  const auto pieces = [&](const std::vector<Location>& locations) {
    std::vector<Piece> found;
    for (const auto& [chunk, index] : locations) {
      const Encoding& tokens = chunks[chunk];
      if (tokens.sequence_ids[index] < 0) continue;
      found.push_back({scores[chunk][index], tokens.offsets[index].start, tokens.offsets[index].end, tokens.positions[index], tokens.word_ids[index]});
    }
    return found;
  };
  const auto grouped = [&](const std::vector<Piece>& tokens) {
    return Groups(strategy == "simple" ? tokens : WordsOf(tokens, strategy), labels, text);
  };
  std::vector<Entity> entities;
  if (strategy == "none") {
    for (const Piece& piece : pieces(BestLocations(chunks))) {
      entities.push_back({labels.at(Best(piece.scores)), Highest(piece.scores), piece.index,
                          std::string(Between(text, {piece.start, piece.end})), piece.start, piece.end});
    }
  } else if (options.combine == "tokens" || chunks.size() == 1) {
    entities = grouped(pieces(BestLocations(chunks)));
  }
  const auto ignored = [&](const Entity& entity) {
    return std::count(options.ignore_labels.begin(), options.ignore_labels.end(), entity.entity) > 0;
  };
  const bool by_chunk = options.combine == "entities" && chunks.size() > 1;
  for (size_t chunk = 0; by_chunk && chunk < chunks.size(); ++chunk) {
    std::vector<Location> all;
    for (size_t index = 0; index < chunks[chunk].size(); ++index) all.push_back({chunk, index});
    const auto found = grouped(pieces(all));
    std::copy_if(found.begin(), found.end(), std::back_inserter(entities), [&](const Entity& entity) { return !ignored(entity); });
  }
  if (by_chunk) return WithoutOverlaps(std::move(entities));
  entities.erase(std::remove_if(entities.begin(), entities.end(), ignored), entities.end());
  return entities;
}

std::vector<Answer> TextModel::AnswerQuestion(std::string_view question, std::string_view context, const AnswerOptions& options) {
  CheckInteger("top_k", options.top_k, 1, std::nullopt);
  CheckInteger("doc_stride", options.doc_stride, 0, std::nullopt);
  CheckInteger("max_answer_len", options.max_answer_len, 1, std::nullopt);
  if (context.empty()) throw InputError("The context must not be empty. Received: an empty text");
  const Tokenizer& tokenizer = parts_->tokenizer;
  const auto longest = parts_->MaxLength();
  if (options.chunk_length) CheckInteger("chunk_length", *options.chunk_length, 1, longest);
  const int limit = options.chunk_length.value_or(std::min(kChunkLength, longest.value_or(kChunkLength)));
  const int length = static_cast<int>(tokenizer.Encode(question, std::nullopt, false).size());
  const int room = limit - length - static_cast<int>(tokenizer.Encode("", "").size());
  if (room < 1) {
    throw InputError("The question leaves no space for the context. Expected at most " + std::to_string(limit) +
                     " tokens for both together. Received: a question of " + std::to_string(length) + " tokens. Shorten the question");
  }
  const auto chunks = Chunks(tokenizer.Encode(question, context), {limit, Truncation::Strategy::kOnlySecond,
                                                                  std::min(options.doc_stride, room / 2), tokenizer.TruncatesLeft()});
  std::map<std::pair<int, int>, double> candidates;  // the same span from two chunks counts once
  double none = std::numeric_limits<double>::infinity();
  for (const Encoding& tokens : chunks) {
    const auto outputs = parts_->Forward(tokens);
    std::vector<bool> allowed;  // the score of the first token is that of "no answer"
    for (size_t index = 0; index < tokens.size(); ++index) allowed.push_back(tokens.sequence_ids[index] == 1 || index == 0);
    const Vector starts = Allowed(outputs.at("start_logits"), allowed), ends = Allowed(outputs.at("end_logits"), allowed);
    none = std::min(none, starts[0] * ends[0]);
    for (const auto& [first, last, score] : BestSpans(starts, ends, allowed, options.max_answer_len, std::max(kSpans, options.top_k))) {
      const auto [start, end] = Trimmed(context, {tokens.offsets[first].start, tokens.offsets[last].end});
      double& best = candidates[{start, end}];
      best = std::max(best, score);
    }
  }
  std::vector<Answer> answers;
  for (const auto& [span, score] : candidates) {
    answers.push_back({score, span.first, span.second, std::string(Between(context, {span.first, span.second}))});
  }
  if (options.handle_impossible_answer || answers.empty()) answers.push_back({none, 0, 0, ""});
  std::stable_sort(answers.begin(), answers.end(), [](const Answer& one, const Answer& other) { return one.score > other.score; });
  if (answers.size() > static_cast<size_t>(options.top_k)) answers.resize(options.top_k);
  return answers;
}

}  // namespace kerasformer
