import Foundation

/// Chooses a token from logits: the best one, or a sample from the candidates that temperature and cutoffs leave. Order and
/// float32 arithmetic are those of `kerasformer.generation.samplers`; references are there.
///
/// - Parameter uniform: Returns a random number in [0, 1).
/// - Throws: `GenerationError` if the rules allow no token, or a logit is not a number.
func choose(_ logits: [Float], _ config: GenerationConfig, uniform: () -> Double) throws -> Int {
    let best = argmax(logits)
    if !logits[best].isFinite {
        throw GenerationError(
            "no token can be chosen. Expected a finite greatest logit in each row. Received: \(repr(.double(Double(logits[best])))). "
                + "Check that the rules (suppress_tokens, ...) allow at least one token and that the model's weights contain no NaN.")
    }
    if !config.doSample { return best }
    var remaining = Candidates(logits: logits, tokens: Array(logits.indices))
    if config.temperature != 1 { remaining.logits = logits.map { $0 / config.temperature } }
    if config.topK > 0 && config.topK < logits.count {
        let least = remaining.logits.sorted()[logits.count - config.topK]  // ties are kept
        remaining = remaining.keeping { remaining.logits[$0] >= least }
    }
    if config.topP < 1 { remaining = nucleus(remaining, config.topP) }
    if let share = config.minP {
        let greatest = remaining.logits[argmax(remaining.logits)]
        let least = Float(log(share))
        remaining = remaining.keeping { remaining.logits[$0] - greatest >= least }
    }
    return remaining.tokens[sampled(remaining.weights, uniform())]
}

/// Index of the first greatest value, or of the first NaN if there is one.
func argmax(_ values: [Float]) -> Int {
    var best = 0
    for index in values.indices {
        if values[index].isNaN { return index }
        if values[index] > values[best] { best = index }
    }
    return best
}

/// Tokens that can be sampled, in the order of their ids.
private struct Candidates {
    var logits: [Float]
    var tokens: [Int]

    func keeping(_ condition: (Int) -> Bool) -> Candidates {
        let indices = logits.indices.filter(condition)
        return Candidates(logits: indices.map { logits[$0] }, tokens: indices.map { tokens[$0] })
    }

    /// Unnormalized probabilities, scaled so that the greatest is 1.
    var weights: [Float] {
        let greatest = logits[argmax(logits)]
        return logits.map { Float(exp(Double($0 - greatest))) }
    }
}

private func total(_ weights: [Float]) -> Double { weights.reduce(0) { $0 + Double($1) } }

/// The smallest set of most probable tokens with total probability `p`; of equally probable tokens, the last come first.
/// Tokens with probabilities below `(1 - p) / V` have less than `1 - p` together, and need not be sorted.
private func nucleus(_ from: Candidates, _ p: Double) -> Candidates {
    let all = from.weights
    let sum = total(all)
    let least = (1 - p) * sum / Double(all.count)
    var selected = from.keeping { Double(all[$0]) >= least }
    if selected.tokens.isEmpty { selected = from }
    let weights = selected.weights
    let logits = selected.logits
    var kept = [Bool](repeating: false, count: weights.count)
    var mass = 0.0
    for index in logits.indices.sorted(by: { logits[$0] > logits[$1] || (logits[$0] == logits[$1] && $0 > $1) }) {
        kept[index] = true
        mass += Double(weights[index])
        if mass >= p * sum { break }
    }
    return selected.keeping { kept[$0] }
}

/// An index in proportion to the weights, by inverting the cumulative distribution.
private func sampled(_ weights: [Float], _ uniform: Double) -> Int {
    let target = uniform * total(weights)
    var sum = 0.0
    for (index, weight) in weights.enumerated() {
        sum += Double(weight)
        if sum > target { return index }
    }
    return weights.lastIndex { $0 > 0 } ?? 0  // reached only because of rounding
}
