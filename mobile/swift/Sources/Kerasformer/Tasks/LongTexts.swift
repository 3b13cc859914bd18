import Foundation

/// How a text that is longer than the model is read: in overlapping chunks, whose results are combined, or only its start.
public struct LongText: Sendable {
    /// Whether only the start is read.
    public var truncation = false
    /// Number of tokens of a chunk with special tokens; the length of the model by default.
    public var chunkLength: Int?
    /// Number of tokens that neighbouring chunks share; a quarter of a chunk by default.
    public var stride: Int?

    public init(truncation: Bool = false, chunkLength: Int? = nil, stride: Int? = nil) {
        self.truncation = truncation
        self.chunkLength = chunkLength
        self.stride = stride
    }
}

/// How the results of the chunks of a long text are combined.
public enum Combine: String, Sendable {
    case mean, max
}

extension TextModel {
    /// The chunks of a text.
    func chunks(_ text: String, _ length: LongText) throws -> [Encoding] {
        let special = try tokenizer.encode("").count
        let tokens = try tokenizer.encode(text)
        guard let limit = try limitOf(length, least: special + 1) else { return [tokens] }
        if length.truncation { return [try tokenizer.chunks(tokens, limit: limit, strategy: .onlyFirst)[0]] }
        let stride = try length.stride.map { try checked("stride", $0, 0, limit - special - 1) } ?? (limit - special) / 4
        return try tokenizer.chunks(tokens, limit: limit, strategy: .onlyFirst, stride: stride)
    }

    /// A text, or a pair of texts, in one piece.
    func whole(_ text: String, pair: String? = nil, truncation: Bool, advice: String = "") throws -> Encoding {
        let tokens = try tokenizer.encode(text, pair: pair)
        guard let limit = info.maxLength, tokens.count > limit else { return tokens }
        if truncation { return try tokenizer.chunks(tokens, limit: limit)[0] }
        throw CapacityError(
            "A text exceeds the model's maximum length. Expected at most \(limit) tokens. Received: \(tokens.count). Shorten it, or pass "
                + "truncation=True to truncate it.\(advice)",
            most: limit, received: tokens.count)
    }

    /// Pairs of one text and each of several others, in chunks: the long text is split, and each of its chunks contains the
    /// whole other text. Overlaps are those that fit the longest of the other texts.
    ///
    /// - Parameters:
    ///   - isFirst: Whether the long text is the first of each pair.
    ///   - cut: Which text is truncated if only the start is read.
    func chunksOfPairs(_ long: String, _ others: [String], _ length: LongText, isFirst: Bool, cut: Truncation) throws -> [[Encoding]] {
        let strategy: Truncation = isFirst ? .onlyFirst : .onlySecond
        var kept = try length.truncation ? tokenizer.encode("").count : tokenizer.encode("", pair: "").count
        if !length.truncation { kept += try others.map { try tokenizer.encode($0, special: false).count }.max() ?? 0 }
        let pairs = try others.map { isFirst ? try tokenizer.encode(long, pair: $0) : try tokenizer.encode($0, pair: long) }
        guard let limit = try limitOf(length, least: kept + 1) else { return pairs.map { [$0] } }
        if length.truncation { return try pairs.map { [try tokenizer.chunks($0, limit: limit, strategy: cut)[0]] } }
        if kept >= limit {
            throw CapacityError(
                "Special tokens and the other text of a pair leave no space for a text. Expected: fewer than \(limit) tokens. Received: "
                    + "\(kept). Shorten the other text.",
                most: limit - 1, received: kept)
        }
        let stride = try length.stride.map { try checked("stride", $0, 0, limit - kept - 1) } ?? (limit - kept) / 4
        return try pairs.map { try tokenizer.chunks($0, limit: limit, strategy: strategy, stride: stride) }
    }

    private func limitOf(_ length: LongText, least: Int) throws -> Int? {
        guard let size = length.chunkLength else { return info.maxLength }
        return try checked("chunk_length", size, least, info.maxLength)
    }
}

/// Runs the model on each chunk.
func forwardAll(_ forward: Forward, _ chunks: [Encoding], _ cancellation: Cancellation) throws -> [[String: [Float]]] {
    try chunks.map { chunk in
        try cancellation.check()
        return try forward.run(chunk)
    }
}

