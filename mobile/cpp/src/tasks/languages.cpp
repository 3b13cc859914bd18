#include "tasks/languages.hpp"

#include <algorithm>
#include <map>

#include "text/closest.hpp"

namespace kerasformer {
namespace {

using Codes = std::vector<std::string>;

std::string Joined(const Codes& codes, const std::string& separator = ", ") {
  std::string text;
  for (const std::string& code : codes) text += (text.empty() ? "" : separator) + code;
  return text;
}

std::string ShownOrNone(const std::optional<std::string>& code) { return code ? Shown(*code) : "None"; }

std::string Hint(const Codes& close) { return close.empty() ? "" : ". Did you mean " + Joined(close, " or ") + "?"; }

InputError Missing(const std::string& name, const std::string& texts, const Codes& codes) {
  return InputError("The language of the " + texts + " is missing. Expected " + name + "=… to be one of " + Joined(codes) + ". Received: none");
}

InputError Unknown(const std::string& name, const std::string& code, const Codes& codes, Codes close) {
  for (std::string& each : close) each = Shown(each);
  return InputError(name + " must be a language of the model. Expected: one of " + Joined(codes) + ". Received: " + Shown(code) + Hint(close));
}

// Throws if languages are passed to a model that does not distinguish them.
void Refuse(const TransformOptions& options) {
  if (!options.src_lang && !options.tgt_lang) return;
  throw InputError("The texts of this model are not marked with a language. Expected: neither src_lang nor tgt_lang. Received: src_lang=" +
                   ShownOrNone(options.src_lang) + ", tgt_lang=" + ShownOrNone(options.tgt_lang));
}

// The prefixes of a task by its variants, such as `translation_en_to_de`.
std::vector<std::pair<std::string, std::string>> Prefixes(const Json& info, const std::string& task) {
  std::vector<std::pair<std::string, std::string>> prefixes;
  if (!info["task_prefixes"].IsObject()) return prefixes;
  for (const auto& [name, prefix] : info["task_prefixes"].AsObject()) {
    if (!name.empty() && name.compare(0, task.size(), task) == 0) prefixes.emplace_back(name, prefix.AsString());
  }
  return prefixes;
}

// Ids of tokens such as `>>fra<<`, by the codes of the languages.
std::map<std::string, int> MarksOf(const Tokenizer& tokenizer) {
  std::map<std::string, int> marks;
  for (const auto& [token, id] : tokenizer.Vocabulary()) {
    const size_t size = token.size();
    if (size < 5 || token.compare(0, 2, ">>") != 0 || token.compare(size - 2, 2, "<<") != 0) continue;
    if (token.find_first_of(" \t\n") == std::string::npos) marks[token.substr(2, size - 4)] = id;
  }
  return marks;
}

Spoken WithMarks(const std::map<std::string, int>& marks, const TransformOptions& options) {
  Codes codes;
  std::vector<int> ids;
  for (const auto& [code, id] : marks) {
    codes.push_back(code);
    ids.push_back(id);
  }
  if (options.prefix) Refuse(options);
  if (options.src_lang) {
    throw InputError("This model marks the language of the output alone. Expected: no src_lang. Received: src_lang=" + Shown(*options.src_lang));
  }
  const auto& target = options.tgt_lang;
  if (target && !marks.count(*target)) throw Unknown("tgt_lang", *target, codes, Closest(*target, codes, 1, 0.5));
  Spoken spoken;
  spoken.prefix = options.prefix ? *options.prefix : target ? ">>" + *target + "<< " : "";
  spoken.mark = [codes, ids](std::vector<int>& text) {
    const bool marked = !text.empty() && std::count(ids.begin(), ids.end(), text[0]);
    if (codes.size() > 1 && !marked) throw Missing("tgt_lang", "output", codes);
  };
  return spoken;
}

// The token of the input's language, and the setting that selects the language of the output.
Spoken WithTokens(const Json& known, const TransformOptions& options, const Settings& given) {
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [code, id] : known["ids"].AsObject()) sorted.emplace_back(static_cast<int>(id.AsInt()), code);
  std::sort(sorted.begin(), sorted.end());
  Codes codes;
  for (const auto& [id, code] : sorted) codes.push_back(code);
  const auto lower = [](std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    return text;
  };
  const auto chosen = [&](const char* name, const std::optional<std::string>& code) -> std::optional<std::string> {
    if (!code) return known.Has(name) ? std::optional(known[name].AsString()) : std::nullopt;
    if (known["ids"].Has(*code)) return code;
    std::map<std::string, std::string> alike;
    Codes names, close;
    for (const std::string& each : codes) {
      alike[lower(each)] = each;
      names.push_back(lower(each));
    }
    for (const std::string& each : Closest(lower(*code), names, 3, 0.5)) close.push_back(alike[each]);
    throw Unknown(name, *code, codes, close);
  };
  const auto source = chosen("src_lang", options.src_lang), target = chosen("tgt_lang", options.tgt_lang);
  const bool set = std::any_of(given.begin(), given.end(), [&](const auto& setting) {
    if (setting.first != "forced_bos_token_id" && setting.first != "decoder_start_token_id") return false;
    return setting.second.IsInteger() && std::any_of(sorted.begin(), sorted.end(), [&](const auto& each) {
      return each.first == setting.second.AsInt();
    });
  });
  if (!target && !set) throw Missing("tgt_lang", "output", codes);
  if (!source) throw Missing("src_lang", "input", codes);
  const int id = static_cast<int>(known["ids"][*source].AsInt());
  const bool after = known.Bool("after", false);
  Spoken spoken;
  if (target) spoken.settings = Settings{{known["setting"].AsString(), known["ids"][*target]}};
  spoken.mark = [id, after](std::vector<int>& text) { (after ? text.back() : text.front()) = id; };
  return spoken;
}

// The task that translates between two languages, one of which may be missing.
std::string TaskBetween(const TransformOptions& options, const Codes& tasks) {
  Codes found, pairs;
  std::vector<std::pair<std::string, std::string>> languages;
  for (const std::string& task : tasks) {
    const std::string pair = task.substr(std::string("translation_").size());
    const size_t middle = pair.find("_to_");
    const std::string source = pair.substr(0, middle), target = middle == std::string::npos ? "" : pair.substr(middle + 4);
    pairs.push_back(source + " to " + target);
    if (options.src_lang.value_or(source) != source || options.tgt_lang.value_or(target) != target) continue;
    found.push_back(task);
    languages.emplace_back(source, target);
  }
  if (found.size() == 1) return found[0];
  if (!found.empty()) {
    Codes codes;
    for (const auto& [source, target] : languages) codes.push_back(options.src_lang ? target : source);
    throw options.src_lang ? Missing("tgt_lang", "output", codes) : Missing("src_lang", "input", codes);
  }
  Codes received;
  if (options.src_lang) received.push_back("src_lang=" + Shown(*options.src_lang));
  if (options.tgt_lang) received.push_back("tgt_lang=" + Shown(*options.tgt_lang));
  const std::string asked = options.src_lang.value_or("") + " to " + options.tgt_lang.value_or("");
  throw InputError("The model does not translate between these languages. Expected: one of " + Joined(pairs) + ". Received: " +
                   Joined(received) + Hint(Closest(asked, pairs, 1, 0.5)));
}

}  // namespace

