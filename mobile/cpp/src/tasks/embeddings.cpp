// Embeddings of texts and their similarity, hidden states, and words for masked tokens.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tasks/parts.hpp"

namespace kerasformer {
namespace {

double Dot(const Vector& one, const Vector& other) { return std::inner_product(one.begin(), one.end(), other.begin(), 0.0); }

Vector Doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

Vector Mean(const std::vector<Vector>& rows) {
  Vector mean(rows[0].size());
  for (const Vector& row : rows) {
    for (size_t column = 0; column < mean.size(); ++column) mean[column] += row[column] / static_cast<double>(rows.size());
  }
  return mean;
}

// The text to put before inputs: the requested prompt; else the first prompt of some names; else the default prompt.
std::string PromptOf(const Json& embedding, const EmbedOptions& options, const std::vector<std::string>& names = {}) {
  const Json& prompts = embedding["prompts"];
  if (options.prompt_name && options.prompt) throw InputError("Only one of prompt_name and prompt can be set. Received: both");
  if (options.prompt) return *options.prompt;
  if (!options.prompt_name) {
    for (const std::string& name : names) {
      if (prompts.Has(name)) return prompts[name].AsString();
    }
    const bool usual = names.empty() && embedding.Has("default_prompt");
    return usual ? prompts[embedding["default_prompt"].AsString()].AsString() : "";
  }
  if (prompts.Has(*options.prompt_name)) return prompts[*options.prompt_name].AsString();
  std::string known;
  if (prompts.IsObject()) {
    for (const auto& prompt : prompts.AsObject()) known += (known.empty() ? "" : ", ") + Shown(prompt.first);
  }
  throw InputError("The model has no prompt of this name. Expected: " + (known.empty() ? "none; set prompt to the text" : known) +
                   ". Received: " + Shown(*options.prompt_name));
}

}  // namespace

Vector TextModel::Embed(std::string_view text, const EmbedOptions& options) {
  const Json& embedding = parts_->manifest.info["embedding"];
  if (!embedding.IsObject()) throw InputError("embeddings need a model for sentence-similarity. Received: a model without an embedding");
  const int dimension = static_cast<int>(embedding["dimension"].AsInt());
  if (options.truncate_dim) CheckInteger("truncate_dim", *options.truncate_dim, 1, dimension, ", or None");
  const auto chunks = parts_->ChunksOf(PromptOf(embedding, options) + std::string(text), options.length);
  std::vector<Vector> vectors;
  for (const auto& outputs : parts_->Forward(chunks)) vectors.push_back(Doubles(outputs.at("sentence_embedding")));
  Vector whole = Combined(vectors, chunks);
  whole.resize(options.truncate_dim ? *options.truncate_dim : embedding.Int("truncate_dim", dimension));
  return options.normalize.value_or(embedding.Bool("normalized", false)) ? Unit(whole) : whole;
}

double TextModel::Similarity(const Vector& one, const Vector& other) const {
  if (one.size() != other.size()) {
    throw InputError("Two embeddings of one size were expected. Received: " + std::to_string(one.size()) + " and " +
                     std::to_string(other.size()) + " numbers");
  }
  const std::string kind = parts_->manifest.info["embedding"].String("similarity", "cosine");
  if (kind == "cosine") return Dot(Unit(one), Unit(other));
  if (kind == "dot") return Dot(one, other);
  double sum = 0;
  for (size_t index = 0; index < one.size(); ++index) {
    const double difference = std::abs(one[index] - other[index]);
    sum += kind == "manhattan" ? difference : difference * difference;
  }
  return kind == "manhattan" ? -sum : -std::sqrt(sum);
}

std::vector<Hit> TextModel::Search(std::string_view query, const std::vector<std::string>& documents, std::optional<int> top_k,
                                   const EmbedOptions& options) {
  const Json& embedding = parts_->manifest.info["embedding"];
  EmbedOptions of_query = options, of_documents = options;
  of_query.prompt = PromptOf(embedding, options, {"query"});
  of_documents.prompt = PromptOf(embedding, options, {"document", "passage", "corpus"});
  of_query.prompt_name = of_documents.prompt_name = std::nullopt;
  const Vector question = Embed(query, of_query);
  Vector scores;
  for (const std::string& document : documents) scores.push_back(Similarity(question, Embed(document, of_documents)));
  std::vector<Hit> hits;
  for (const size_t index : Ranked(scores, top_k)) hits.push_back({index, scores[index]});
  return hits;
}

std::vector<Vector> TextModel::Features(std::string_view text, const FeatureOptions& options) {
  const std::string pooling = options.pooling.value_or("");
  if (options.pooling && pooling != "mean" && pooling != "cls") {
    throw InputError("pooling must be 'mean', 'cls' or None. Received: pooling=" + Shown(pooling));
  }
  const auto scaled = [&](Vector row) { return options.normalize ? Unit(std::move(row)) : row; };
  const auto chunks = parts_->ChunksOf(text, options.length);
  const auto outputs = parts_->Forward(chunks);
  std::vector<Vector> vectors;
  if (outputs[0].count("sentence_embedding")) {
    if (pooling == "cls") {
      throw InputError("This bundle computes the mean of the token vectors. Expected: 'mean' or None as pooling. Received: 'cls'");
    }
    for (const auto& each : outputs) vectors.push_back(Doubles(each.at("sentence_embedding")));
    return {scaled(Combined(vectors, chunks))};
  }
  std::vector<std::vector<Vector>> states;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    states.push_back(Rows(outputs[chunk].at("last_hidden_state"), chunks[chunk].size()));
  }
  if (!options.pooling) {
    for (const auto& [chunk, index] : BestLocations(chunks)) vectors.push_back(scaled(states[chunk][index]));
    return vectors;
  }
  for (const auto& rows : states) {
    // A tokenizer that adds no special tokens returns none for an empty text.
    if (rows.empty()) {
      vectors.emplace_back(parts_->manifest.signatures.at(0).outputs.at(0).shape.back());
    } else {
      vectors.push_back(pooling == "cls" ? rows[0] : Mean(rows));
    }
  }
  return {scaled(Combined(vectors, chunks))};
}

std::vector<std::vector<Filling>> TextModel::FillMask(std::string_view text, int top_k, bool truncation) {
  const Tokenizer& tokenizer = parts_->tokenizer;
  const auto mask = tokenizer.Named("mask_token");
  if (!mask) throw TokenizerError("fill-mask needs a tokenizer with a mask token. Received: a tokenizer without one");
  const Encoding tokens = parts_->Whole(text, truncation);
  std::vector<size_t> gaps;
  for (size_t index = 0; index < tokens.size(); ++index) {
    if (tokens.ids[index] == tokenizer.TokenToId(*mask)) gaps.push_back(index);
  }
  if (gaps.empty()) throw InputError("The text has no " + *mask + " to fill. Received: " + Shown(text));
  const auto logits = Rows(parts_->Forward(tokens).at("logits"), tokens.size());
  std::vector<std::vector<Filling>> result;
  for (const size_t gap : gaps) {
    const Vector scores = Softmax(logits[gap]);
    result.emplace_back();
    for (const size_t index : Ranked(scores, top_k)) {
      const int token = static_cast<int>(index);
      std::vector<int> ids = tokens.ids;
      ids[gap] = token;
      result.back().push_back({scores[index], token, tokenizer.Decode({token}), tokenizer.Decode(ids, gaps.size() == 1)});
    }
  }
  return result;
}

}  // namespace kerasformer
