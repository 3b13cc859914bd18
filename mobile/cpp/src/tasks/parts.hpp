// What all tasks share: the parts of an opened bundle, long texts in chunks, and probabilities.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoding/decoding.hpp"
#include "engines/models.hpp"
#include "kerasformer/text_model.hpp"

namespace kerasformer {

struct TextModel::Parts {
  Manifest manifest;
  Tokenizer tokenizer;
  std::unique_ptr<Tokenizer> target;  // of the texts that the model writes, if it is another one
  std::unique_ptr<Engine> engine;
  std::unique_ptr<StepModel> steps;

  const Tokenizer& writer() const { return target ? *target : tokenizer; }

  // The longest text in tokens, or nothing if it is unlimited.
  std::optional<int> MaxLength() const;

  // The chunks of a text; the start of the text if `truncation` is set.
  std::vector<Encoding> ChunksOf(std::string_view text, const Length& length) const;

  // A text, or a pair of texts, in one piece. Throws `CapacityError` if it is too long, unless it may be truncated.
  Encoding Whole(std::string_view text, bool truncation, std::optional<std::string_view> pair = std::nullopt) const;

  // Pairs of one text and each of several others, in chunks: the long text is split, and each of its chunks contains the whole
  // other text. Overlaps are those that fit the longest of the other texts.
  std::vector<std::vector<Encoding>> ChunksOfPairs(std::string_view text, const std::vector<std::string>& others, const Length& length,
                                                   bool is_first, Truncation::Strategy cut) const;

  using Outputs = std::map<std::string, std::vector<float>>;
  std::vector<Outputs> Forward(const std::vector<Encoding>& chunks) const;
  Outputs Forward(const Encoding& tokens, const Slots& slots = {}) const;
};

// The values of a text from those of its chunks: their mean, weighted by numbers of tokens without special tokens, or the
// greatest ones. `text` is the text of a pair that was split.
Vector Combined(const std::vector<Vector>& values, const std::vector<Encoding>& chunks, const std::string& combine = "mean",
                int text = 0);

// A token of a text, in the chunk with the most context around it.
struct Location {
  size_t chunk, index;
};

// For each token of a text, its best location, in the order of the tokens.
std::vector<Location> BestLocations(const std::vector<Encoding>& chunks);

// A row of values for each of several tokens.
std::vector<Vector> Rows(const std::vector<float>& values, size_t count);

Vector Softmax(const Vector& logits);
Vector Sigmoid(const Vector& logits);

// Scales a vector to length 1; a vector of zeros is unchanged.
Vector Unit(Vector row);

// Indices of the greatest values in descending order; equal values keep their order.
std::vector<size_t> Ranked(const Vector& values, std::optional<int> count = std::nullopt);

// Throws `InputError` unless a value is one of several, or in a range.
void CheckOneOf(const std::string& name, const std::string& value, const std::vector<std::string>& values);
void CheckInteger(const std::string& name, int value, int least, std::optional<int> most, const std::string& alternative = "");

}  // namespace kerasformer
