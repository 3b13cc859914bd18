// A tokenizer that is read from `tokenizer.json`, with the ids, offsets and texts of the library `tokenizers`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// Start and end of a token in its text; they count Unicode characters (code points), as in Python.
struct Offsets {
  int start = 0, end = 0;

  bool operator==(const Offsets& other) const { return start == other.start && end == other.end; }
};

// The part of a text in UTF-8 between two offsets that count characters.
std::string_view Between(std::string_view text, Offsets offsets);

// The tokens of a text or of a pair of texts; all lists have the same length.
struct Encoding {
  std::vector<int> ids;
  std::vector<Offsets> offsets;          // (0, 0) for special tokens
  std::vector<int> type_ids;             // the segment of each token
  std::vector<int> special_tokens_mask;  // 1 for tokens that were added around the texts
  std::vector<int> word_ids;             // index of the word in its text, -1 for special tokens
  std::vector<int> sequence_ids;         // 0 or 1 for the text of the token, -1 for special tokens
  std::vector<int> positions;            // index of the token before the texts were truncated

  size_t size() const { return ids.size(); }

  // The tokens at some positions.
  Encoding Select(const std::vector<size_t>& indices) const;
};

// How token sequences are shortened.
struct Truncation {
  enum class Strategy { kOnlyFirst, kOnlySecond, kLongestFirst };

  int limit;  // the largest number of tokens, including special tokens
  Strategy strategy = Strategy::kLongestFirst;
  int stride = 0;     // number of tokens that neighbouring chunks share
  bool left = false;  // whether the start of a text is removed instead of its end
};

// Chunks that together cover a sequence; the first one is the truncated sequence.
// Throws `InputError` if the limit or the stride leaves no room for a text.
std::vector<Encoding> Chunks(const Encoding& encoding, const Truncation& truncation);

// Converts text to token ids and back. Calls do not change a tokenizer, so that several threads may share it.
class Tokenizer {
 public:
  // Creates a tokenizer from the content of `tokenizer.json` and of `tokenizer_config.json`.
  // Throws `TokenizerError` for a damaged file or an unsupported part.
  explicit Tokenizer(const Json& content, const Json& settings = {});

  // Reads `tokenizer.json` and, if it exists, `tokenizer_config.json` of a folder.
  static Tokenizer Open(const std::string& folder, const std::string& file = "tokenizer.json");

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The tokens of a text, or of a pair of texts. Throws `InputError` for a text that is not valid UTF-8 or that has
  // characters which were removed from a pruned vocabulary.
  Encoding Encode(std::string_view text, std::optional<std::string_view> pair = std::nullopt,
                  bool add_special_tokens = true) const;

  // The tokens of the words of a text, of which each is tokenized by itself (`is_split_into_words` in Python). `word_ids` are the
  // indices of these words; offsets count from the start of a word.
  Encoding EncodeWords(const std::vector<std::string>& words, bool add_special_tokens = true) const;

  // The text of ids; ids that the vocabulary lacks are skipped.
  std::string Decode(const std::vector<int>& ids, bool skip_special_tokens = false) const;

  // The id of a token, or of `token` with its form in the vocabulary for an id.
  std::optional<int> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(int id) const;
  // All tokens with their ids.
  std::vector<std::pair<std::string, int>> Vocabulary() const;

  // Whether decoding can skip a token as special.
  bool IsSpecial(int id) const;

  // The special token with a name such as "mask_token".
  std::optional<std::string> Named(const std::string& name) const;

  // Whether texts are truncated at their start.
  bool TruncatesLeft() const;

 private:
  friend class TextStream;
  struct Parts;

  bool HasByteFallback() const;
  bool CleansSpaces() const;

  std::unique_ptr<Parts> parts_;
};

// Decodes tokens that arrive one after another; the pieces together are the text of all of them. Special tokens are
// skipped unless `skip_special_tokens` is false.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special_tokens = true);

  // Adds tokens; returns the text that later tokens cannot change any more, which may be empty.
  std::string Put(const std::vector<int>& ids);

  // Returns the remaining text, and prepares for another one.
  std::string End();

 private:
  size_t Certain(const std::string& text) const;

  const Tokenizer& tokenizer_;
  const bool skips_;
  std::vector<int> ids_;
  size_t sent_ = 0;  // in bytes
};

}  // namespace kerasformer
