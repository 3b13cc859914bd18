#include "tokenization/models.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <queue>

#include "kerasformer/errors.hpp"
#include "text/utf8.hpp"

namespace kerasformer {
namespace {

constexpr size_t kMostWords = 50000;   // that are kept
constexpr size_t kLongestKept = 256;   // bytes of a word that is kept

// Byte-pair encoding. Reference: Sennrich et al. 2016, arXiv:1508.07909.
class Bpe : public Model {
 public:
  Bpe(const Json& config, bool bytes)
      : bytes_(bytes),
        prefix_(config.String("continuing_subword_prefix", "")),
        suffix_(config.String("end_of_word_suffix", "")),
        fuses_unknown_(config.Bool("fuse_unk", false)),
        ignores_merges_(config.Bool("ignore_merges", false)) {
    if (config.Has("dropout") && config["dropout"].AsDouble() > 0) {
      throw TokenizerError("unsupported model in tokenizer.json: BPE with dropout gives other tokens at each call");
    }
    for (const auto& [token, id] : config["vocab"].AsObject()) {
      Add(token, static_cast<int>(id.AsInt()));
      const auto raw = bytes ? BytesOf(token) : std::optional(token);
      if (raw) symbols_[*raw] = static_cast<int>(id.AsInt());
    }
    SetUnknown(config);
    int rank = 0;
    for (const Json& merge : config["merges"].AsArray()) AddMerge(merge, rank++);
    if (config.Bool("byte_fallback", false)) {
      for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = TokenToId(ByteToken(byte)).value_or(-1);
    } else {
      byte_ids_.fill(-1);
    }
  }

 protected:
  std::vector<Piece> Split(std::string_view word) const override {
    if (ignores_merges_) {
      const int id = Find(std::string(word));
      if (id >= 0) return {{id, 0, word.size()}};
    }
    std::vector<Symbol> symbols = Symbols(word);
    Merge(symbols);
    std::vector<Piece> pieces;
    size_t start = 0;
    for (const Symbol& symbol : symbols) {
      if (symbol.size == 0) continue;
      pieces.push_back({symbol.id, start, start + symbol.size});
      start += symbol.size;
    }
    return pieces;
  }

 private:
  // A part of a word, with the indices of its neighbours; its size is 0 after it was merged into the one before it.
  struct Symbol {
    int id;
    size_t size;
    int previous, next;
  };

  // What two tokens are merged to; those of the lowest rank come first.
  struct Merged {
    int rank, id;
  };

  struct Candidate {
    int rank, at, id;
    bool operator<(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };

  static uint64_t Pair(int first, int second) { return static_cast<uint64_t>(first) << 32 | static_cast<uint32_t>(second); }

  void AddMerge(const Json& merge, int rank) {
    std::string first, second;
    if (merge.IsArray()) {
      first = merge.AsArray().at(0).AsString();
      second = merge.AsArray().at(1).AsString();
    } else {
      const std::string& line = merge.AsString();
      const size_t space = line.find(' ');
      first = line.substr(0, space);
      second = space == std::string::npos ? "" : line.substr(space + 1);
    }
    const auto one = TokenToId(first), other = TokenToId(second);
    const std::string whole = first + (second.size() >= prefix_.size() ? second.substr(prefix_.size()) : second);
    const auto both = TokenToId(whole);
    if (!one || !other || !both) {
      throw TokenizerError("tokenizer.json is damaged: a merge needs the tokens " + Quoted(first) + ", " + Quoted(second) +
                           " and " + Quoted(whole) + ", and the vocabulary lacks one of them");
    }
    merges_.insert_or_assign(Pair(*one, *other), Merged{rank, *both});
  }

  int Find(const std::string& text) const {
    const auto found = symbols_.find(text);
    return found == symbols_.end() ? -1 : found->second;
  }

  // The characters of a word, or its bytes.
  std::vector<Symbol> Symbols(std::string_view word) const {
    std::vector<Symbol> symbols;
    int unknown_size = 0;  // bytes of unknown text that no symbol has yet
    const auto add = [&](int id, size_t size) {
      const int index = static_cast<int>(symbols.size());
      symbols.push_back({id, size, index - 1, index + 1});
    };
    const auto flush = [&] {
      if (unknown_size) add(unknown_, unknown_size);
      unknown_size = 0;
    };
    for (size_t at = 0; at < word.size();) {
      const size_t size = std::min(bytes_ ? 1 : CharacterBytes(word[at]), word.size() - at);
      std::string text = (at ? prefix_ : "") + std::string(word.substr(at, size));
      at += size;
      if (at == word.size()) text += suffix_;
      const int id = Find(text);
      const auto has_byte = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] >= 0; };
      if (id >= 0) {
        flush();
        add(id, size);
      } else if (std::all_of(text.begin(), text.end(), has_byte)) {
        for (const char byte : text) add(byte_ids_[static_cast<unsigned char>(byte)], 1);
      } else if (unknown_ >= 0) {
        if (!fuses_unknown_) flush();
        unknown_size += static_cast<int>(size);
      }
    }
    flush();
    if (!symbols.empty()) symbols.back().next = -1;
    return symbols;
  }

