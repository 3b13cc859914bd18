#include <algorithm>

#include "kerasformer/errors.hpp"
#include "kerasformer/tokenizer.hpp"

namespace kerasformer {
namespace {

// A range of the tokens of one text.
struct Range {
  int start, end;
};

std::string NameOf(Truncation::Strategy strategy) {
  return strategy == Truncation::Strategy::kOnlyFirst    ? "only_first"
         : strategy == Truncation::Strategy::kOnlySecond ? "only_second"
                                                         : "longest_first";
}

// The number of tokens that remain of each text.
std::pair<int, int> Room(int first, int second, int special, const Truncation& truncation) {
  const int budget = truncation.limit - special;
  if (first + second <= budget) return {first, second};
  const std::string counts = std::to_string(first) + " and " + std::to_string(second);
  int remaining = budget;
  if (truncation.strategy == Truncation::Strategy::kOnlyFirst) {
    first = remaining = budget - second;
  } else if (truncation.strategy == Truncation::Strategy::kOnlySecond) {
    second = remaining = budget - first;
  } else {
    // The shorter text keeps up to half; on equal lengths the second gets the odd token.
    const int shorter = std::min({first, second, budget / 2});
    const bool first_is_shorter = first <= second;
    first = first_is_shorter ? shorter : budget - shorter;
    second = budget - first;
  }
  if (remaining < 1) {
    throw InputError("max_length is too small: " + std::to_string(special) + " special tokens and texts of " + counts +
                     " tokens cannot be truncated to it with '" + NameOf(truncation.strategy) +
                     "'. Received: max_length=" + std::to_string(truncation.limit) + ". Set a larger one");
  }
  return {first, second};
}

// The range of each chunk among the tokens of one text.
std::vector<Range> Ranges(int count, int keep, const Truncation& truncation) {
  if (keep >= count) return {{0, count}};
  if (keep == 0) return {{0, 0}};
  const int step = keep - truncation.stride;
  if (step < 1) {
    throw InputError("stride must be smaller than the " + std::to_string(keep) + " tokens of text that fit into a chunk. Received: " +
                     "stride=" + std::to_string(truncation.stride) + ", max_length=" + std::to_string(truncation.limit));
  }
  std::vector<Range> ranges;
  for (int start = 0;; start += step) {
    const int end = std::min(start + keep, count);
    ranges.push_back(truncation.left ? Range{count - end, count - start} : Range{start, end});
    if (end == count) return ranges;
  }
}

}  // namespace

Encoding Encoding::Select(const std::vector<size_t>& indices) const {
  Encoding result;
  for (const size_t index : indices) {
    result.ids.push_back(ids[index]);
    result.offsets.push_back(offsets[index]);
    result.type_ids.push_back(type_ids[index]);
    result.special_tokens_mask.push_back(special_tokens_mask[index]);
    result.word_ids.push_back(word_ids[index]);
    result.sequence_ids.push_back(sequence_ids[index]);
    result.positions.push_back(positions[index]);
  }
  return result;
}

std::vector<Encoding> Chunks(const Encoding& encoding, const Truncation& truncation) {
  if (static_cast<int>(encoding.size()) <= truncation.limit) return {encoding};
  const auto& sequences = encoding.sequence_ids;
  const int counts[2] = {static_cast<int>(std::count(sequences.begin(), sequences.end(), 0)),
                         static_cast<int>(std::count(sequences.begin(), sequences.end(), 1))};
  const int special = static_cast<int>(encoding.size()) - counts[0] - counts[1];
  const auto [first, second] = Room(counts[0], counts[1], special, truncation);
  std::vector<Range> ranges[2] = {Ranges(counts[0], first, truncation), Ranges(counts[1], second, truncation)};
  if (ranges[0].size() > 1 && ranges[1].size() > 1) {
    for (auto& each : ranges) each.resize(1);
  }
  std::vector<Encoding> chunks;
  for (size_t chunk = 0; chunk < std::max(ranges[0].size(), ranges[1].size()); ++chunk) {
    std::vector<size_t> kept;
    int seen[2] = {0, 0};
    for (size_t index = 0; index < encoding.size(); ++index) {
      const int text = sequences[index];
      if (text >= 0) {
        const Range& range = ranges[text][ranges[text].size() == 1 ? 0 : chunk];
        const int nth = seen[text]++;
        if (nth < range.start || nth >= range.end) continue;
      }
      kept.push_back(index);
    }
    chunks.push_back(encoding.Select(kept));
  }
  return chunks;
}

}  // namespace kerasformer
