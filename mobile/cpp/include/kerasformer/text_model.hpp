// A bundle that is ready to answer, with one function for each task: texts in, texts, labels or numbers out. Defaults and
// results are those of `kf.pipeline` in Python for one text.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kerasformer/engine.hpp"
#include "kerasformer/errors.hpp"
#include "kerasformer/generation.hpp"
#include "kerasformer/tokenizer.hpp"

namespace kerasformer {

// How a text that is longer than the model is read: in overlapping chunks, or only its start.
struct Length {
  bool truncation = false;          // reads only the start of the text
  std::optional<int> chunk_length;  // in tokens, with special tokens; by default that of the model
  std::optional<int> stride;        // tokens that neighbouring chunks share; by default a quarter of a chunk
};

struct Label {
  std::string label;
  double score;
};

struct ClassifyOptions {
  std::optional<int> top_k = 1;  // number of classes; absent for all
  std::string combine = "mean";  // of the scores of chunks, or "max"
  Length length = {};
};

struct ZeroShotOptions {
  std::string hypothesis_template = "This example is {}.";
  bool multi_label = false;      // whether several classes can apply to a text
  std::string combine = "mean";  // of the logits of chunks, or "max"
  Length length = {};
};

// A document, by its index.
struct Hit {
  size_t corpus_id;
  double score;
};

struct RankOptions {
  std::optional<int> top_k;          // number of documents; absent for all
  std::optional<std::string> label;  // the class that ranks documents, for a model with several
  std::string combine = "max";       // of the scores of chunks, or "mean"
  Length length = {};
};

// A named entity, or a token; `start` and `end` count characters, see `Between`.
struct Entity {
  std::string entity;  // the label, without its prefix for a group of tokens
  double score;
  int index;  // of the first token
  std::string word;
  int start, end;
};

struct EntityOptions {
  std::string aggregation_strategy = "none";        // or "simple", "first", "average", "max"
  std::vector<std::string> ignore_labels = {"O"};
  std::string combine = "tokens";                   // of chunks, or "entities"
  Length length = {};
};

struct SpanOptions {
  double threshold = 0.5;    // the probability that an entity exceeds
  bool flat_ner = true;      // whether entities do not overlap; otherwise, one may lie within another
  bool multi_label = false;  // whether one span may be of several types
  bool truncation = false;   // omits the last words of a text that is too long
};

struct Answer {
  double score;
  int start, end;  // in characters
  std::string answer;
};

struct AnswerOptions {
  int top_k = 1;
  int doc_stride = 128;             // tokens that neighbouring chunks share
  std::optional<int> chunk_length;  // of question and context together
  int max_answer_len = 15;          // in tokens
  bool handle_impossible_answer = false;
};

struct Filling {
  double score;
  int token;
  std::string token_str, sequence;
};

using Vector = std::vector<double>;

struct EmbedOptions {
  std::optional<std::string> prompt_name, prompt;  // text before each input
  std::optional<int> truncate_dim;                 // only the first numbers
  std::optional<bool> normalize;                   // to length 1; by default as the model says
  Length length = {};
};

struct FeatureOptions {
  std::optional<std::string> pooling;  // "mean" or "cls"; absent for a vector of each token
  bool normalize = false;
  Length length = {};
};

struct Generation {
  std::string text;           // the new text
  std::string finish_reason;  // "eos", "stop", "length", "capacity", "time" or "cancelled"
  int prompt_tokens, tokens;
};

// What a caller gets and decides while a text is generated.
struct Stream {
  // Called with the new text in pieces, without incomplete characters; with beams, all of them come at the end.
  std::function<void(const std::string& piece)> on_text = [](const std::string&) {};
  // Asked after each token; true ends the text, which is returned so far.
  std::function<bool()> cancelled = [] { return false; };
};

struct TransformOptions {
  std::optional<std::string> prefix;              // text before the input, as T5 needs it; by default that of the task
  std::optional<std::string> src_lang, tgt_lang;  // codes of languages, for models with prefixes for them
  bool truncation = false;                        // reads only the start of a text that is too long
  Settings settings = {};
};

// One bundle with its tokenizer and its model. Calls must not overlap.
class TextModel {
 public:
  // Opens the folder of a bundle with LiteRT or ONNX Runtime, whichever its format needs.
  // Throws `BundleError`, `TokenizerError` or `EngineError`.
  static TextModel Open(const std::string& folder, const EngineOptions& options = {});

  // Opens a bundle with another engine, which computes the signatures of the manifest.
  static TextModel Open(const std::string& folder, std::unique_ptr<Engine> engine);

  ~TextModel();
  TextModel(TextModel&&) noexcept;
  TextModel& operator=(TextModel&&) noexcept;

  const Manifest& manifest() const;
  const Tokenizer& tokenizer() const;

  // The classes of a text, or of a pair of texts; the best first.
  std::vector<Label> Classify(std::string_view text, const ClassifyOptions& options = {},
                              std::optional<std::string_view> pair = std::nullopt);

  // Classes that are named in the call, with a model for natural language inference; the best first.
  std::vector<Label> ClassifyZeroShot(std::string_view text, const std::vector<std::string>& labels,
                                      const ZeroShotOptions& options = {});

  // Documents by their relevance to a query, with a classifier of pairs; the most relevant first.
  std::vector<Hit> Rank(std::string_view query, const std::vector<std::string>& documents, const RankOptions& options = {});

  // Named entities, or the labels of tokens.
  std::vector<Entity> Tokens(std::string_view text, const EntityOptions& options = {});

  // Entities of types that are named in the call, with a model of GLiNER, which reads the names before the text.
  std::vector<Entity> Entities(std::string_view text, const std::vector<std::string>& labels, const SpanOptions& options = {});

  // The best answers to a question in a context, the best first; an empty one stands for "no answer".
  std::vector<Answer> AnswerQuestion(std::string_view question, std::string_view context, const AnswerOptions& options = {});

  // The best tokens for each mask token of a text.
  std::vector<std::vector<Filling>> FillMask(std::string_view text, int top_k = 5, bool truncation = false);

  // The embedding of a text.
  Vector Embed(std::string_view text, const EmbedOptions& options = {});

  // The similarity of two embeddings as the model defines it, larger for closer ones.
  double Similarity(const Vector& one, const Vector& other) const;

  // Documents by the similarity of their embeddings to that of a query, with the model's prompts for both.
  std::vector<Hit> Search(std::string_view query, const std::vector<std::string>& documents, std::optional<int> top_k = std::nullopt,
                          const EmbedOptions& options = {});

  // The hidden states of each token, or a single pooled vector.
  std::vector<Vector> Features(std::string_view text, const FeatureOptions& options = {});

  // Continues a text.
  Generation Generate(std::string_view prompt, const Settings& settings = {}, const Stream& stream = {});

  // Writes a text from another one, with the prefix and the settings of a task: "text2text-generation", "summarization" or
  // "translation". `Summarize` and `Translate` are short for it.
  Generation Transform(std::string_view text, const TransformOptions& options = {}, const Stream& stream = {},
                       const std::string& task = "text2text-generation");
  Generation Summarize(std::string_view text, const TransformOptions& options = {}, const Stream& stream = {});
  Generation Translate(std::string_view text, const TransformOptions& options = {}, const Stream& stream = {});

 private:
  struct Parts;
  explicit TextModel(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace kerasformer
