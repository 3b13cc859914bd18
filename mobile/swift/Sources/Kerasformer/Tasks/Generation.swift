extension TextModel {
    /// Continues a text; returns the new text.
    ///
    /// The stream throws `InputError` for a prompt without tokens, `CapacityError` for one that fills the cache, and
    /// `GenerationError` for invalid settings.
    public func generate(_ prompt: String, settings: GenerationSettings = GenerationSettings()) -> GeneratedText {
        stream { [self] cancellation, show in
            let (step, _) = try generator(for: "text-generation", "conversation")
            let ids = try tokenizer.encode(try defaultPrefix("text-generation") + prompt).ids
            if ids.isEmpty { throw InputError("A prompt must have at least one token. Received: \(repr(prompt))") }
            let config = try config(for: "text-generation", step, settings.values)
            return try run(try Plan(step, prompt: ids, config, decode: tokenizer.writer.decoded), cancellation, show)
        }
    }

    /// Answers the last message of a conversation. The answer also ends with the token that the chat template puts after it, and
    /// has at most 256 tokens by default. Only the tokens after those that the conversation has in common with the last one are
    /// read.
    ///
    /// - Parameters:
    ///   - tools: JSON schemas of functions that the model may call.
    ///   - documents: Texts for the answer.
    ///   - variables: Further variables of the template, such as `["enable_thinking": false]`.
    public func chat(
        _ messages: [Message], tools: [JSON]? = nil, documents: [JSON]? = nil, variables: [String: JSON] = [:],
        settings: GenerationSettings = GenerationSettings()
    ) -> GeneratedText {
        stream { [self] cancellation, show in
            let (step, cache) = try generator(for: "text-generation", "conversation")
            guard let template = chatTemplate else {
                throw InputError("This model has no chat template, since it was trained to continue text. Use generate")
            }
            let text = try template.render(messages.map { $0.json }, tools, documents, prompts: true, variables)
            let ids = try tokenizer.encode(text, special: false).ids
            var given = settings.values
            let stored = storedSettings("text-generation", step)
            if given["eos_token_id"] == nil {
                let own = [stored["eos_token_id"] ?? .null, details["eos_token_id"]].flatMap { $0.items ?? [$0] }.compactMap { $0.int }
                given["eos_token_id"] = .array((own + (template.turnEnd.map { [$0] } ?? [])).map { .int($0) })
            }
            let limits = ["max_new_tokens", "max_length"].map { given[$0] ?? stored[$0] ?? .null }
            if limits.allSatisfy({ $0.isNull }) { given["max_new_tokens"] = .int(256) }
            let config = try config(for: "text-generation", step, given)
            let most = step.capacity - min(config.maxNewTokens ?? 1, step.capacity / 2)
            if ids.count > most {
                throw CapacityError(
                    "The conversation is too long for the cache. Expected at most \(most) tokens. Received: \(ids.count) tokens in "
                        + "\(messages.count) messages. Remove messages, or load or export the model with a larger capacity",
                    most: most, received: ids.count)
            }
            return try run(try Plan(step, prompt: ids, config, cache: cache, decode: tokenizer.writer.decoded), cancellation, show)
        }
    }

    /// Translates a text.
    ///
    /// - Parameters:
    ///   - source: The language of the text, and `target` that of the translation, for models with several.
    ///   - prefix: Text that is put before the input, instead of that of the model for the task.
    ///   - truncation: Whether only the start of a text that is longer than the model is read; otherwise it is an error.
    public func translate(
        _ text: String, from source: String? = nil, to target: String? = nil, prefix: String? = nil, truncation: Bool = false,
        settings: GenerationSettings = GenerationSettings()
    ) -> GeneratedText {
        textToText("translation", text, Languages(source: source, target: target), prefix, truncation, settings)
    }

    /// Shortens a text; see `translate` for the parameters.
    public func summarize(
        _ text: String, prefix: String? = nil, truncation: Bool = false, settings: GenerationSettings = GenerationSettings()
    ) -> GeneratedText {
        textToText("summarization", text, Languages(source: nil, target: nil), prefix, truncation, settings)
    }

    /// Generates a text from another; see `translate` for the parameters.
    public func transform(
        _ text: String, prefix: String? = nil, truncation: Bool = false, settings: GenerationSettings = GenerationSettings()
    ) -> GeneratedText {
        textToText("text2text-generation", text, Languages(source: nil, target: nil), prefix, truncation, settings)
    }

    private func textToText(
        _ task: String, _ text: String, _ languages: Languages, _ prefix: String?, _ truncation: Bool, _ settings: GenerationSettings
    ) -> GeneratedText {
        stream { [self] cancellation, show in
            let (step, _) = try generator(for: "text2text-generation", "summarization", "translation")
            if text.isEmpty { throw InputError("A text that is not empty was expected. Received: an empty text.") }
            let given = storedSettings(task, step).merging(settings.values) { $1 }
            let spoken = try spoken(task, languages, prefix, given)
            let advice = task == "translation" ? " split='sentences' reads it in parts and joins the results." : ""
            let ids = try spoken.mark(try whole(spoken.prefix + text, truncation: truncation, advice: advice).ids)
            let config = try config(for: task, step, settings.values, changes: spoken.settings)
            return try run(try Plan(step, prompt: ids, config, decode: tokenizer.writer.decoded), cancellation, show)
        }
    }

    /// The generation settings of the bundle for a task.
    private func storedSettings(_ task: String, _ step: Step) -> [String: JSON] {
        let general = details["generation"].dictionary
        return step.isEncoderDecoder ? general.merging(details["task_settings"][task].dictionary) { $1 } : general
    }

    private func config(for task: String, _ step: Step, _ given: [String: JSON], changes: [String: JSON] = [:]) throws -> GenerationConfig {
        var stored = storedSettings(task, step).merging(changes) { $1 }
        if (stored["eos_token_id"] ?? .null).isNull { stored["eos_token_id"] = details["eos_token_id"] }
        return try GenerationConfig(stored: stored, given: given)
    }

    /// Runs a plan, and passes the new text on.
    private func run(_ plan: Plan, _ cancellation: Cancellation, _ show: (String) -> Void) throws -> FinishReason {
        let writer = tokenizer.writer
        var stream = writer.stream()
        // New text is decoded in the context of the prompt: a token may start with a space or inside a word.
        let prompt = plan.step.isEncoderDecoder ? [] : plan.prompt
        let before = stream.put(prompt)
        var hidden = writer.decode(prompt, skipSpecial: true).utf8.count - before.utf8.count
        func pass(_ piece: String) {
            let skipped = min(hidden, piece.utf8.count)
            hidden -= skipped
            show(String(decoding: piece.utf8.dropFirst(skipped), as: UTF8.self))
        }
        var reason = plan.last
        if plan.config.numBeams > 1 {
            let best = try beamSearch(plan) { try cancellation.check() }
            reason = best.reason
            for token in best.tokens { pass(stream.put([token])) }
        } else {
            reason = try generateTokens(plan) { token in
                pass(stream.put([token]))
                try cancellation.check()
            }
        }
        pass(stream.end())
        return reason
    }
}
