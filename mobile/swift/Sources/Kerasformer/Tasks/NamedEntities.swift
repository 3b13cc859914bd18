/// A word of a text, with its offsets in scalars of Unicode.
private struct TextWord {
    let text: String
    let start: Int
    let end: Int
}

/// A span of words with its type. Its probability is a float as in Python, where those of very certain spans are equal.
private struct Span {
    let first: Int
    let last: Int
    let label: Int
    let score: Float

    func overlaps(_ other: Span) -> Bool { first <= other.last && other.first <= last }

    func contains(_ other: Span) -> Bool { first <= other.first && other.last <= last }
}

extension TextModel {
    /// Entities of types that are named in the call, with a model of GLiNER. The model reads the names of the types, each after a
    /// mark, a separator, and the words of the text; it scores the spans of a few words for each type.
    ///
    /// - Parameters:
    ///   - labels: Names of the types in plain words.
    ///   - threshold: Probability that an entity exceeds.
    ///   - flatNer: Whether entities do not overlap; otherwise, one may lie within another.
    ///   - multiLabel: Whether one span may be of several types.
    ///   - truncation: Whether the last words of a text that is too long are omitted.
    /// - Throws: `CapacityError` if the text is too long, there are more types than the model reads, or their names leave no space
    ///   for a text.
    public func entities(
        _ text: String, labels: [String], threshold: Double = 0.5, flatNer: Bool = true, multiLabel: Bool = false, truncation: Bool = false
    ) async throws -> [Entity] {
        try await perform { [self] cancellation in
            let forward = try encoder(for: "zero-shot-token-classification")
            let spans = details["spans"]
            try checkTypes(labels, spans)
            if !(0...1).contains(threshold) {
                throw InputError("threshold must be a number from 0 to 1. Received: threshold=\(repr(.double(threshold)))")
            }
            // Without words that the tokenizer removes, such as control characters.
            let all = wordsOf(text)
            let present = Set(try tokenizer.encodeWords(all.map { $0.text }, special: false).wordIds)
            let words = all.enumerated().filter { present.contains($0.offset) }.map { $0.element }
            if words.isEmpty { return [] }
            let prompt = labels.flatMap { [spans.text("label_token"), $0] } + [spans.text("separator")]
            let whole = try tokenizer.encodeWords(prompt + words.map { $0.text })
            let most = spans["max_words"].int ?? words.count
            let count = try fitting(whole, labels.count, info.maxLength, most)
            let kept = Array(words.prefix(count))
            if kept.count < words.count && !truncation {
                throw CapacityError(
                    "A text is too long. Expected: at most \(most) words and, with the labels, "
                        + "\(info.maxLength.map { String($0) } ?? "any number of") tokens. Received: \(words.count) words, of which "
                        + "\(count) can be read with these labels. Split the text, or pass truncation=True to omit its last words",
                    most: info.maxLength ?? 0, received: whole.count)
            }
            let tokens = kept.count < words.count ? try tokenizer.encodeWords(prompt + kept.map { $0.text }) : whole
            try cancellation.check()
            let logits = try values(try forward.run(tokens, slotsOf(tokens, labels.count, kept.count)), "span_logits")
            let found = candidates(logits, kept.count, labels.count, Float(threshold))
            return withoutConflicts(found, flat: flatNer, several: multiLabel).map { span in
                let start = kept[span.first].start
                let end = kept[span.last].end
                return Entity(
                    label: labels[span.label], score: Double(span.score), word: text.span(start: start, end: end), start: start, end: end,
                    index: nil)
            }
        }
    }
}

private func checkTypes(_ labels: [String], _ spans: JSON) throws {
    if labels.isEmpty || labels.contains(where: { $0.codePoints.allSatisfy { isSpace($0) } }) {
        throw InputError(
            "labels must be names of types, such as ['person', 'city'], none of them empty. Received: "
                + repr(.array(labels.map { .string($0) })))
    }
    // Strings of Swift are equal if they look equal, those of Python if their characters are.
    var counts: [[UInt32]: Int] = [:]
    for label in labels { counts[label.codePoints, default: 0] += 1 }
    let several = counts.filter { $0.value > 1 }.keys.sorted { $0.lexicographicallyPrecedes($1) }
    if !several.isEmpty {
        throw InputError("labels must differ. Received several times: " + several.map { repr(String(codePoints: $0)) }.joined(separator: ", "))
    }
    let marks = ["label_token", "separator"].map { spans.text($0) }
    if let label = labels.first(where: { label in marks.contains { label.contains($0) } }) {
        throw InputError("labels must not contain \(marks.joined(separator: " or ")). Received: \(repr(label))")
    }
    guard let most = spans["max_labels"].int, labels.count > most else { return }
    throw CapacityError(
        "The bundle reads at most \(most) labels in one call. Received: \(labels.count). Call it several times, or export the model with a "
            + "larger num_labels",
        most: most, received: labels.count)
}

