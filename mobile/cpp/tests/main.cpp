// The program of the tests: compares this library with the vectors that Python writes, and answers calls.
//
//     kerasformer_tests tokenizer FOLDER              tokenizer.json and rows.jsonl
//     kerasformer_tests decoding FOLDER TOKENIZERS    the files of decoding/
//     kerasformer_tests task FOLDER                   a bundle and calls.json
//     kerasformer_tests call FOLDER LIBRARY < CALLS   answers calls in JSON with a real engine
//     kerasformer_tests time-calls FOLDER LIBRARY < CALLS   writes the processor's seconds of each, twice answered
//
// A comparison writes a line for each difference, and the number of cases at its end.
#include <cmath>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

#include "decoding/decoding.hpp"
#include "engines/models.hpp"
#include "kerasformer/text_model.hpp"
#include "text/files.hpp"

using namespace kerasformer;

namespace {

int num_cases = 0, num_differences = 0;

void Compare(const std::string& what, const Json& expected, const Json& received) {
  ++num_cases;
  if (expected.Canonical() == received.Canonical()) return;
  ++num_differences;
  std::cout << what << "\n  expected " << expected.Canonical() << "\n  received " << received.Canonical() << "\n";
}

// Whether two results are equal, where numbers may differ a little.
bool IsClose(const Json& one, const Json& other) {
  if (one.IsNumber() && other.IsNumber()) {
    const double expected = one.AsDouble();
    return std::abs(expected - other.AsDouble()) <= 2e-5 * std::max(1.0, std::abs(expected));
  }
  if (one.IsArray() && other.IsArray()) {
    bool same = one.AsArray().size() == other.AsArray().size();
    for (size_t index = 0; same && index < one.AsArray().size(); ++index) same = IsClose(one.AsArray()[index], other.AsArray()[index]);
    return same;
  }
  if (one.IsObject() && other.IsObject()) {
    bool same = one.AsObject().size() == other.AsObject().size();
    for (const auto& [name, value] : one.AsObject()) same = same && IsClose(value, other[name]);
    return same;
  }
  return one.Canonical() == other.Canonical();
}

Json ErrorOf(const std::string& name, const std::exception& error) { return Json::Object{{"name", name}, {"message", error.what()}}; }

// The result of a function, or its error.
template <class Function>
Json Caught(const Function& function) {
  try {
    return function();
  } catch (const CapacityError& error) {
    return ErrorOf("CapacityError", error);
  } catch (const InputError& error) {
    return ErrorOf("InputError", error);
  } catch (const GenerationError& error) {
    return ErrorOf("GenerationError", error);
  } catch (const TokenizerError& error) {
    return ErrorOf("TokenizerError", error);
  } catch (const BundleError& error) {
    return ErrorOf("BundleError", error);
  } catch (const EngineError& error) {
    return ErrorOf("EngineError", error);
  }
}

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::Parse(line));
  return rows;
}

// Runs of values: value, count, value, count.
Json RunsOf(const std::vector<int>& values) {
  std::vector<int> runs;
  for (const int value : values) {
    if (runs.empty() || runs[runs.size() - 2] != value) runs.insert(runs.end(), {value, 0});
    ++runs.back();
  }
  return runs;
}

Json Flat(const std::vector<Offsets>& offsets) {
  std::vector<int> flat;
  for (const auto& [start, end] : offsets) flat.insert(flat.end(), {start, end});
  return flat;
}

void CompareTexts(const std::string& what, const Json& row, const std::string& text, const std::vector<int>& ids, const Tokenizer& tokenizer) {
  const std::string plain = tokenizer.Decode(ids, true);
  Compare(what + " decoded", row.String("decoded", text), tokenizer.Decode(ids));
  Compare(what + " plain", row.String("plain", text), plain);
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  std::string whole;
  for (const int id : ids) pieces.push_back(stream.Put({id}));
  pieces.push_back(stream.End());
  for (const std::string& piece : pieces) whole += piece;
  if (row.Has("pieces")) {
    Compare(what + " pieces", row["pieces"], pieces);
  } else {
    Compare(what + " stream", plain, whole);
  }
}

