// Text generation and text-to-text generation.
#include <algorithm>

#include "tasks/languages.hpp"
#include "tasks/parts.hpp"

namespace kerasformer {
namespace {

void Set(Settings& settings, const std::string& name, const Json& value) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& setting) { return setting.first == name; });
  if (found == settings.end()) {
    settings.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

void Update(Settings& settings, const Json& changes) {
  if (!changes.IsObject()) return;
  for (const auto& [name, value] : changes.AsObject()) Set(settings, name, value);
}

bool Has(const Settings& settings, const std::string& name) {
  return std::any_of(settings.begin(), settings.end(), [&](const auto& setting) { return setting.first == name && !setting.second.IsNull(); });
}

// Decodes the new text piece by piece, in the context of the prompt: a token may start with a space or inside a word.
class Pieces {
 public:
  Pieces(const Tokenizer& tokenizer, const std::vector<int>& prompt, const Stream& stream) : pieces_(tokenizer), stream_(stream) {
    const size_t before = pieces_.Put(prompt).size(), whole = tokenizer.Decode(prompt, true).size();
    hidden_ = whole > before ? whole - before : 0;
  }

  void Put(int token) { Show(pieces_.Put({token})); }

  std::string End() {
    Show(pieces_.End());
    return text_;
  }

 private:
  // Passes a piece on, without text that belongs to the prompt.
  void Show(const std::string& piece) {
    const size_t hidden = std::min(hidden_, piece.size());
    hidden_ -= hidden;
    if (hidden == piece.size()) return;
    text_ += piece.substr(hidden);
    stream_.on_text(piece.substr(hidden));
  }

  TextStream pieces_;
  const Stream& stream_;
  size_t hidden_;
  std::string text_;
};

// Generates a text with the settings of the bundle and those of the call.
Generation Written(StepModel* model, const Tokenizer& writer, const Json& info, const std::vector<int>& prompt, Settings stored,
                   const Settings& settings, const Stream& stream) {
  if (!model) throw InputError("This model does not generate text. Expected: a bundle for text-generation or text2text-generation");
  if (!Has(stored, "eos_token_id")) Set(stored, "eos_token_id", info["eos_token_id"]);
  const GenerationConfig config = Settle(stored, settings);
  if (stream.cancelled()) throw Cancelled("The call was cancelled.");
  Pieces pieces(writer, model->is_encoder_decoder() ? std::vector<int>() : prompt, stream);
  const Controls controls{[&](int token) { pieces.Put(token); }, stream.cancelled,
                          [&](const std::vector<int>& ids) { return writer.Decode(ids); }};
  const Generated result = Generate(*model, prompt, config, controls);
  return {pieces.End(), result.reason, static_cast<int>(prompt.size()), static_cast<int>(result.tokens.size())};
}

}  // namespace

Generation TextModel::Generate(std::string_view prompt, const Settings& settings, const Stream& stream) {
  const Json& info = parts_->manifest.info;
  const std::vector<int> ids = parts_->tokenizer.Encode(DefaultPrefix(info, "text-generation") + std::string(prompt)).ids;
  if (ids.empty()) throw InputError("A prompt must have at least one token. Received: " + Shown(prompt));
  Settings stored;
  Update(stored, info["generation"]);
  return Written(parts_->steps.get(), parts_->writer(), info, ids, stored, settings, stream);
}

Generation TextModel::Transform(std::string_view text, const TransformOptions& options, const Stream& stream, const std::string& task) {
  if (text.empty()) throw InputError("A text that is not empty was expected. Received: an empty text.");
  const Json& info = parts_->manifest.info;
  Settings stored;
  Update(stored, info["generation"]);
  if (info.Bool("is_encoder_decoder", false)) Update(stored, info["task_settings"][task]);
  Settings given = stored;
  Update(given, options.settings);
  const Spoken languages = SpokenIn(info, parts_->tokenizer, task, options, given);
  std::vector<int> ids = parts_->Whole(languages.prefix + std::string(text), options.truncation).ids;
  languages.mark(ids);
  Update(stored, languages.settings);
  return Written(parts_->steps.get(), parts_->writer(), info, ids, stored, options.settings, stream);
}

Generation TextModel::Summarize(std::string_view text, const TransformOptions& options, const Stream& stream) {
  return Transform(text, options, stream, "summarization");
}

Generation TextModel::Translate(std::string_view text, const TransformOptions& options, const Stream& stream) {
  return Transform(text, options, stream, "translation");
}

}  // namespace kerasformer