  void Merge(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> queue;
    const auto consider = [&](int at) {
      if (at < 0 || symbols[at].next < 0) return;
      const auto found = merges_.find(Pair(symbols[at].id, symbols[symbols[at].next].id));
      if (found != merges_.end()) queue.push({found->second.rank, at, found->second.id});
    };
    for (int at = 0; at + 1 < static_cast<int>(symbols.size()); ++at) consider(at);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& first = symbols[best.at];
      if (first.size == 0 || first.next < 0) continue;
      Symbol& second = symbols[first.next];
      const auto found = merges_.find(Pair(first.id, second.id));
      if (found == merges_.end() || found->second.id != best.id) continue;  // one of them was merged meanwhile
      first.id = best.id;
      first.size += second.size;
      second.size = 0;
      first.next = second.next;
      if (first.next >= 0) symbols[first.next].previous = best.at;
      consider(first.previous);
      consider(best.at);
    }
  }

  const bool bytes_;
  const std::string prefix_, suffix_;
  const bool fuses_unknown_, ignores_merges_;
  std::unordered_map<std::string, int> symbols_;  // tokens in the form that words have
  std::unordered_map<uint64_t, Merged> merges_;
  std::array<int, 256> byte_ids_;
};

// A score as the Rust library reads it from the file: its digits as a number, divided by a power of ten. Both steps round, and
// a difference of the last bit decides between paths with the same scores in another order.
double ScoreOf(double exact) {
  char text[32] = {};
#if defined(__cpp_lib_to_chars)
  const auto [end, error] = std::to_chars(text, text + sizeof text, std::abs(exact), std::chars_format::scientific);
#else
  const char* end = text;
  // The fewest digits that are the same number, but for zeros at their end, which change nothing.
  for (int decimals = 14; decimals <= 16; ++decimals) {
    end = text + std::snprintf(text, sizeof text, "%.*e", decimals, std::abs(exact));
    if (std::strtod(text, nullptr) == std::abs(exact)) break;
  }
  text[1] = '.';  // some locales have a comma
#endif
  uint64_t digits = 0;
  int exponent = 0;
  const char* at = text;
  for (bool fraction = false; at < end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
    } else {
      digits = digits * 10 + (*at - '0');
      exponent -= fraction;
    }
  }
  exponent += std::atoi(at + 1);
  const double number = static_cast<double>(digits), power = std::pow(10.0, std::abs(exponent));
  return std::copysign(exponent < 0 ? number / power : number * power, exact);
}

// The most probable tokens of a word. Reference: Kudo 2018, arXiv:1804.10959.
class Unigram : public Model {
 public:
  explicit Unigram(const Json& config) {
    const auto& vocabulary = config["vocab"].AsArray();
    std::vector<std::pair<std::string, int>> sorted;
    double least = std::numeric_limits<double>::infinity();
    for (const Json& entry : vocabulary) {
      const int id = static_cast<int>(scores_.size());
      const std::string& token = entry.AsArray().at(0).AsString();
      scores_.push_back(ScoreOf(entry.AsArray().at(1).AsDouble()));
      least = std::min(least, scores_.back());
      Add(token, id);
      if (!token.empty()) sorted.emplace_back(token, id);
    }
    unknown_score_ = least - kUnknownPenalty;
    if (config.Has("unk_id")) unknown_ = static_cast<int>(config["unk_id"].AsInt());
    falls_back_ = config.Bool("byte_fallback", false);
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
    nodes_.push_back({});
    Build(sorted, 0, sorted.size(), 0, 0);
  }

 protected:
  std::vector<Piece> Split(std::string_view word) const override {
    std::vector<Piece> pieces;
    for (auto [id, start, end] : BestPath(word)) {
      if (id == unknown_) id = TokenToId(word.substr(start, end - start)).value_or(unknown_);
      if (id != unknown_ || !falls_back_ || !AddBytes(word, start, end, pieces)) pieces.push_back({id, start, end});
    }
    return pieces;
  }

 private:
  static constexpr double kUnknownPenalty = 10;