void CompareRow(const std::string& what, const Json& row, const Tokenizer& tokenizer) {
  if (row.Has("decode")) return CompareTexts(what, row, "", row["decode"].Ints(), tokenizer);
  const std::string text = row["text"].AsString(), pair = row.String("pair", "");
  const auto second = row.Has("pair") ? std::optional<std::string_view>(pair) : std::nullopt;
  Encoding tokens;
  const Json failed = Caught([&] {
    tokens = tokenizer.Encode(text, second, row.Bool("special", true));
    return Json();
  });
  if (row.Has("error") || !failed.IsNull()) {
    Compare(what + " error", row["error"]["name"], failed["name"]);
    return;
  }
  if (row.Has("truncation")) {
    const Json& cut = row["truncation"];
    const std::string strategy = cut["strategy"].AsString();
    const auto kind = strategy == "only_first"    ? Truncation::Strategy::kOnlyFirst
                      : strategy == "only_second" ? Truncation::Strategy::kOnlySecond
                                                  : Truncation::Strategy::kLongestFirst;
    Json::Array received;
    for (const Encoding& chunk : Chunks(tokens, {static_cast<int>(cut["limit"].AsInt()), kind, static_cast<int>(cut.Int("stride", 0)),
                                                 cut.String("side", "right") == "left"})) {
      received.push_back(chunk.ids);
    }
    if (!cut.Bool("overflow", false)) received.resize(1);
    return Compare(what + " chunks", row["chunks"], received);
  }
  const auto runs = [&](const char* name, const std::vector<int>& values) {
    if (row.Has(name)) return Compare(what + " " + name, row[name], RunsOf(values));
    Compare(what + " " + name, 0, static_cast<int>(std::count_if(values.begin(), values.end(), [](int value) { return value != 0; })));
  };
  Compare(what + " ids", row["ids"], tokens.ids);
  Compare(what + " offsets", row["offsets"], Flat(tokens.offsets));
  runs("types", tokens.type_ids);
  runs("mask", tokens.special_tokens_mask);
  Compare(what + " words", row["words"], RunsOf(tokens.word_ids));
  if (row.Has("sequences")) Compare(what + " sequences", row["sequences"], RunsOf(tokens.sequence_ids));
  CompareTexts(what, row, text, tokens.ids, tokenizer);
}

void CompareTokenizer(const std::string& folder) {
  if (std::ifstream(folder + "/error.json")) {
    const Json expected = Json::Parse(ReadFile(folder, "error.json"));
    const Json failed = Caught([&] { return Tokenizer::Open(folder).Vocabulary().empty() ? Json() : Json(true); });
    Compare(folder, expected["name"], failed["name"]);
    return Compare(folder, true, failed["message"].AsString().find(expected["contains"].AsString()) != std::string::npos);
  }
  const Tokenizer tokenizer = Tokenizer::Open(folder);
  const bool has_target = static_cast<bool>(std::ifstream(folder + "/target_tokenizer.json"));
  const auto rows = Lines(ReadFile(folder, "rows.jsonl"));
  for (size_t index = 0; index < rows.size(); ++index) {
    if (has_target && rows[index].Has("decode")) {
      CompareRow(folder + " row " + std::to_string(index), rows[index], Tokenizer::Open(folder, "target_tokenizer.json"));
    } else {
      CompareRow(folder + " row " + std::to_string(index), rows[index], tokenizer);
    }
  }
}

// The mock model, whose logits are a hash of the tokens so far.
struct Mock {
  uint32_t seed;
  size_t order;
  int vocab_size, capacity;
  bool encodes;

  explicit Mock(const Json& json)
      : seed(static_cast<uint32_t>(json["seed"].AsInt())),
        order(static_cast<size_t>(json["order"].AsInt())),
        vocab_size(static_cast<int>(json["vocab_size"].AsInt())),
        capacity(static_cast<int>(json["capacity"].AsInt())),
        encodes(json.Has("encoder_capacity")) {}

  static uint32_t Mix(uint32_t hash, uint32_t x) {
    hash = (hash ^ x) * 0x9E3779B1;
    hash = (hash ^ (hash >> 15)) * 0x85EBCA77;
    return hash ^ (hash >> 13);
  }

  kerasformer::Logits Logits(const std::vector<int>& encoder, const std::vector<int>& history) const {
    uint32_t hash = seed;
    if (encodes) {
      for (const int id : encoder) hash = Mix(hash, id);
      hash = Mix(hash, 0xFFFFFFFF);
    }
    for (size_t at = history.size() - std::min(order, history.size()); at < history.size(); ++at) hash = Mix(hash, history[at]);
    kerasformer::Logits logits;
    for (int token = 0; token < vocab_size; ++token) {
      logits.push_back(static_cast<float>(Mix(hash, token) >> 8) / 1048576.0f - 8.0f);
    }
    return logits;
  }
};

// The mock model as a generating model.
class MockSteps : public StepModel {
 public:
  explicit MockSteps(const Json& json) : mock_(json) {}

