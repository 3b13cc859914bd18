import Foundation

/// Why a generated text ended: an end token, a stop text, the largest length, a full cache, or the time limit.
public enum FinishReason: String, Sendable {
    case eos, stop, length, capacity, time
}

/// A prepared run of a model.
struct Plan {
    let step: Step
    /// The tokens for `Step.start`.
    let prompt: [Int]
    /// The decoder's tokens before the first new one, also visible to rules.
    let prefix: [Int]
    /// Settings, with the effective lengths.
    let config: GenerationConfig
    let maxNewTokens: Int
    /// Why the text ends after the largest number of new tokens.
    let last: FinishReason
    let cache: PrefixCache?
    private let decode: ([Int]) -> [UInt8]
    private let deadline: Date?

    /// Checks a prompt, and determines its lengths.
    ///
    /// - Parameter decode: Converts ids to text in UTF-8, to find stop texts.
    /// - Throws: `CapacityError` if the prompt leaves no space for a new token, `GenerationError` if the settings do not fit the
    ///   model.
    init(_ step: Step, prompt: [Int], _ settings: GenerationConfig, cache: PrefixCache? = nil, decode: @escaping ([Int]) -> [UInt8]) throws {
        var config = settings
        let most = step.vocabularySize - 1
        var prefix = prompt
        if step.isEncoderDecoder {
            let start = config.decoderStartTokenId ?? config.bosTokenId
            guard let token = start, token <= most else {
                throw GenerationError(
                    "an encoder-decoder needs decoder_start_token_id (or bos_token_id), the first token its decoder reads, from 0 to "
                        + "\(most). Received: \(repr(start)). Pass it to the call or set it in generation_config.json.")
            }
            prefix = [token]
        }
        let forced = config.forcedEosTokenId + (config.forcedBosTokenId.map { [$0] } ?? [])
        if forced.contains(where: { $0 > most }) {
            throw GenerationError(
                "forced tokens must be from 0 to \(most). Received: \(forced). Set forced_bos_token_id and forced_eos_token_id to tokens "
                    + "of this model.")
        }
        let requested = config.maxNewTokens ?? config.maxLength.map { $0 - prefix.count } ?? 20
        if requested < 1 {
            throw GenerationError(
                "max_length includes the prompt and must exceed its length. Received: max_length=\(repr(config.maxLength)) for a prompt "
                    + "of \(prefix.count) tokens. Set max_new_tokens instead.")
        }
        let room = step.capacity - prefix.count
        if room < 1 {
            throw CapacityError(
                "the prompt leaves no room for a new token. Expected at most \(step.capacity - 1) tokens. Received: \(prefix.count). "
                    + "Shorten the prompt, or load or export the model with a larger capacity.",
                most: step.capacity - 1, received: prefix.count)
        }
        maxNewTokens = min(requested, room)
        config.minNewTokens = config.minNewTokens ?? max(config.minLength - prefix.count, 0)
        config.maxNewTokens = maxNewTokens
        self.step = step
        self.prompt = prompt
        self.prefix = prefix
        self.config = config
        self.cache = cache
        self.decode = decode
        last = requested <= room ? .length : .capacity
        deadline = config.maxTime.map { Date(timeIntervalSinceNow: $0) }
    }

    /// Why a text ends after its last token.
    func endOf(_ history: History) -> FinishReason? {
        if config.eosTokenId.contains(history.last) { return .eos }
        if !config.stopStrings.isEmpty && completesText(history) { return .stop }
        if let deadline = deadline, Date() > deadline { return .time }
        return nil
    }

    /// Whether the last new token completes one of the stop texts, which may span several tokens and start in the prompt.
    private func completesText(_ history: History) -> Bool {
        let stops = config.stopStrings.map { Array($0.utf8) }
        // A token with text has at least one byte, so it is enough to decode the end; some tokens have no text.
        var end = Array(history.ids.suffix((stops.map { $0.count }.max() ?? 0) + 16))
        var text = decode(end)
        if text.starts(with: [0xEF, 0xBF, 0xBD]) {
            // The text starts inside a character, which may make a whole run of bytes unreadable.
            end = history.ids
            text = decode(end)
        }
        // A text that is complete before the first new token does not count.
        var known = 0
        let old = end.count - history.newCount
        if old > 0 {
            let before = decode(Array(end[..<old]))
            while known < before.count && known < text.count && before[known] == text[known] { known += 1 }
        }
        return stops.contains { stop in
            let first = max(0, known - stop.count + 1)
            return first <= text.count && (first...text.count).contains { text.has(stop, at: $0) }
        }
    }
}

/// Greedy search and sampling: passes each new token on, including the end token; returns why the text ended.
///
/// - Parameter use: May end the generation by an error.
func generateTokens(_ plan: Plan, _ use: (Int) throws -> Void) throws -> FinishReason {
    var random = Random(seed: plan.config.seed.map { UInt64($0) } ?? UInt64(UInt32.random(in: 0...UInt32.max)))
    var history = History(prefix: plan.prefix, prompt: plan.prompt)
    var state = try plan.cache?.start(plan.prompt) ?? plan.step.start(plan.prompt)
    defer { plan.cache?.keep(state, Array(history.ids.dropLast())) }
    for _ in 0..<plan.maxNewTokens {
        let (logits, next) = try plan.step.step(history.last, state, isLast: true)
        state = next
        let token = try choose(applyRules(history, logits, plan.config), plan.config) { random.next() }
        history.add(token)
        try use(token)
        if let reason = plan.endOf(history) { return reason }
    }
    return plan.last
}
