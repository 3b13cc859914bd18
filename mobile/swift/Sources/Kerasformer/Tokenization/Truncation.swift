/// Which of two texts is truncated.
public enum Truncation: String, Sendable {
    case onlyFirst = "only_first"
    case onlySecond = "only_second"
    case longestFirst = "longest_first"
}

extension Tokenizer {
    /// Splits tokens into chunks that together cover a text; the first one is the truncated text.
    ///
    /// - Parameters:
    ///   - limit: The largest number of tokens of a chunk, including special tokens.
    ///   - stride: Number of tokens that neighbouring chunks share.
    /// - Throws: `InputError` if the limit or the stride leaves no space for a text.
    public func chunks(_ tokens: Encoding, limit: Int, strategy: Truncation = .longestFirst, stride: Int = 0) throws -> [Encoding] {
        if tokens.count <= limit { return [tokens] }
        let isLeft = settings.text("truncation_side") == "left"
        let first = tokens.sequenceIds.filter { $0 == 0 }.count
        let second = tokens.sequenceIds.filter { $0 == 1 }.count
        let room = try roomOf(first, second, special: tokens.count - first - second, limit, strategy)
        var spans = [
            try spansOf(first, keep: room.first, stride, limit, isLeft), try spansOf(second, keep: room.second, stride, limit, isLeft),
        ]
        if spans[0].count > 1 && spans[1].count > 1 { spans = spans.map { [$0[0]] } }
        return (0..<max(spans[0].count, spans[1].count)).map { chunk in
            var seen = [0, 0]
            var kept: [Int] = []
            for position in 0..<tokens.count {
                let text = tokens.sequenceIds[position]
                if text >= 0 {
                    let span = chunk < spans[text].count ? spans[text][chunk] : spans[text][0]
                    seen[text] += 1
                    if !span.contains(seen[text] - 1) { continue }
                }
                kept.append(position)
            }
            return tokens.selected(kept)
        }
    }
}

/// The number of tokens that remain of each text.
private func roomOf(_ first: Int, _ second: Int, special: Int, _ limit: Int, _ strategy: Truncation) throws -> (first: Int, second: Int) {
    let budget = limit - special
    if first + second <= budget { return (first: first, second: second) }
    switch strategy {
    case .onlyFirst where budget - second >= 1: return (first: budget - second, second: second)
    case .onlySecond where budget - first >= 1: return (first: first, second: budget - first)
    case .longestFirst where budget >= 1:
        // The shorter text keeps up to half; on equal lengths the second gets the odd token.
        let shorter = min(first, second, budget / 2)
        return first <= second ? (first: shorter, second: budget - shorter) : (first: budget - shorter, second: shorter)
    default:
        throw InputError(
            "max_length is too small: \(special) special tokens and texts of \(first) and \(second) tokens cannot be truncated to it "
                + "with '\(strategy.rawValue)'. Received: max_length=\(limit). Set a larger one")
    }
}

/// The tokens of one text in each chunk.
private func spansOf(_ count: Int, keep: Int, _ stride: Int, _ limit: Int, _ isLeft: Bool) throws -> [Range<Int>] {
    if keep >= count || keep == 0 { return [0..<min(count, keep)] }
    if keep <= stride {
        throw InputError(
            "stride must be smaller than the \(keep) tokens of text that fit into a chunk. Received: stride=\(stride), max_length=\(limit)")
    }
    var result: [Range<Int>] = []
    var start = 0
    while true {
        let end = min(start + keep, count)
        result.append(isLeft ? count - end..<count - start : start..<end)
        if start + keep >= count { return result }
        start += keep - stride
    }
}