  bool is_encoder_decoder() const override { return mock_.encodes; }
  int capacity() const override { return mock_.capacity; }
  int vocab_size() const override { return mock_.vocab_size; }

  State Start(const std::vector<int>& ids) override {
    encoder_ = ids;
    return std::make_shared<std::vector<int>>(ids.begin(), mock_.encodes ? ids.begin() : ids.end() - 1);
  }

  std::pair<Logits, State> Step(int token, State state) override {
    std::vector<int> history = *std::static_pointer_cast<const std::vector<int>>(state);
    history.push_back(token);
    Logits logits = mock_.Logits(encoder_, history);
    return {std::move(logits), std::make_shared<std::vector<int>>(std::move(history))};
  }

 private:
  const Mock mock_;
  std::vector<int> encoder_;
};

// An engine of the mock model, whose caches hold ids, or of recorded outputs.
class TestEngine : public Engine {
 public:
  explicit TestEngine(const Json& json) : recorded_(json["recorded"]) {
    if (json.Has("mock")) mock_ = std::make_unique<Mock>(json["mock"]);
  }

  Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>& kept) override {
    const std::vector<int64_t> ids = Integers(signature, inputs, "ids");
    if (!mock_) return Recorded(signature, inputs, ids);
    Tensors outputs;
    if (signature.role == "encode") {
      const auto mask = Integers(signature, inputs, "mask");
      const auto size = static_cast<size_t>(std::count(mask.begin(), mask.end(), 1));
      for (const TensorInfo& info : signature.outputs) outputs[info.name].handle = std::make_shared<std::vector<int>>(ids.begin(), ids.begin() + size);
      return outputs;
    }
    std::vector<int> history = Held(signature, inputs, {"key", "value", "state"});
    const auto encoder = mock_->encodes ? Held(signature, inputs, {"memory", "cross_key"}) : std::vector<int>();
    const auto slots = Integers(signature, inputs, "slots");
    const size_t start = slots.empty() ? history.size() : slots[0];
    history.resize(start);
    history.insert(history.end(), ids.begin(), ids.end());
    for (const TensorInfo& info : signature.outputs) {
      Tensor& tensor = outputs[info.name];
      if (std::count(kept.begin(), kept.end(), info.name)) {
        const bool cross = info.kind.rfind("cross", 0) == 0;
        tensor.handle = std::make_shared<std::vector<int>>(cross ? encoder : history);
      } else if (info.kind == "logits") {
        tensor.floats = mock_->Logits(encoder, history);
      }
    }
    return outputs;
  }

 private:
  static std::vector<int64_t> Integers(const Signature& signature, const Tensors& inputs, const std::string& kind) {
    const TensorInfo* info = signature.Input(kind);
    return info ? inputs.at(info->name).integers : std::vector<int64_t>();
  }

  // The ids that a cache holds.
  static std::vector<int> Held(const Signature& signature, const Tensors& inputs, const std::vector<std::string>& kinds) {
    for (const std::string& kind : kinds) {
      const TensorInfo* info = signature.Input(kind);
      if (info && inputs.count(info->name) && inputs.at(info->name).handle) return *std::static_pointer_cast<std::vector<int>>(inputs.at(info->name).handle);
    }
    return {};
  }

  // Slots without padding.
  static std::vector<int> Filled(const std::vector<int64_t>& slots) {
    std::vector<int> filled;
    std::copy_if(slots.begin(), slots.end(), std::back_inserter(filled), [](int64_t slot) { return slot >= 0; });
    return filled;
  }

  // Scores of spans with zeros for padding, up to the numbers of words and labels of a shape.
  static Tensor PaddedSpans(const Tensor& scores, const std::vector<int64_t>& shape) {
    Tensor padded;
    padded.shape = shape;
    padded.floats.resize(shape[1] * shape[2] * shape[3]);
    for (int64_t row = 0; row < scores.shape[1] * scores.shape[2]; ++row) {
      std::copy_n(scores.floats.begin() + row * scores.shape[3], scores.shape[3], padded.floats.begin() + row * shape[3]);
    }
    return padded;
  }

  Tensors Recorded(const Signature& signature, const Tensors& inputs, std::vector<int64_t> ids) const {
    const auto mask = Integers(signature, inputs, "mask");
    auto types = Integers(signature, inputs, "segments");
    const auto size = static_cast<size_t>(std::count(mask.begin(), mask.end(), 1));
    ids.resize(size);
    types.resize(size);
    const std::vector<int> words = Filled(Integers(signature, inputs, "word_slots")), labels = Filled(Integers(signature, inputs, "label_slots"));
    for (const Json& call : recorded_.AsArray()) {
      const std::vector<int> expected = call["ids"].Ints();
      if (!std::equal(ids.begin(), ids.end(), expected.begin(), expected.end())) continue;
      const std::vector<int> segments = call.Has("types") ? call["types"].Ints() : std::vector<int>(size);
      if (!std::equal(types.begin(), types.end(), segments.begin(), segments.end())) continue;
      if (words != call["word_slots"].Ints() || labels != call["label_slots"].Ints()) continue;
      Tensors outputs;
      for (const auto& [name, output] : call["outputs"].AsObject()) {
        const std::string& key = name;
        Tensor& tensor = outputs[name];
        for (const Json& value : output["values"].AsArray()) tensor.floats.push_back(static_cast<float>(value.AsDouble()));
        for (const Json& length : output["shape"].AsArray()) tensor.shape.push_back(length.AsInt());
        if (signature.tokens && !words.empty()) {
          const auto described = std::find_if(signature.outputs.begin(), signature.outputs.end(), [&](const auto& info) { return info.name == key; });
          tensor = PaddedSpans(tensor, described->shape);
        } else if (signature.tokens && tensor.shape.size() > 1 && tensor.shape[1] == static_cast<int64_t>(size)) {
          tensor.floats.resize(tensor.floats.size() / size * *signature.tokens);
        }
      }
      return outputs;
    }
    throw EngineError("no outputs were recorded for " + Json(std::vector<int>(ids.begin(), ids.end())).Canonical());
  }

  const Json recorded_;
  std::unique_ptr<Mock> mock_;
};