std::string DefaultPrefix(const Json& info, const std::string& task) {
  for (const std::string& name : {task, std::string()}) {
    if (info["task_prefixes"].Has(name)) return info["task_prefixes"][name].AsString();
  }
  const auto prefixes = Prefixes(info, task);
  if (prefixes.size() <= 1) return prefixes.empty() ? "" : prefixes[0].second;
  Codes listed;
  for (const auto& [name, prefix] : prefixes) listed.push_back(Shown(prefix));
  throw InputError("This model has several prefixes for " + task + ". Expected prefix=… to be one of " + Joined(listed) + ". Received: none");
}

Spoken SpokenIn(const Json& info, const Tokenizer& tokenizer, const std::string& task, const TransformOptions& options,
                const Settings& given) {
  const bool translates = task == "translation";
  if (translates) {
    const auto marks = MarksOf(tokenizer);
    if (!marks.empty()) return WithMarks(marks, options);
  }
  const auto prefixes = Prefixes(info, task);
  if (info.Has("languages")) {
    Spoken spoken = WithTokens(info["languages"], options, given);
    spoken.prefix = options.prefix ? *options.prefix : DefaultPrefix(info, task);
    return spoken;
  }
  Spoken spoken;
  if (translates && !options.prefix && (options.src_lang || options.tgt_lang) && !prefixes.empty()) {
    Codes tasks;
    for (const auto& [name, prefix] : prefixes) tasks.push_back(name);
    const std::string between = TaskBetween(options, tasks);
    spoken.prefix = info["task_prefixes"][between].AsString();
    spoken.settings = info["task_settings"][between];
    return spoken;
  }
  Refuse(options);
  spoken.prefix = options.prefix ? *options.prefix : DefaultPrefix(info, task);
  return spoken;
}

}  // namespace kerasformer