/// A letter, a digit or an underscore, `\w` of Python's patterns.
private func isOfWord(_ char: UInt32) -> Bool { Letters.isLetter(char) || Letters.isNumber(char) || char == 0x5F }

/// A space of Python's patterns.
private func isSpace(_ char: UInt32) -> Bool { Letters.isSpace(char) || (0x1C...0x1F).contains(char) }

/// The words of a text, perhaps with hyphens, and other characters that are no spaces: `\w+(?:[-_]\w+)*|\S` in Python.
private func wordsOf(_ text: String) -> [TextWord] {
    let chars = text.codePoints
    func isOfWordAt(_ index: Int) -> Bool { index < chars.count && isOfWord(chars[index]) }
    var words: [TextWord] = []
    var index = 0
    while index < chars.count {
        let start = index
        index += 1
        if isSpace(chars[start]) { continue }
        if isOfWordAt(start) {
            while isOfWordAt(index) || (index < chars.count && chars[index] == 0x2D && isOfWordAt(index + 1)) { index += 1 }
        }
        words.append(TextWord(text: String(codePoints: chars[start..<index]), start: start, end: index))
    }
    return words
}

/// The index of the first word of a text after so many labels, their marks and the separator.
private func firstWord(_ labels: Int) -> Int { 2 * labels + 1 }

/// The number of words of a text that the model can read: a word counts if all of its tokens fit.
private func fitting(_ tokens: Encoding, _ labels: Int, _ limit: Int?, _ most: Int) throws -> Int {
    let last = tokens.wordIds.lastIndex { $0 >= 0 } ?? 0
    let space = limit.map { $0 - (tokens.count - 1 - last) } ?? last + 1  // without special tokens at the end
    let cut = space <= last ? tokens.wordIds[max(space, 0)] : tokens.wordIds[last] + 1
    let count = min(cut - firstWord(labels), most)
    if count >= 1 { return count }
    let needed = tokens.wordIds.filter { (0..<firstWord(labels)).contains($0) }.count
    throw CapacityError(
        "The labels leave no space for a text. Expected: fewer than \(limit ?? 0) tokens with special tokens. Received: \(needed) tokens of "
            + "\(labels) labels. Pass fewer labels, or shorter ones",
        most: limit ?? 0, received: needed)
}

/// The slots of the first tokens of words, and of the marks of labels.
private func slotsOf(_ tokens: Encoding, _ labels: Int, _ words: Int) -> SpanSlots {
    var first = [Int](repeating: -1, count: firstWord(labels) + words)
    for (slot, word) in tokens.wordIds.enumerated() where word >= 0 && first[word] < 0 { first[word] = slot }
    return SpanSlots(words: Array(first[firstWord(labels)...]), labels: (0..<labels).map { first[2 * $0] })
}

/// The spans whose probability exceeds a threshold, the most probable first.
///
/// - Parameter logits: Of the spans of `k + 1` words from each word, for each label: `(W, K, C)`.
private func candidates(_ logits: [Double], _ words: Int, _ labels: Int, _ threshold: Float) -> [Span] {
    let widths = logits.count / words / labels
    var found: [Span] = []
    for (index, probability) in sigmoid(logits).enumerated() {
        let first = index / labels / widths
        let last = first + index / labels % widths
        let score = Float(probability)
        if score > threshold && last < words { found.append(Span(first: first, last: last, label: index % labels, score: score)) }
    }
    return ranked(found.map { Double($0.score) }).map { found[$0] }
}

/// The spans that do not conflict with a more probable one, in the order of the text.
///
/// - Parameters:
///   - flat: Whether spans that overlap conflict even if one of them lies within the other.
///   - several: Whether a span may have several labels.
private func withoutConflicts(_ spans: [Span], flat: Bool, several: Bool) -> [Span] {
    var known: [[Int]: Span] = [:]
    var chosen: [Span] = []
    for span in spans {
        let place = [span.first, span.last]
        if known[place] != nil {
            if several { chosen.append(span) }
        } else if !known.values.contains(where: { $0.overlaps(span) && (flat || !($0.contains(span) || span.contains($0))) }) {
            known[place] = span
            chosen.append(span)
        }
    }
    // Those of one first word remain in their order, which `sort` does not promise.
    return ranked(chosen.map { -Double($0.first) }).map { chosen[$0] }
}