Json FloatsOf(const std::vector<float>& values) {
  Json::Array floats;
  for (const float value : values) floats.push_back(static_cast<double>(value));
  return floats;
}

Logits LogitsOf(const Json& json) {
  Logits logits;
  for (const Json& value : json.AsArray()) {
    logits.push_back(value.IsString() ? -std::numeric_limits<float>::infinity() : static_cast<float>(value.AsDouble()));
  }
  return logits;
}

// The settings that differ from the defaults.
Json Changed(const GenerationConfig& config, const Json& expected) {
  Json::Object changed;
  const auto add = [&](const std::string& name, bool differs, const Json& value) {
    if (differs) changed.emplace_back(name, value);
  };
  const auto number = [&](const std::string& name, const auto& value, double usual) {
    // The text of an expected number is kept, since 1 and 1.0 are the same.
    const bool same = expected[name].IsNumber() && expected[name].AsDouble() == static_cast<double>(value);
    add(name, static_cast<double>(value) != usual, same ? expected[name] : Json(static_cast<double>(value)));
  };
  const auto optional = [&](const std::string& name, const auto& value) {
    if (value) number(name, *value, NAN);
  };
  optional("max_new_tokens", config.max_new_tokens);
  optional("max_length", config.max_length);
  optional("min_new_tokens", config.min_new_tokens);
  number("min_length", config.min_length, 0);
  add("do_sample", config.do_sample, true);
  number("num_beams", config.num_beams, 1);
  number("length_penalty", config.length_penalty, 1);
  add("early_stopping", config.early_stopping || config.never_stops_early, config.early_stopping ? Json(true) : Json("never"));
  number("temperature", config.temperature, 1);
  number("top_k", config.top_k, 0);
  number("top_p", config.top_p, 1);
  optional("min_p", config.min_p);
  optional("seed", config.seed);
  number("encoder_repetition_penalty", config.encoder_repetition_penalty, 1);
  number("repetition_penalty", config.repetition_penalty, 1);
  number("frequency_penalty", config.frequency_penalty, 0);
  number("presence_penalty", config.presence_penalty, 0);
  number("no_repeat_ngram_size", config.no_repeat_ngram_size, 0);
  number("encoder_no_repeat_ngram_size", config.encoder_no_repeat_ngram_size, 0);
  Json::Array words(config.bad_words_ids.begin(), config.bad_words_ids.end());
  add("bad_words_ids", !words.empty(), words);
  for (const auto& [name, value] : {std::pair("forced_bos_token_id", config.forced_bos_token_id), {"pad_token_id", config.pad_token_id},
                                    {"bos_token_id", config.bos_token_id}, {"decoder_start_token_id", config.decoder_start_token_id}}) {
    optional(name, value);
  }
  for (const auto& [name, value] :
       {std::pair("forced_eos_token_id", config.forced_eos_token_id), {"suppress_tokens", config.suppress_tokens},
        {"begin_suppress_tokens", config.begin_suppress_tokens}, {"eos_token_id", config.eos_token_id}}) {
    add(name, !value.empty(), value);
  }
  add("stop_strings", !config.stop_strings.empty(), config.stop_strings);
  optional("max_time", config.max_time);
  return changed;
}

