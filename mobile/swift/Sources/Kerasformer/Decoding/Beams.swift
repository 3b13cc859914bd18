import Foundation

/// Beam search for one text, as in `kerasformer.generation.beams`: extends the `n` best hypotheses in parallel, and returns the new
/// tokens of the best one and why it ended.
///
/// At each step, the `n` running hypotheses have `n * V` continuations. The best `2n` of them are examined (more with several
/// end tokens): those among the first `n` that end become finished hypotheses, and the best `n` that do not end continue. Of
/// equal sums, the continuation of the better hypothesis comes first, then that with the lower token id. As in Python, sums are
/// float32.
///
/// - Parameter pause: Called after each step; it may end the search by an error.
func beamSearch(_ plan: Plan, pause: () throws -> Void = {}) throws -> (tokens: [Int], reason: FinishReason) {
    var search = try BeamSearch(plan)
    while !search.running.isEmpty {
        try search.advance()
        try pause()
    }
    guard let best = search.finished.first else { throw GenerationError("no token can be chosen: rules exclude all of them.") }
    return (tokens: best.tokens, reason: best.reason)
}

/// Tokens, the sum of their log-probabilities, and the state before the last token.
private struct Hypothesis {
    let history: History
    let sum: Float
    let state: State
}

private struct Finished {
    let score: Float
    let tokens: [Int]
    let reason: FinishReason
}

private struct BeamSearch {
    private let plan: Plan
    private let config: GenerationConfig
    private var isHopeless = false
    private var count = 0
    private(set) var running: [Hypothesis]
    private(set) var finished: [Finished] = []

    init(_ plan: Plan) throws {
        self.plan = plan
        config = plan.config
        let history = History(prefix: plan.prefix, prompt: plan.prompt)
        running = [Hypothesis(history: history, sum: 0, state: try plan.step.start(plan.prompt))]
    }

    /// Extends all running hypotheses by one token.
    mutating func advance() throws {
        count += 1
        var continuing: [Hypothesis] = []
        for (rank, longer) in try longest(max(2, 1 + config.eosTokenId.count) * config.numBeams).enumerated() {
            guard let reason = plan.endOf(longer.history) ?? (count == plan.maxNewTokens ? plan.last : nil) else {
                if continuing.count < config.numBeams { continuing.append(longer) }
                continue
            }
            if rank < config.numBeams { finish(longer, reason) }
        }
        running = continuing
        lookAhead(running.first?.sum ?? -Float.infinity)
        if isHopeless || (isFull && config.earlyStopping == .bool(true)) { running = [] }
    }

    private var isFull: Bool { finished.count == config.numBeams }

    /// The best continuations of all hypotheses, in descending order.
    private func longest(_ number: Int) throws -> [Hypothesis] {
        var candidates: [(from: Int, state: State, token: Int, sum: Float)] = []
        for (index, from) in running.enumerated() {
            let (logits, state) = try plan.step.step(from.history.last, from.state, isLast: false)
            let totals = applyRules(from.history, try logSoftmax(logits), config).map { $0 + from.sum }
            let least = totals.sorted()[max(totals.count - number, 0)]
            for (token, sum) in totals.enumerated() where sum >= least && sum > -Float.infinity {
                candidates.append((from: index, state: state, token: token, sum: sum))
            }
        }
        if candidates.isEmpty && finished.isEmpty { throw GenerationError("no token can be chosen: rules exclude all of them.") }
        candidates.sort { ($1.sum, $0.from, $0.token) < ($0.sum, $1.from, $1.token) }
        return candidates.prefix(number).map {
            Hypothesis(history: running[$0.from].history.adding($0.token), sum: $0.sum, state: $0.state)
        }
    }

    /// Adds a hypothesis that ended, if it is among the best.
    private mutating func finish(_ hypothesis: Hypothesis, _ reason: FinishReason) {
        let tokens = hypothesis.history.new
        let score = scoreOf(hypothesis.sum, tokens.count)
        let place = finished.firstIndex { $0.score < score } ?? finished.count
        finished.insert(Finished(score: score, tokens: tokens, reason: reason), at: place)
        if finished.count > config.numBeams { finished.removeLast() }
    }

    /// Ends the search if the best running sum cannot exceed the worst finished score. A continuation can only lower the sum,
    /// but the sum of a longer text is divided by more: `"never"` uses the greatest length, otherwise the current one is used.
    private mutating func lookAhead(_ sum: Float) {
        let usesLongest = config.earlyStopping == .string("never") && config.lengthPenalty > 0
        let worst = isFull ? finished[finished.count - 1].score : -Float.infinity
        let possible = scoreOf(sum, usesLongest ? plan.maxNewTokens : count)
        isHopeless = isHopeless || sum == -Float.infinity || possible <= worst
    }

    private func scoreOf(_ sum: Float, _ length: Int) -> Float { sum / Float(pow(Double(length), config.lengthPenalty)) }

    private func logSoftmax(_ logits: [Float]) throws -> [Float] {
        let greatest = logits[argmax(logits)]
        if !greatest.isFinite {
            throw GenerationError(
                "no token can be chosen. Expected a finite greatest logit. Received: \(repr(.double(Double(greatest)))).")
        }
        let shifted = logits.map { $0 - greatest }
        let sum = shifted.reduce(0.0) { $0 + Double(Float(exp(Double($1)))) }
        let normalizer = Float(log(sum))
        return shifted.map { $0 - normalizer }
    }
}
