/// The tokens so far.
struct History {
    /// All tokens: the prompt (for an encoder-decoder, the start token) and the generated tokens.
    private(set) var ids: [Int]
    /// Number of tokens before the first generated one.
    let width: Int
    /// The prompt; for an encoder-decoder, the encoder's input.
    let prompt: [Int]

    init(prefix: [Int], prompt: [Int]) {
        ids = prefix
        width = prefix.count
        self.prompt = prompt
    }

    var newCount: Int { ids.count - width }
    var new: [Int] { Array(ids[width...]) }
    var last: Int { ids[ids.count - 1] }

    mutating func add(_ token: Int) { ids.append(token) }

    func adding(_ token: Int) -> History {
        var result = self
        result.add(token)
        return result
    }
}

/// The logits after all rules that the settings activate, in the order of `kerasformer.generation.rules`; references are there.
func applyRules(_ history: History, _ logits: [Float], _ config: GenerationConfig) -> [Float] {
    var changed = logits
    if config.encoderRepetitionPenalty != 1 { penalize(&changed, history.prompt, 1 / config.encoderRepetitionPenalty) }
    if config.repetitionPenalty != 1 { penalize(&changed, history.ids, config.repetitionPenalty) }
    if config.frequencyPenalty != 0 || config.presencePenalty != 0 {
        var counts: [Int: Int] = [:]
        for token in history.new { counts[token, default: 0] += 1 }
        for (token, count) in counts where token < changed.count {
            changed[token] -= Float(Double(count) * config.frequencyPenalty + config.presencePenalty)
        }
    }
    if config.noRepeatNgramSize > 0 { forbidRepeats(&changed, history.ids, history, config.noRepeatNgramSize) }
    if config.encoderNoRepeatNgramSize > 0 { forbidRepeats(&changed, history.prompt, history, config.encoderNoRepeatNgramSize) }
    for word in config.badWordsIds {
        // An end token alone is no bad word.
        if word.count == 1 && config.eosTokenId.contains(word[0]) { continue }
        if history.ids.suffix(word.count - 1).elementsEqual(word.dropLast()) { forbid(&changed, [word[word.count - 1]]) }
    }
    if history.newCount < config.minNewTokens ?? 0 { forbid(&changed, config.eosTokenId) }
    if let token = config.forcedBosTokenId, history.ids.count == 1 { force(&changed, [token]) }
    if !config.forcedEosTokenId.isEmpty && history.newCount + 1 == config.maxNewTokens { force(&changed, config.forcedEosTokenId) }
    forbid(&changed, config.suppressTokens)
    let first = history.width == 1 && config.forcedBosTokenId != nil ? 1 : 0
    if history.newCount == first { forbid(&changed, config.beginSuppressTokens) }
    return changed
}

/// Sets the logits of tokens to minus infinity; ids beyond the vocabulary cannot be generated anyway.
private func forbid(_ logits: inout [Float], _ tokens: [Int]) {
    for token in tokens where token < logits.count { logits[token] = -Float.infinity }
}

/// Sets the logits of tokens to 0, and all others to minus infinity.
private func force(_ logits: inout [Float], _ tokens: [Int]) {
    logits = [Float](repeating: -Float.infinity, count: logits.count)
    for token in tokens where token < logits.count { logits[token] = 0 }
}

/// Replaces positive logits by `logit / penalty` and negative ones by `logit * penalty`, once for each token.
private func penalize(_ logits: inout [Float], _ tokens: [Int], _ penalty: Double) {
    let factor = Float(penalty)
    for token in Set(tokens) where token < logits.count {
        logits[token] = logits[token] < 0 ? logits[token] * factor : logits[token] / factor
    }
}

/// Forbids tokens that, after the last ones, would complete a sequence of some size that occurs in `tokens`.
private func forbidRepeats(_ logits: inout [Float], _ tokens: [Int], _ history: History, _ size: Int) {
    if history.ids.count < size - 1 || tokens.count < size { return }
    let end = Array(history.ids.suffix(size - 1))
    for last in (size - 1)..<tokens.count where tokens.has(end, at: last - size + 1) { forbid(&logits, [tokens[last]]) }
}