void CompareDecoding(const std::string& folder, const std::string& tokenizers) {
  const auto rows = [&](const std::string& name) { return Json::Parse(ReadFile(folder, name)).AsArray(); };
  for (const Json& row : rows("mock.json")) {
    const Logits logits = Mock(row["model"]).Logits(row["encoder"].Ints(), row["history"].Ints());
    Compare("mock", FloatsOf(LogitsOf(row["logits"])), FloatsOf(logits));
  }
  for (const Json& row : rows("random.json")) {
    Random random(static_cast<uint64_t>(row["seed"].AsInt()));
    for (const Json& value : row["values"].AsArray()) Compare("random", Json(value.AsDouble()), Json(random.Next()));
  }
  for (const Json& row : rows("samplers.json")) {
    const GenerationConfig config = Settle({}, row["settings"].AsObject());
    std::vector<int> tokens;
    for (const Json& uniform : row["uniform"].AsArray()) {
      tokens.push_back(Choose(LogitsOf(row["logits"]), config, [&] { return uniform.AsDouble(); }));
    }
    Compare("sampler " + row["settings"].Canonical(), row["tokens"], tokens);
  }
  for (const Json& row : rows("rules.json")) {
    const Logits before = LogitsOf(row["logits"]);
    const History history{row["ids"].Ints(), static_cast<size_t>(row["width"].AsInt()), row["prompt"].Ints()};
    const Logits after = ApplyRules(history, before, Settle({}, row["settings"].AsObject()));
    Logits expected = before;
    for (const auto& [token, value] : row["changed"].AsObject()) expected[std::stoi(token)] = LogitsOf(Json::Array{value})[0];
    Compare("rules " + row["settings"].Canonical(), FloatsOf(expected), FloatsOf(after));
  }
  for (const Json& row : rows("settings.json")) {
    const std::string what = "settings " + row["settings"].Canonical() + " after " + row["stored"].Canonical();
    const Json received = Caught([&] { return Changed(Settle(row["stored"].AsObject(), row["settings"].AsObject()), row["config"]); });
    // Sampling with several beams is unsupported.
    const bool beams = received["message"].IsString() && received["message"].AsString().find("beam search with sampling") == 0;
    if (!beams || row.Has("error")) Compare(what, row.Has("error") ? row["error"] : row["config"], received);
  }
  std::map<std::string, Tokenizer> opened;
  for (const Json& row : rows("generations.json")) {
    const Json received = Caught([&]() -> Json {
      MockSteps model(row["model"]);
      Controls controls;
      const std::string name = row.String("tokenizer", "");
      if (!name.empty() && !opened.count(name)) opened.emplace(name, Tokenizer::Open(tokenizers + "/" + name));
      if (!name.empty()) controls.decode = [&](const std::vector<int>& ids) { return opened.at(name).Decode(ids); };
      const Generated result = Generate(model, row["prompt"].Ints(), Settle(row["stored"].AsObject(), row["settings"].AsObject()), controls);
      return Json::Object{{"tokens", result.tokens}, {"reason", result.reason}};
    });
    Compare("generation " + row["name"].AsString(),
            row.Has("error") ? row["error"] : Json(Json::Object{{"tokens", row["tokens"]}, {"reason", row["reason"]}}), received);
  }
}

Length LengthOf(const Json& options) {
  Length length;
  length.truncation = options.Bool("truncation", false);
  if (options.Has("chunk_length")) length.chunk_length = static_cast<int>(options["chunk_length"].AsInt());
  if (options.Has("stride")) length.stride = static_cast<int>(options["stride"].AsInt());
  return length;
}

std::optional<int> Count(const Json& options, const std::string& name, std::optional<int> usual = std::nullopt) {
  if (options.IsObject()) {
    for (const auto& [key, value] : options.AsObject()) {
      if (key == name) return value.IsNull() ? std::nullopt : std::optional(static_cast<int>(value.AsInt()));
    }
  }
  return usual;
}

std::optional<std::string> Text(const Json& options, const std::string& name) {
  return options.Has(name) ? std::optional(options[name].AsString()) : std::nullopt;
}

Json LabelsOf(const std::vector<Label>& labels) {
  Json::Array result;
  for (const Label& label : labels) result.push_back(Json::Object{{"label", label.label}, {"score", label.score}});
  return result;
}