  // A node of the tree of all tokens; its children are neighbours, in the order of their bytes.
  struct Node {
    int token = -1;
    int first_child = 0, num_children = 0;
    unsigned char byte = 0;
  };

  struct Step {
    double score = 0;
    int id = -1;
    size_t start = std::string::npos;
  };

  // Adds the children of a node: the tokens from `first` to `last` have its `depth` bytes in common.
  void Build(const std::vector<std::pair<std::string, int>>& tokens, size_t first, size_t last, size_t depth, int node) {
    while (first < last && tokens[first].first.size() == depth) nodes_[node].token = tokens[first++].second;
    std::vector<size_t> starts;
    for (size_t at = first; at < last; ++at) {
      if (at == first || tokens[at].first[depth] != tokens[at - 1].first[depth]) starts.push_back(at);
    }
    const int children = static_cast<int>(nodes_.size());
    nodes_[node].first_child = children;
    nodes_[node].num_children = static_cast<int>(starts.size());
    for (const size_t start : starts) {
      nodes_.push_back({});
      nodes_.back().byte = static_cast<unsigned char>(tokens[start].first[depth]);
    }
    starts.push_back(last);
    for (size_t child = 0; child + 1 < starts.size(); ++child) {
      Build(tokens, starts[child], starts[child + 1], depth + 1, children + static_cast<int>(child));
    }
  }

  // The child of a node for a byte, or -1.
  int Child(int node, char each) const {
    const auto byte = static_cast<unsigned char>(each);
    const auto first = nodes_.begin() + nodes_[node].first_child, last = first + nodes_[node].num_children;
    const auto found = std::lower_bound(first, last, byte, [](const Node& child, unsigned char value) { return child.byte < value; });
    return found == last || found->byte != byte ? -1 : static_cast<int>(found - nodes_.begin());
  }

  std::vector<Piece> BestPath(std::string_view word) const {
    std::vector<Step> best(word.size() + 1);  // the best way to each position
    const auto reach = [&](size_t start, size_t end, double score, int id) {
      const double total = score + best[start].score;
      if (best[end].start == std::string::npos || total > best[end].score) best[end] = {total, id, start};
    };
    for (size_t start = 0; start < word.size();) {
      const size_t next = std::min(start + CharacterBytes(word[start]), word.size());
      bool single = false;
      int node = 0;
      for (size_t end = start; end < word.size();) {
        node = Child(node, word[end++]);
        if (node < 0) break;
        const int token = nodes_[node].token;
        if (token < 0) continue;
        reach(start, end, scores_[token], token);
        single = single || end == next;
      }
      if (!single) {
        if (unknown_ < 0) throw TokenizerError("the vocabulary in tokenizer.json lacks a character, and has no unknown token");
        reach(start, next, unknown_score_, unknown_);
      }
      start = next;
    }
    std::vector<Piece> pieces;
    for (size_t end = word.size(); end > 0; end = best[end].start) {
      const auto& [score, id, start] = best[end];
      if (id == unknown_ && !pieces.empty() && pieces.back().id == unknown_) {
        pieces.back().start = start;  // neighbouring unknown characters are one token
      } else {
        pieces.push_back({id, start, end});
      }
    }
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }

  // Adds the tokens of the bytes of unknown text, if the vocabulary has all of them.
  bool AddBytes(std::string_view word, size_t start, size_t end, std::vector<Piece>& pieces) const {
    std::vector<Piece> bytes;
    for (size_t at = start; at < end; ++at) {
      const auto id = TokenToId(ByteToken(static_cast<unsigned char>(word[at])));
      if (!id) return false;
      bytes.push_back({*id, start, end});
    }
    pieces.insert(pieces.end(), bytes.begin(), bytes.end());
    return true;
  }

  std::vector<double> scores_;
  std::vector<Node> nodes_;
  double unknown_score_ = 0;
  bool falls_back_ = false;
};

// The longest tokens from the start of a word. Reference: Wu et al. 2016, arXiv:1609.08144.
class WordPiece : public Model {
 public:
  explicit WordPiece(const Json& config)
      : prefix_(config.String("continuing_subword_prefix", "##")),
        longest_(static_cast<size_t>(config.Int("max_input_chars_per_word", 100))) {
    for (const auto& [token, id] : config["vocab"].AsObject()) {
      Add(token, static_cast<int>(id.AsInt()));
      most_bytes_ = std::max(most_bytes_, token.size());
    }
    SetUnknown(config);
  }

