#include "tokenization/post_processors.hpp"

#include "kerasformer/errors.hpp"

namespace kerasformer {
namespace {

std::vector<TemplatePart> Template(const Json& pieces, const Json& tokens) {
  std::vector<TemplatePart> parts;
  for (const Json& piece : pieces.AsArray()) {
    const bool special = piece.Has("SpecialToken");
    const Json& content = piece[special ? "SpecialToken" : "Sequence"];
    TemplatePart part;
    part.type_id = static_cast<int>(content["type_id"].AsInt());
    if (special) {
      part.ids = tokens[content["id"].AsString()]["ids"].Ints();
    } else {
      part.sequence = content["id"].AsString() == "B";
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

TemplatePart Special(const Json& token, int type_id = 0) { return {{static_cast<int>(token.AsArray().at(1).AsInt())}, -1, type_id}; }

void Add(const Json& config, PostProcessor& result) {
  const std::string& type = config["type"].AsString();
  if (type == "Sequence") {
    for (const Json& each : config["processors"].AsArray()) Add(each, result);
  } else if (type == "TemplateProcessing") {
    result.single = Template(config["single"], config["special_tokens"]);
    result.pair = Template(config["pair"], config["special_tokens"]);
  } else if (type == "BertProcessing") {
    const TemplatePart start = Special(config["cls"]), end = Special(config["sep"]);
    result.single = {start, {{}, 0, 0}, end};
    result.pair = {start, {{}, 0, 0}, end, {{}, 1, 1}, Special(config["sep"], 1)};
  } else if (type == "RobertaProcessing") {
    const TemplatePart start = Special(config["cls"]), end = Special(config["sep"]);
    result.single = {start, {{}, 0, 0}, end};
    result.pair = {start, {{}, 0, 0}, end, end, {{}, 1, 0}, end};
    result.one_segment = true;
  } else if (type != "ByteLevel") {
    throw TokenizerError("unsupported post-processor in tokenizer.json. Received: " + type);
  }
  if ((type == "ByteLevel" || type == "RobertaProcessing") && config.Bool("trim_offsets", true)) {
    result.trims_offsets = true;
    result.adds_prefix_space = config.Bool("add_prefix_space", true);
  }
}

}  // namespace

PostProcessor PostProcessorOf(const Json& config) {
  PostProcessor result;
  if (!config.IsNull()) Add(config, result);
  return result;
}

}  // namespace kerasformer
