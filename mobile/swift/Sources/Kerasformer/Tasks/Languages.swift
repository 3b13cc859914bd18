import Foundation

/// The languages of a translation. `nil` is that of the bundle.
struct Languages {
    let source: String?
    let target: String?

    /// The languages that are given, as Python names them.
    var given: [String] {
        (source.map { ["src_lang=" + repr($0)] } ?? []) + (target.map { ["tgt_lang=" + repr($0)] } ?? [])
    }
}

/// What the languages of a call change.
struct Spoken {
    /// Text put before the input.
    var prefix: String
    /// Generation settings that take precedence over those of the bundle.
    var settings: [String: JSON] = [:]
    /// Puts the token of the input's language into the ids of a text; throws if the text has no token of its language.
    var mark: ([Int]) throws -> [Int] = { $0 }
}

extension TextModel {
    /// The rules of `kerasformer.pipelines.translation` and of `kerasformer.tokenization.languages`: tokens of languages (NLLB,
    /// mBART), tokens such as `>>fra<<` at the start of a text (OPUS-MT), or prefixes (T5).
    ///
    /// - Parameter given: The generation settings of the bundle and of the call.
    func spoken(_ task: String, _ languages: Languages, _ prefix: String?, _ given: [String: JSON]) throws -> Spoken {
        let prefixes = prefixes(task)
        let marks = task == "translation" ? languageMarks() : []
        if !marks.isEmpty { return try marked(marks, languages, prefix) }
        if !details["languages"].isNull {
            var result = try withTokens(languages, given)
            result.prefix = try prefix ?? defaultPrefix(task)
            return result
        }
        if task == "translation" && prefix == nil && !languages.given.isEmpty && !prefixes.isEmpty {
            let chosen = try prefixBetween(languages, prefixes)
            return Spoken(prefix: chosen.value.string ?? "", settings: details["task_settings"][chosen.name].dictionary)
        }
        try refuse(languages)
        return Spoken(prefix: try prefix ?? defaultPrefix(task))
    }

    /// The prefixes of a task by its variants, such as `translation_en_to_de`.
    private func prefixes(_ task: String) -> [JSON.Field] {
        details["task_prefixes"].fields.filter { !$0.name.isEmpty && $0.name.hasPrefix(task) }
    }

    /// The text before an input: that of the task, of all tasks, or of the only variant of the task.
    func defaultPrefix(_ task: String) throws -> String {
        let known = details["task_prefixes"]
        if let text = known[task].string ?? known[""].string { return text }
        let prefixes = prefixes(task)
        if prefixes.count <= 1 { return prefixes.first?.value.string ?? "" }
        let listed = prefixes.map { repr($0.value) }.joined(separator: ", ")
        throw InputError("This model has several prefixes for \(task). Expected prefix=… to be one of \(listed). Received: none")
    }

    /// Tokens such as `>>fra<<`, with the codes of the languages.
    private func languageMarks() -> [(code: String, id: Int)] {
        var result: [(code: String, id: Int)] = []
        for (token, id) in tokenizer.tokens where token.hasPrefix(">>") && token.hasSuffix("<<") && token.count > 4 {
            let code = String(token.dropFirst(2).dropLast(2))
            if !code.contains(where: { $0.isWhitespace }) { result.append((code: code, id: id)) }
        }
        return result.sorted { $0.code < $1.code }
    }

    private func marked(_ marks: [(code: String, id: Int)], _ languages: Languages, _ prefix: String?) throws -> Spoken {
        let codes = marks.map { $0.code }
        if prefix != nil { try refuse(languages) }
        if let source = languages.source {
            throw InputError(
                "This model marks the language of the output alone. Expected: no src_lang. Received: src_lang=\(repr(source))")
        }
        if let target = languages.target, !codes.contains(target) {
            throw unknownLanguage("tgt_lang", target, codes, closest(target, codes, count: 1))
        }
        let ids = Set(marks.map { $0.id })
        return Spoken(prefix: prefix ?? languages.target.map { ">>\($0)<< " } ?? "") { text in
            if codes.count > 1 && !ids.contains(text[0]) { throw missingLanguage("tgt_lang", codes) }
            return text
        }
    }