 protected:
  std::vector<Piece> Split(std::string_view word) const override {
    std::vector<Piece> pieces;
    if (CountCharacters(word) > longest_) return Unknown(word);
    std::string token;
    for (size_t start = 0; start < word.size();) {
      size_t end = std::min(word.size(), start + most_bytes_);
      while (end < word.size() && Continues(word[end])) --end;
      std::optional<int> id;
      while (end > start) {
        token = start ? prefix_ : "";
        token += word.substr(start, end - start);
        if ((id = TokenToId(token))) break;
        end = PreviousStart(word, end);
      }
      if (!id) return Unknown(word);
      pieces.push_back({*id, start, end});
      start = end;
    }
    return pieces;
  }

 private:
  std::vector<Piece> Unknown(std::string_view word) const {
    if (unknown_ < 0) throw TokenizerError("the vocabulary in tokenizer.json lacks its token for unknown words");
    return {{unknown_, 0, word.size()}};
  }

  const std::string prefix_;
  const size_t longest_;
  size_t most_bytes_ = 1;
};

// Whole words.
class WordLevel : public Model {
 public:
  explicit WordLevel(const Json& config) {
    for (const auto& [token, id] : config["vocab"].AsObject()) Add(token, static_cast<int>(id.AsInt()));
    SetUnknown(config);
  }

 protected:
  std::vector<Piece> Split(std::string_view word) const override {
    const int id = TokenToId(word).value_or(unknown_);
    if (id < 0) throw TokenizerError("the vocabulary in tokenizer.json lacks a word, and has no unknown token");
    return {{id, 0, word.size()}};
  }
};

// The bytes by the characters that represent them, as in GPT-2; -1 for other characters.
std::array<int, 0x180> ByteCharacters() {
  std::array<int, 0x180> bytes;
  bytes.fill(-1);
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    bytes[printed ? byte : 0x100 + others++] = byte;
  }
  return bytes;
}

}  // namespace

void Model::Tokenize(std::string_view word, std::vector<Piece>& pieces) const {
  if (word.size() > kLongestKept) {
    pieces = Split(word);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(word);
    if (found != known_.end()) {
      pieces = found->second;
      return;
    }
  }
  pieces = Split(word);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (words_.size() >= kMostWords) {
    known_.clear();
    words_.clear();
  }
  words_.emplace_back(word);
  known_.emplace(words_.back(), pieces);
}

std::optional<int> Model::TokenToId(std::string_view token) const {
  static thread_local std::string key;  // a map of strings cannot be searched for a view
  key.assign(token);
  const auto found = ids_.find(key);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Model::IdToToken(int id) const {
  return id < 0 || static_cast<size_t>(id) >= tokens_.size() ? nullptr : tokens_[id];
}

void Model::Add(const std::string& token, int id) {
  constexpr int kMostIds = 1 << 24;
  if (id < 0 || id >= kMostIds) {
    throw TokenizerError("tokenizer.json is damaged: an id from 0 to " + std::to_string(kMostIds - 1) + " was expected for " +
                         Quoted(token) + ". Received: " + std::to_string(id));
  }
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  const auto added = ids_.insert_or_assign(token, id).first;
  tokens_[id] = &added->first;
}

void Model::SetUnknown(const Json& config) {
  if (config.Has("unk_token")) unknown_ = TokenToId(config["unk_token"].AsString()).value_or(-1);
}

std::optional<std::string> BytesOf(std::string_view token) {
  static const auto kBytes = ByteCharacters();
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const char32_t c = NextCharacter(token, at);
    if (c >= kBytes.size() || kBytes[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

std::string ByteToken(unsigned char byte) {
  static const char* const kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

int ByteOf(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int byte = 0;
  for (const char digit : token.substr(3, 2)) {
    const char letter = static_cast<char>(digit | 0x20);
    const bool number = digit >= '0' && digit <= '9';
    if (!number && !(letter >= 'a' && letter <= 'f')) return -1;
    byte = byte * 16 + (number ? digit - '0' : letter - 'a' + 10);
  }
  return byte;
}

std::unique_ptr<Model> ModelOf(const Json& config, bool bytes) {
  // Older files do not name the type of their model.
  const std::string usual = !config.Has("merges") ? config.Has("unk_id") ? "Unigram" : "WordPiece" : "BPE";
  const std::string type = config.String("type", usual);
  if (type == "BPE") return std::make_unique<Bpe>(config, bytes);
  if (bytes) throw TokenizerError("unsupported model in tokenizer.json: byte-level tokens of " + type);
  if (type == "Unigram") return std::make_unique<Unigram>(config);
  if (type == "WordPiece") return std::make_unique<WordPiece>(config);
  if (type == "WordLevel") return std::make_unique<WordLevel>(config);
  throw TokenizerError("unsupported model in tokenizer.json. Received: " + type);
}

}  // namespace kerasformer