Json HitsOf(const std::vector<Hit>& hits, const std::vector<std::string>& documents, bool with_text) {
  Json::Array result;
  for (const Hit& hit : hits) {
    Json::Object object{{"corpus_id", static_cast<int64_t>(hit.corpus_id)}, {"score", hit.score}};
    if (with_text) object.emplace_back("text", documents[hit.corpus_id]);
    result.push_back(object);
  }
  return result;
}

Json VectorOf(const Vector& vector) { return Json::Array(vector.begin(), vector.end()); }

EmbedOptions EmbeddingOptions(const Json& options) {
  EmbedOptions result;
  result.prompt = Text(options, "prompt");
  result.prompt_name = Text(options, "prompt_name");
  result.truncate_dim = Count(options, "truncate_dim");
  if (options.Has("normalize")) result.normalize = options["normalize"].AsBool();
  result.length = LengthOf(options);
  return result;
}

Json Classified(TextModel& model, const Json& inputs, const Json& options) {
  ClassifyOptions settings;
  settings.top_k = Count(options, "top_k", 1);
  settings.combine = options.String("combine", "mean");
  settings.length = LengthOf(options);
  if (inputs.IsString()) return LabelsOf(model.Classify(inputs.AsString(), settings));
  return LabelsOf(model.Classify(inputs["text"].AsString(), settings, inputs["pair"].AsString()));
}

// Names as a list, or separated by commas.
std::vector<std::string> NamesOf(const Json& given) {
  if (!given.IsString()) return given.Strings();
  std::vector<std::string> names;
  std::istringstream text(given.AsString());
  for (std::string name; std::getline(text, name, ',');) {
    const size_t start = name.find_first_not_of(' ');
    names.push_back(start == std::string::npos ? "" : name.substr(start, name.find_last_not_of(' ') - start + 1));
  }
  return names;
}

Json ZeroShot(TextModel& model, const Json& inputs, const Json& options) {
  ZeroShotOptions settings;
  settings.hypothesis_template = options.String("hypothesis_template", settings.hypothesis_template);
  settings.multi_label = options.Bool("multi_label", false);
  settings.combine = options.String("combine", "mean");
  settings.length = LengthOf(options);
  std::vector<std::string> names;
  Json::Array scores;
  for (const Label& label : model.ClassifyZeroShot(inputs.AsString(), NamesOf(options["candidate_labels"]), settings)) {
    names.push_back(label.label);
    scores.push_back(label.score);
  }
  return Json::Object{{"sequence", inputs}, {"labels", names}, {"scores", scores}};
}

Json Ranking(TextModel& model, const Json& inputs, const Json& options) {
  RankOptions settings;
  settings.top_k = Count(options, "top_k");
  settings.label = Text(options, "label");
  settings.combine = options.String("combine", "max");
  settings.length = LengthOf(options);
  const auto documents = inputs["documents"].Strings();
  return HitsOf(model.Rank(inputs["query"].AsString(), documents, settings), documents, options.Bool("return_documents", false));
}

Json Similarities(TextModel& model, const Json& inputs, const Json& options) {
  const EmbedOptions settings = EmbeddingOptions(options);
  if (inputs.IsString()) return VectorOf(model.Embed(inputs.AsString(), settings));
  if (inputs.Has("query")) {
    const auto documents = inputs["documents"].Strings();
    return HitsOf(model.Search(inputs["query"].AsString(), documents, Count(options, "top_k"), settings), documents,
                  options.Bool("return_documents", false));
  }
  Json::Array rows;
  for (const std::string& text : (inputs.IsArray() ? inputs : inputs["some"]).Strings()) {
    const Vector vector = model.Embed(text, settings);
    Json::Array row;
    if (!inputs.IsArray()) {
      for (const std::string& other : inputs["others"].Strings()) row.push_back(model.Similarity(vector, model.Embed(other, settings)));
    }
    rows.push_back(inputs.IsArray() ? VectorOf(vector) : Json(row));
  }
  return rows;
}

Json Extracted(TextModel& model, const Json& inputs, const Json& options) {
  FeatureOptions settings;
  settings.pooling = Text(options, "pooling");
  settings.normalize = options.Bool("normalize", false);
  settings.length = LengthOf(options);
  const auto vectors = model.Features(inputs.AsString(), settings);
  if (settings.pooling) return VectorOf(vectors.at(0));
  Json::Array rows;
  for (const Vector& vector : vectors) rows.push_back(VectorOf(vector));
  return rows;
}

Json Filled(TextModel& model, const Json& inputs, const Json& options) {
  Json::Array gaps;
  for (const auto& fillings : model.FillMask(inputs.AsString(), static_cast<int>(options.Int("top_k", 5)), options.Bool("truncation", false))) {
    Json::Array rows;
    for (const Filling& each : fillings) {
      rows.push_back(Json::Object{{"score", each.score}, {"token", each.token}, {"token_str", each.token_str}, {"sequence", each.sequence}});
    }
    gaps.push_back(rows);
  }
  return gaps.size() == 1 ? gaps[0] : Json(gaps);
}

