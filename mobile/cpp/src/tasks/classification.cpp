// Classification of texts and of pairs, with labels of the model or of the call, and ranking.
#include <algorithm>
#include <cmath>

#include "tasks/parts.hpp"

namespace kerasformer {
namespace {

using Strategy = Truncation::Strategy;

// The scores of classes from the logits of a model.
Vector Scores(const Json& info, size_t num_labels, const Vector& logits) {
  const std::string problem = info.String("problem_type", "");
  if (problem == "regression") return logits;
  return problem == "multi_label_classification" || num_labels == 1 ? Sigmoid(logits) : Softmax(logits);
}

// The score of one class for ranking.
double Relevance(const Json& info, size_t num_labels, const Vector& logits, size_t column) {
  const std::string modules = "torch.nn.modules.", name = info.String("score_activation", "");
  if (name.empty()) return num_labels == 1 ? Sigmoid(logits)[column] : logits[column];
  if (name == modules + "linear.Identity") return logits[column];
  if (name == modules + "activation.Sigmoid") return Sigmoid(logits)[column];
  if (name == modules + "activation.Tanh") return std::tanh(logits[column]);
  throw InputError("The checkpoint has an unsupported function for scores. Expected: " + modules + "linear.Identity or " + modules +
                   "activation.Sigmoid or " + modules + "activation.Tanh. Received: " + name);
}

Vector Doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// The index of the class whose name starts with "entail".
size_t Entailment(const std::vector<std::string>& labels) {
  for (size_t index = 0; index < labels.size() && labels.size() > 1; ++index) {
    std::string start = labels[index].substr(0, 6);
    std::transform(start.begin(), start.end(), start.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    if (start == "entail") return index;
  }
  std::string listed;
  for (const std::string& label : labels) listed += (listed.empty() ? "" : ", ") + label;
  throw InputError("zero-shot-classification needs a model for natural language inference, with a class whose name starts with "
                   "'entail' and at least one other. Received: the classes " + (listed.empty() ? "none" : listed));
}

// A sentence about each class.
std::vector<std::string> Hypotheses(const std::string& pattern, const std::vector<std::string>& labels) {
  const size_t place = pattern.find("{}");
  if (place == std::string::npos) {
    throw InputError("hypothesis_template must contain {}, which is replaced by the name of a class. Received: hypothesis_template=" +
                     Shown(pattern));
  }
  std::vector<std::string> sentences;
  for (const std::string& label : labels) sentences.push_back(pattern.substr(0, place) + label + pattern.substr(place + 2));
  return sentences;
}

}  // namespace

std::vector<Label> TextModel::Classify(std::string_view text, const ClassifyOptions& options, std::optional<std::string_view> pair) {
  const Json& info = parts_->manifest.info;
  const std::vector<std::string> labels = info["labels"].Strings();
  if (options.top_k) CheckInteger("top_k", *options.top_k, 1, std::nullopt, ", or None");
  CheckOneOf("combine", options.combine, {"mean", "max"});
  const auto chunks = pair ? std::vector<Encoding>{parts_->Whole(text, options.length.truncation, pair)}
                           : parts_->ChunksOf(text, options.length);
  std::vector<Vector> scores;
  for (const auto& outputs : parts_->Forward(chunks)) scores.push_back(Scores(info, labels.size(), Doubles(outputs.at("logits"))));
  const Vector combined = Combined(scores, chunks, options.combine);
  std::vector<Label> result;
  for (const size_t index : Ranked(combined, options.top_k)) result.push_back({labels.at(index), combined[index]});
  return result;
}

std::vector<Label> TextModel::ClassifyZeroShot(std::string_view text, const std::vector<std::string>& labels,
                                               const ZeroShotOptions& options) {
  std::vector<std::string> names;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(names), [](const std::string& name) { return !name.empty(); });
  if (names.empty()) throw InputError("At least one class was expected. Received: candidate_labels=" + Json(labels).Shown());
  const auto hypotheses = Hypotheses(options.hypothesis_template, names);
  const bool independent = options.multi_label || names.size() == 1;
  CheckOneOf("combine", options.combine, {"mean", "max"});
  const std::vector<std::string> classes = parts_->manifest.info["labels"].Strings();
  const size_t entailment = Entailment(classes);
  const size_t contradiction = entailment == 0 ? classes.size() - 1 : 0;  // as in transformers
  Vector evidence;
  for (const auto& chunks : parts_->ChunksOfPairs(text, hypotheses, options.length, true, Strategy::kOnlyFirst)) {
    std::vector<Vector> logits;
    for (const auto& outputs : parts_->Forward(chunks)) {
      const Vector row = Doubles(outputs.at("logits"));
      logits.push_back({independent ? row[entailment] - row[contradiction] : row[entailment]});
    }
    evidence.push_back(Combined(logits, chunks, options.combine)[0]);
  }
  const Vector scores = independent ? Sigmoid(evidence) : Softmax(evidence);
  std::vector<Label> result;
  for (const size_t index : Ranked(scores)) result.push_back({names[index], scores[index]});
  return result;
}

std::vector<Hit> TextModel::Rank(std::string_view query, const std::vector<std::string>& documents, const RankOptions& options) {
  const Json& info = parts_->manifest.info;
  const std::vector<std::string> labels = info["labels"].Strings();
  CheckOneOf("combine", options.combine, {"mean", "max"});
  const auto found = options.label ? std::find(labels.begin(), labels.end(), *options.label) : labels.begin();
  if (found == labels.end() || (!options.label && labels.size() != 1)) {
    std::string listed;
    for (const std::string& label : labels) listed += (listed.empty() ? "" : ", ") + label;
    throw InputError("A model with several classes ranks by one of them. Expected: label, one of " + listed + ". Received: " +
                     options.label.value_or("None"));
  }
  const auto column = static_cast<size_t>(found - labels.begin());
  Vector scores;
  for (const std::string& document : documents) {
    // Each document is the long text of its pair.
    const auto chunks = parts_->ChunksOfPairs(document, {std::string(query)}, options.length, false, Strategy::kLongestFirst)[0];
    std::vector<Vector> values;
    for (const auto& outputs : parts_->Forward(chunks)) {
      values.push_back({Relevance(info, labels.size(), Doubles(outputs.at("logits")), column)});
    }
    scores.push_back(Combined(values, chunks, options.combine, 1)[0]);
  }
  std::vector<Hit> hits;
  for (const size_t index : Ranked(scores, options.top_k)) hits.push_back({index, scores[index]});
  return hits;
}

}  // namespace kerasformer