    /// The token of the input's language, and the setting that selects the language of the output.
    private func withTokens(_ languages: Languages, _ given: [String: JSON]) throws -> Spoken {
        let known = details["languages"]
        let codes = info.languages
        func chosen(_ name: String, _ code: String?) throws -> String? {
            guard let code = code else { return known[name].string }
            if codes.contains(code) { return code }
            let near = closest(code.lowercased(), codes.map { $0.lowercased() }, count: 3)
            throw unknownLanguage(name, code, codes, near.compactMap { each in codes.first { $0.lowercased() == each } })
        }
        let source = try chosen("src_lang", languages.source)
        let target = try chosen("tgt_lang", languages.target)
        let ids = known["ids"].dictionary
        if target == nil && !["forced_bos_token_id", "decoder_start_token_id"].contains(where: { name in
            ids.values.contains { $0 == given[name] }
        }) {
            throw missingLanguage("tgt_lang", codes)
        }
        guard let spoken = source, let token = ids[spoken]?.int else { throw missingLanguage("src_lang", codes) }
        let isAfter = known.flag("after")
        var settings: [String: JSON] = [:]
        if let target = target { settings[known.text("setting")] = ids[target] }
        return Spoken(prefix: "", settings: settings) { text in
            var result = text
            result[isAfter ? text.count - 1 : 0] = token
            return result
        }
    }

    /// The prefix of the task that translates between two languages, one of which may be missing.
    private func prefixBetween(_ languages: Languages, _ prefixes: [JSON.Field]) throws -> JSON.Field {
        let pairs = prefixes.map { field in
            field.name.replacingOccurrences(of: "translation_", with: "").components(separatedBy: "_to_")
        }
        let found = prefixes.indices.filter { index in
            let pair = pairs[index]
            return languages.source ?? pair.first == pair.first && languages.target ?? pair.last == pair.last
        }
        if found.count == 1 { return prefixes[found[0]] }
        if !found.isEmpty {
            let codes = found.map { (languages.source == nil ? pairs[$0].first : pairs[$0].last) ?? "" }
            throw missingLanguage(languages.source == nil ? "src_lang" : "tgt_lang", codes)
        }
        let listed = pairs.map { $0.joined(separator: " to ") }
        let near = closest("\(languages.source ?? "") to \(languages.target ?? "")", listed, count: 1)
        throw InputError(
            "The model does not translate between these languages. Expected: one of \(listed.joined(separator: ", ")). Received: "
                + languages.given.joined(separator: ", ") + (near.isEmpty ? "" : ". Did you mean \(near[0])?"))
    }

    /// Throws if languages are passed to a model that does not distinguish them.
    private func refuse(_ languages: Languages) throws {
        if languages.given.isEmpty { return }
        throw InputError(
            "The texts of this model are not marked with a language. Expected: neither src_lang nor tgt_lang. Received: "
                + "src_lang=\(repr(languages.source)), tgt_lang=\(repr(languages.target))")
    }
}

private func missingLanguage(_ name: String, _ codes: [String]) -> InputError {
    InputError(
        "The language of the \(name == "src_lang" ? "input" : "output") is missing. Expected \(name)=… to be one of "
            + "\(codes.joined(separator: ", ")). Received: none")
}

private func unknownLanguage(_ name: String, _ code: String, _ codes: [String], _ near: [String]) -> InputError {
    let hint = near.isEmpty ? "" : ". Did you mean \(near.map { repr($0) }.joined(separator: " or "))?"
    return InputError("\(name) must be a language of the model. Expected: one of \(codes.joined(separator: ", ")). Received: \(repr(code))\(hint)")
}