Json Entities(TextModel& model, const Json& inputs, const Json& options) {
  EntityOptions settings;
  settings.aggregation_strategy = options.String("aggregation_strategy", "none");
  if (options.Has("ignore_labels")) settings.ignore_labels = options["ignore_labels"].Strings();
  settings.combine = options.String("combine", "tokens");
  settings.length = LengthOf(options);
  const bool single = settings.aggregation_strategy == "none";
  Json::Array rows;
  for (const Entity& each : model.Tokens(inputs.AsString(), settings)) {
    Json::Object row{{single ? "entity" : "entity_group", each.entity}, {"score", each.score}, {"word", each.word}, {"start", each.start}, {"end", each.end}};
    if (single) row.emplace_back("index", each.index);
    rows.push_back(row);
  }
  return rows;
}

Json NamedEntities(TextModel& model, const Json& inputs, const Json& options) {
  SpanOptions settings;
  if (options.Has("threshold")) settings.threshold = options["threshold"].AsDouble();
  settings.flat_ner = options.Bool("flat_ner", true);
  settings.multi_label = options.Bool("multi_label", false);
  settings.truncation = options.Bool("truncation", false);
  Json::Array rows;
  for (const Entity& each : model.Entities(inputs.AsString(), NamesOf(options["labels"]), settings)) {
    rows.push_back(Json::Object{
        {"entity_group", each.entity}, {"score", each.score}, {"word", each.word}, {"start", each.start}, {"end", each.end}});
  }
  return rows;
}

Json Answers(TextModel& model, const Json& inputs, const Json& options) {
  AnswerOptions settings;
  settings.top_k = static_cast<int>(options.Int("top_k", 1));
  settings.doc_stride = static_cast<int>(options.Int("doc_stride", 128));
  settings.chunk_length = Count(options, "chunk_length");
  settings.max_answer_len = static_cast<int>(options.Int("max_answer_len", 15));
  settings.handle_impossible_answer = options.Bool("handle_impossible_answer", false);
  Json::Array rows;
  for (const Answer& each : model.AnswerQuestion(inputs["question"].AsString(), inputs["context"].AsString(), settings)) {
    rows.push_back(Json::Object{{"score", each.score}, {"start", each.start}, {"end", each.end}, {"answer", each.answer}});
  }
  return settings.top_k == 1 ? rows[0] : Json(rows);
}

// Generates a text; returns the result of Python, the pieces of the stream and why the text ended.
Json Written(TextModel& model, const std::string& task, const Json& inputs, const Json& options, Json::Array& pieces, std::string& reason) {
  static const std::set<std::string> kOwn = {"return_full_text", "prefix", "src_lang", "tgt_lang", "truncation"};
  TransformOptions settings;
  for (const auto& [name, value] : options.AsObject()) {
    if (!kOwn.count(name)) settings.settings.emplace_back(name, value);
  }
  settings.prefix = Text(options, "prefix");
  settings.src_lang = Text(options, "src_lang");
  settings.tgt_lang = Text(options, "tgt_lang");
  settings.truncation = options.Bool("truncation", false);
  Stream stream;
  stream.on_text = [&](const std::string& piece) { pieces.push_back(piece); };
  const std::string text = inputs.AsString();
  const bool continues = task == "text-generation";
  const Generation result = continues                 ? model.Generate(text, settings.settings, stream)
                            : task == "translation"   ? model.Translate(text, settings, stream)
                            : task == "summarization" ? model.Summarize(text, settings, stream)
                                                      : model.Transform(text, settings, stream, task);
  reason = result.finish_reason;
  const char* key = task == "translation" ? "translation_text" : task == "summarization" ? "summary_text" : "generated_text";
  return Json::Array{Json::Object{{key, (continues && options.Bool("return_full_text", true) ? text : "") + result.text}}};
}

using Task = Json (*)(TextModel&, const Json&, const Json&);

const std::map<std::string, Task> kTasks = {{"text-classification", Classified}, {"zero-shot-classification", ZeroShot},
                                            {"text-ranking", Ranking},           {"sentence-similarity", Similarities},
                                            {"feature-extraction", Extracted},   {"fill-mask", Filled},
                                            {"token-classification", Entities},  {"question-answering", Answers},
                                            {"zero-shot-token-classification", NamedEntities}};