/// An output of a model as numbers of Swift's usual type.
func values(_ outputs: [String: [Float]], _ name: String) throws -> [Double] {
    if let found = outputs[name] { return found.map { Double($0) } }
    throw BundleError("The output \(name) was expected. Received: a bundle that returns \(outputs.keys.sorted().joined(separator: ", "))")
}

/// The values of a text from those of its chunks: their mean, weighted by numbers of tokens without special tokens, or the
/// greatest ones. `text` is which text of a pair was split.
func combined(_ rows: [[Double]], _ chunks: [Encoding], _ combine: Combine = .mean, text: Int = 0) -> [Double] {
    if rows.count == 1 { return rows[0] }
    let columns = rows[0].indices
    if combine == .max { return columns.map { column in rows.map { $0[column] }.max() ?? 0 } }
    let weights = chunks.map { chunk in Double(max(1, chunk.sequenceIds.filter { $0 == text }.count)) }
    let total = weights.reduce(0, +)
    return columns.map { column in zip(rows, weights).reduce(0.0) { $0 + $1.0[column] * $1.1 } / total }
}

/// A token of a text in one of the chunks of the text.
struct TokenPlace {
    let chunk: Int
    let index: Int
}

/// For each token of a text, the chunk with the most context around it, in the order of the tokens.
func bestPlaces(_ chunks: [Encoding]) -> [TokenPlace] {
    let texts = chunks.map { chunk in (0..<chunk.count).filter { chunk.sequenceIds[$0] >= 0 }.map { chunk.positions[$0] } }
    let first = texts.compactMap { $0.first }.min()
    let last = texts.compactMap { $0.last }.max()
    var best: [Int: (margin: Int, place: TokenPlace)] = [:]
    for (number, chunk) in chunks.enumerated() {
        for index in 0..<chunk.count {
            let position = chunk.positions[index]
            // At the start and the end of the whole text, no context is missing.
            let before = texts[number].first.map { $0 == first ? Int.max : position - $0 } ?? Int.max
            let after = texts[number].last.map { $0 == last ? Int.max : $0 - position } ?? Int.max
            let margin = min(before, after)
            if let known = best[position], known.margin >= margin { continue }
            best[position] = (margin: margin, place: TokenPlace(chunk: number, index: index))
        }
    }
    return best.keys.sorted().compactMap { best[$0]?.place }
}

/// Checks that a number is in a range.
func checked(_ name: String, _ value: Int, _ least: Int, _ most: Int? = nil, optional: Bool = false) throws -> Int {
    if value >= least && value <= most ?? Int.max { return value }
    let range = most.map { "from \(least) to \($0)" } ?? "of at least \(least)"
    throw InputError("\(name) must be an integer \(range)\(optional ? ", or None" : ""). Received: \(name)=\(value)")
}

/// Probabilities.
func softmax(_ logits: [Double]) -> [Double] {
    let greatest = logits.max() ?? 0
    let powers = logits.map { exp($0 - greatest) }
    let sum = powers.reduce(0, +)
    return powers.map { $0 / sum }
}

/// The probability of each class, independent of the others. Unlike `exp`, `tanh` cannot overflow.
func sigmoid(_ logits: [Double]) -> [Double] { logits.map { 0.5 + 0.5 * tanh(0.5 * $0) } }

/// Scales a vector to length 1; a vector of zeros is unchanged.
func unit(_ row: [Double]) -> [Double] {
    let length = max(dot(row, row).squareRoot(), 1e-12)
    return row.map { $0 / length }
}

func dot(_ one: [Double], _ other: [Double]) -> Double { zip(one, other).reduce(0.0) { $0 + $1.0 * $1.1 } }

/// Splits values into one row for each token.
func rows(_ values: [Double], _ count: Int) -> [[Double]] {
    let width = values.count / max(count, 1)
    return (0..<count).map { Array(values[($0 * width)..<(($0 + 1) * width)]) }
}

/// Indices of the greatest values in descending order; equal values keep their order.
func ranked(_ values: [Double], _ count: Int? = nil) -> [Int] {
    let order = values.indices.sorted { values[$0] > values[$1] || (values[$0] == values[$1] && $0 < $1) }
    return Array(order.prefix(count ?? values.count))
}
