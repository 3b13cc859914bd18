// The models of `tokenizer.json`, which convert words to tokens: BPE, Unigram, WordPiece and WordLevel.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kerasformer/json.hpp"

namespace kerasformer {

// A token of a word, with its bytes in the word.
struct Piece {
  int id;
  size_t start, end;
};

// Converts words to tokens.
class Model {
 public:
  virtual ~Model() = default;

  // The tokens of a word. Words are kept, since most of them occur again.
  void Tokenize(std::string_view word, std::vector<Piece>& pieces) const;

  std::optional<int> TokenToId(std::string_view token) const;
  // The token of an id, or null.
  const std::string* IdToToken(int id) const;
  size_t size() const { return tokens_.size(); }

  // The id of unknown text, or -1.
  int unknown() const { return unknown_; }

 protected:
  // Adds a token of the vocabulary.
  void Add(const std::string& token, int id);
  // Sets the token for unknown text by its name.
  void SetUnknown(const Json& config);

  virtual std::vector<Piece> Split(std::string_view word) const = 0;

  int unknown_ = -1;

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<const std::string*> tokens_;  // by id; null for ids without a token

  mutable std::mutex mutex_;
  mutable std::deque<std::string> words_;
  mutable std::unordered_map<std::string_view, std::vector<Piece>> known_;
};

// Creates a model. With `bytes`, its tokens are byte-level: each of their characters represents a byte of a word.
// Throws `TokenizerError` for one that is unsupported.
std::unique_ptr<Model> ModelOf(const Json& config, bool bytes);

// The bytes of a byte-level token, or nothing if one of its characters represents none.
std::optional<std::string> BytesOf(std::string_view token);

// The token of a byte, such as `<0x0A>`; the byte of such a token, or -1.
std::string ByteToken(unsigned char byte);
int ByteOf(std::string_view token);

}  // namespace kerasformer