// Answers a call; `pieces` and `reason` are filled for texts that are generated.
Json Answered(TextModel& model, const Json& call, Json::Array& pieces, std::string& reason) {
  const std::string task = call["task"].AsString();
  const Json options = call.Has("options") ? call["options"] : Json(Json::Object{});
  return Caught([&] {
    const auto found = kTasks.find(task);
    return found == kTasks.end() ? Written(model, task, call["inputs"], options, pieces, reason) : found->second(model, call["inputs"], options);
  });
}

void CompareTask(const std::string& folder) {
  const Json content = Json::Parse(ReadFile(folder, "calls.json"));
  TextModel model = content.Has("engine") ? TextModel::Open(folder, std::make_unique<TestEngine>(content["engine"])) : TextModel::Open(folder);
  for (const Json& call : content["calls"].AsArray()) {
    Json::Array pieces;
    std::string reason;
    const Json received = Answered(model, call, pieces, reason);
    const std::string what = folder + " " + call["task"].AsString() + " " + call["inputs"].Canonical().substr(0, 60) + " " + call["options"].Canonical();
    Json expected = call.Has("error") ? call["error"] : call["result"];
    // Python's advice to read a text in sentences is an option that only Python has.
    const std::string message = expected["message"].IsString() ? expected["message"].AsString() : "";
    const size_t advice = message.find(" split='sentences'");
    if (advice != std::string::npos) expected = Json::Object{{"name", expected["name"]}, {"message", message.substr(0, advice)}};
    ++num_cases;
    if (!IsClose(expected, received)) {
      ++num_differences;
      std::cout << what << "\n  expected " << expected.Canonical() << "\n  received " << received.Canonical() << "\n";
    }
    if (call.Has("pieces")) Compare(what, call["pieces"], pieces);
    if (call.Has("reason")) Compare(what, call["reason"], reason);
  }
}

std::vector<std::string> InputLines() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  return lines;
}

double SecondsSince(std::clock_t started) { return static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC; }

void AnswerCalls(const std::string& folder, const std::string& library) {
  EngineOptions options;
  options.library = library;
  TextModel model = TextModel::Open(folder, options);
  for (const std::string& line : InputLines()) {
    Json::Array pieces;
    std::string reason;
    const Json result = Answered(model, Json::Parse(line), pieces, reason);
    std::cout << Json(Json::Object{{"result", result}, {"pieces", pieces}, {"reason", reason}}).Canonical() << "\n";
  }
}

// Counts the processor's seconds of another engine.
class TimedEngine : public Engine {
 public:
  TimedEngine(std::unique_ptr<Engine> engine, double& seconds) : engine_(std::move(engine)), seconds_(seconds) {}

  Tensors Run(const Signature& signature, Tensors inputs, const std::vector<std::string>& kept) override {
    const std::clock_t started = std::clock();
    Tensors outputs = engine_->Run(signature, std::move(inputs), kept);
    seconds_ += SecondsSince(started);
    return outputs;
  }

 private:
  std::unique_ptr<Engine> engine_;
  double& seconds_;
};

void TimeCalls(const std::string& folder, const std::string& library) {
  EngineOptions options;
  options.library = library;
  const Manifest manifest = Manifest::Read(folder);
  double in_engine = 0;
  auto engine = manifest.format == "onnx"    ? OpenOnnxRuntime(folder, manifest, options)
                : manifest.format == "table" ? OpenTable(folder, manifest)
                                             : OpenLiteRt(folder, manifest, options);
  TextModel model = TextModel::Open(folder, std::make_unique<TimedEngine>(std::move(engine), in_engine));
  for (const std::string& line : InputLines()) {
    Json::Array pieces;
    std::string reason;
    const Json call = Json::Parse(line);
    Answered(model, call, pieces, reason);
    in_engine = 0;
    const std::clock_t started = std::clock();
    Answered(model, call, pieces, reason);
    const double total = SecondsSince(started);
    std::cout << "engine " << in_engine << " s, total " << total << " s, outside " << 100 * (1 - in_engine / total) << " %\n";
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  try {
    if (given.size() < 2) throw InputError("a command and a folder were expected");
    if (given[0] == "time-calls") return TimeCalls(given[1], given.at(2)), 0;
    if (given[0] == "call") return AnswerCalls(given[1], given.at(2)), 0;
    if (given[0] == "tokenizer") CompareTokenizer(given[1]);
    if (given[0] == "decoding") CompareDecoding(given[1], given.at(2));
    if (given[0] == "task") CompareTask(given[1]);
    std::cout << num_cases << " cases, " << num_differences << " differences\n";
    return num_differences != 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
