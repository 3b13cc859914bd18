#include "tasks/parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "engines/models.hpp"

namespace kerasformer {

std::optional<int> TextModel::Parts::MaxLength() const {
  return manifest.info.Has("max_length") ? std::optional(static_cast<int>(manifest.info["max_length"].AsInt())) : std::nullopt;
}

std::vector<Encoding> TextModel::Parts::ChunksOf(std::string_view text, const Length& length) const {
  const int special = static_cast<int>(tokenizer.Encode("").size());
  const auto longest = MaxLength();
  if (length.chunk_length) CheckInteger("chunk_length", *length.chunk_length, special + 1, longest);
  const auto limit = length.chunk_length ? length.chunk_length : longest;
  const Encoding tokens = tokenizer.Encode(text);
  if (!limit) return {tokens};
  Truncation truncation{*limit, Truncation::Strategy::kOnlyFirst, 0, tokenizer.TruncatesLeft()};
  if (!length.truncation) {
    const int room = *limit - special;
    if (length.stride) CheckInteger("stride", *length.stride, 0, room - 1);
    truncation.stride = length.stride.value_or(room / 4);
  }
  auto chunks = Chunks(tokens, truncation);
  if (length.truncation) chunks.resize(1);
  return chunks;
}

Encoding TextModel::Parts::Whole(std::string_view text, bool truncation, std::optional<std::string_view> pair) const {
  const Encoding tokens = tokenizer.Encode(text, pair);
  const auto limit = MaxLength();
  if (!limit || static_cast<int>(tokens.size()) <= *limit) return tokens;
  if (truncation) return Chunks(tokens, {*limit, Truncation::Strategy::kLongestFirst, 0, tokenizer.TruncatesLeft()})[0];
  throw CapacityError("A text exceeds the model's maximum length. Expected at most " + std::to_string(*limit) + " tokens. Received: " +
                          std::to_string(tokens.size()) + ". Shorten it, or pass truncation=True to truncate it.",
                      *limit, tokens.size());
}

std::vector<std::vector<Encoding>> TextModel::Parts::ChunksOfPairs(std::string_view text, const std::vector<std::string>& others,
                                                                   const Length& length, bool is_first,
                                                                   Truncation::Strategy cut) const {
  size_t most = 0;
  for (const std::string& other : others) most = std::max(most, tokenizer.Encode(other, std::nullopt, false).size());
  const int kept = static_cast<int>(length.truncation ? tokenizer.Encode("").size() : tokenizer.Encode("", "").size() + most);
  const auto longest = MaxLength();
  if (length.chunk_length) CheckInteger("chunk_length", *length.chunk_length, kept + 1, longest);
  const auto limit = length.chunk_length ? length.chunk_length : longest;
  Truncation truncation{limit.value_or(0), cut, 0, tokenizer.TruncatesLeft()};
  if (limit && !length.truncation) {
    if (kept >= *limit) {
      throw CapacityError("Special tokens and the other text of a pair leave no space for a text. Expected: fewer than " +
                              std::to_string(*limit) + " tokens. Received: " + std::to_string(kept) + ". Shorten the other text.",
                          *limit - 1, kept);
    }
    const int room = *limit - kept;
    if (length.stride) CheckInteger("stride", *length.stride, 0, room - 1);
    truncation.strategy = is_first ? Truncation::Strategy::kOnlyFirst : Truncation::Strategy::kOnlySecond;
    truncation.stride = length.stride.value_or(room / 4);
  }
  std::vector<std::vector<Encoding>> pairs;
  for (const std::string& other : others) {
    const Encoding tokens = is_first ? tokenizer.Encode(text, other) : tokenizer.Encode(other, text);
    pairs.push_back(limit ? Chunks(tokens, truncation) : std::vector<Encoding>{tokens});
    if (length.truncation) pairs.back().resize(1);
  }
  return pairs;
}

TextModel::Parts::Outputs TextModel::Parts::Forward(const Encoding& tokens, const Slots& slots) const {
  return kerasformer::Forward(*engine, manifest, tokens, slots);
}

std::vector<TextModel::Parts::Outputs> TextModel::Parts::Forward(const std::vector<Encoding>& chunks) const {
  std::vector<Outputs> outputs;
  for (const Encoding& chunk : chunks) outputs.push_back(Forward(chunk));
  return outputs;
}

Vector Combined(const std::vector<Vector>& values, const std::vector<Encoding>& chunks, const std::string& combine, int text) {
  if (values.size() == 1) return values[0];
  const bool greatest = combine == "max";
  Vector result(values[0].size(), greatest ? -std::numeric_limits<double>::infinity() : 0);
  double total = 0;
  for (size_t chunk = 0; chunk < values.size(); ++chunk) {
    const auto& sequences = chunks[chunk].sequence_ids;
    const auto weight = static_cast<double>(std::max<int64_t>(1, std::count(sequences.begin(), sequences.end(), text)));
    total += weight;
    for (size_t column = 0; column < result.size(); ++column) {
      const double value = values[chunk][column];
      result[column] = greatest ? std::max(result[column], value) : result[column] + weight * value;
    }
  }
  if (!greatest) {
    for (double& value : result) value /= total;
  }
  return result;
}

std::vector<Location> BestLocations(const std::vector<Encoding>& chunks) {
  constexpr int kWhole = std::numeric_limits<int>::max();
  std::vector<std::pair<int, int>> spans;  // the first and last position of each chunk's text
  for (const Encoding& chunk : chunks) {
    spans.emplace_back(kWhole, -1);
    for (size_t index = 0; index < chunk.size(); ++index) {
      if (chunk.sequence_ids[index] < 0) continue;
      spans.back().first = std::min(spans.back().first, chunk.positions[index]);
      spans.back().second = std::max(spans.back().second, chunk.positions[index]);
    }
  }
  int first = kWhole, last = -1;
  for (const auto& [start, end] : spans) {
    first = std::min(first, start);
    last = std::max(last, end);
  }
  std::map<int, std::pair<int, Location>> best;  // by position, with the context on the shorter side
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    for (size_t index = 0; index < chunks[chunk].size(); ++index) {
      const int position = chunks[chunk].positions[index];
      // At the start and the end of the whole text, no context is missing.
      const int before = spans[chunk].first == first ? kWhole : position - spans[chunk].first;
      const int after = spans[chunk].second == last ? kWhole : spans[chunk].second - position;
      const int margin = std::min(before, after);
      const auto [known, added] = best.try_emplace(position, margin, Location{chunk, index});
      if (!added && margin > known->second.first) known->second = {margin, {chunk, index}};
    }
  }
  std::vector<Location> locations;
  for (const auto& [position, found] : best) locations.push_back(found.second);
  return locations;
}

std::vector<Vector> Rows(const std::vector<float>& values, size_t count) {
  std::vector<Vector> rows;
  const size_t width = count ? values.size() / count : 0;
  for (size_t row = 0; row < count; ++row) rows.emplace_back(values.begin() + row * width, values.begin() + (row + 1) * width);
  return rows;
}

Vector Softmax(const Vector& logits) {
  Vector powers;
  const double greatest = *std::max_element(logits.begin(), logits.end());
  for (const double logit : logits) powers.push_back(std::exp(logit - greatest));
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  for (double& power : powers) power /= sum;
  return powers;
}

Vector Sigmoid(const Vector& logits) {
  Vector scores;
  for (const double logit : logits) scores.push_back(0.5 + 0.5 * std::tanh(0.5 * logit));  // unlike exp, this cannot overflow
  return scores;
}

Vector Unit(Vector row) {
  const double length = std::max(std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0)), 1e-12);
  for (double& value : row) value /= length;
  return row;
}

std::vector<size_t> Ranked(const Vector& values, std::optional<int> count) {
  if (count) CheckInteger("top_k", *count, 1, std::nullopt, ", or None");
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) { return values[one] > values[other]; });
  if (count) order.resize(std::min<size_t>(order.size(), *count));
  return order;
}

void CheckOneOf(const std::string& name, const std::string& value, const std::vector<std::string>& values) {
  if (std::count(values.begin(), values.end(), value)) return;
  std::string listed;
  for (size_t index = 0; index < values.size(); ++index) {
    listed += (index == 0 ? "" : index + 1 == values.size() ? " or " : ", ") + Shown(values[index]);
  }
  throw InputError(name + " must be " + listed + ". Received: " + name + "=" + Shown(value));
}

void CheckInteger(const std::string& name, int value, int least, std::optional<int> most, const std::string& alternative) {
  if (value >= least && (!most || value <= *most)) return;
  const std::string range = most ? "from " + std::to_string(least) + " to " + std::to_string(*most) : "of at least " + std::to_string(least);
  throw InputError(name + " must be an integer " + range + alternative + ". Received: " + name + "=" + std::to_string(value));
}

}  // namespace kerasformer
