/// A part of a text with its class, such as a name.
public struct Entity: Sendable, Equatable {
    public let label: String
    public let score: Double
    /// The part of the text.
    public let word: String
    /// Start and end in the text, counted in scalars of Unicode; see `String.range(start:end:)`.
    public let start, end: Int
    /// Index of the token, for single tokens.
    public let index: Int?
}

/// How tokens are joined to entities: not at all; neighbours of one class; or first the tokens of each word, which get the class
/// of the first one, the mean of the scores, or the scores of the most certain one.
public enum Aggregation: String, Sendable {
    case none, simple, first, average, max
}

/// How the entities of several chunks are combined: token by token, or the longest of overlapping entities.
public enum CombineEntities: String, Sendable {
    case tokens, entities
}

/// An answer in a context.
public struct Answer: Sendable, Equatable {
    public let score: Double
    /// Start and end in the context, counted in scalars of Unicode; see `String.range(start:end:)`.
    public let start, end: Int
    public let answer: String
}

/// A word for a gap.
public struct Filling: Sendable, Equatable {
    public let score: Double
    public let token: Int
    /// The token as text.
    public let text: String
    /// The whole text with the word.
    public let sequence: String
}

/// A token, or the tokens of a word.
private struct TokenGroup {
    var scores: [Double]
    let start: Int
    var end: Int
    let index: Int
    let word: Int

    /// The best class.
    var best: Int { ranked(scores, 1)[0] }
    var score: Double { scores.max() ?? 0 }
}

/// A label such as `B-PER`: its place in an entity, `I` for labels without one, and the type of the entity.
private struct Tag {
    let place: Character
    let kind: String

    private static let schemes = ["BIES", "BMES", "BILU"]

    init(_ label: String, _ places: String) {
        let first = label.first ?? " "
        let isPlace = label.dropFirst().first == "-" && places.contains(first)
        place = isPlace ? first : "I"
        kind = isPlace ? String(label.dropFirst(2)) : label
    }

    /// The letters before a hyphen that are places in entities: `B` and `I`, and those of a scheme that has all letters.
    static func places(_ labels: [String]) -> String {
        let found = labels.filter { $0.dropFirst().first == "-" }.compactMap { $0.first }
        let isKnown = found.contains { "BI".contains($0) }
        let scheme = schemes.first { each in isKnown && found.allSatisfy { each.contains($0) } }
        return "BI" + (scheme ?? "")
    }

    /// Whether a token belongs to the same entity as the token before it.
    func continues(_ before: Tag) -> Bool { kind == before.kind && !"BSU".contains(place) && !"ESLU".contains(before.place) }
}

extension TextModel {
    /// The entities of a text, or its tokens with their classes.
    ///
    /// - Parameter ignoreLabels: Classes that are left out.
    public func tokens(
        _ text: String, aggregation: Aggregation = .none, ignoreLabels: [String] = ["O"], combine: CombineEntities = .tokens,
        length: LongText = LongText()
    ) async throws -> [Entity] {
        if combine == .entities && aggregation == .none {
            throw InputError(
                "combine='entities' needs an aggregation strategy other than 'none', which returns tokens. Received: "
                    + "aggregation_strategy='none'")
        }
        return try await perform { [self] cancellation in
            let parts = try chunks(text, length)
            let outputs = try forwardAll(try encoder(for: "token-classification"), parts, cancellation)
            let scores = try zip(parts, outputs).map { part, output in rows(try values(output, "logits"), part.count).map { softmax($0) } }
            func groups(_ places: [TokenPlace]) -> [TokenGroup] {
                places.filter { parts[$0.chunk].sequenceIds[$0.index] >= 0 }.map { place in
                    let part = parts[place.chunk]
                    return TokenGroup(
                        scores: scores[place.chunk][place.index], start: part.starts[place.index], end: part.ends[place.index],
                        index: part.positions[place.index], word: part.wordIds[place.index])
                }
            }
            func entities(_ places: [TokenPlace]) -> [Entity] {
                joined(aggregation == .simple ? groups(places) : words(groups(places), aggregation), text)
            }
            var found: [Entity] = []
            if aggregation == .none {
                found = groups(bestPlaces(parts)).map { group in
                    Entity(
                        label: info.labels[group.best], score: group.score, word: text.span(start: group.start, end: group.end),
                        start: group.start, end: group.end, index: group.index)
                }
            } else if combine == .tokens || parts.count == 1 {
                found = entities(bestPlaces(parts))
            } else {
                for (number, part) in parts.enumerated() { found += entities((0..<part.count).map { TokenPlace(chunk: number, index: $0) }) }
                return withoutOverlaps(found.filter { !ignoreLabels.contains($0.label) })
            }
            return found.filter { !ignoreLabels.contains($0.label) }
        }
    }

    /// Neighbours of one entity, see `Tag`.
    private func joined(_ tokens: [TokenGroup], _ text: String) -> [Entity] {
        var groups: [[TokenGroup]] = []
        let places = Tag.places(info.labels)
        var last: Tag? = nil
        for token in tokens {
            let tag = Tag(info.labels[token.best], places)
            if last.map({ !tag.continues($0) }) ?? true { groups.append([]) }
            groups[groups.count - 1].append(token)
            last = tag
        }
        return groups.map { group in
            let start = group[0].start
            let end = group[group.count - 1].end
            let score = group.reduce(0.0) { $0 + $1.score } / Double(group.count)
            let label = Tag(info.labels[group[0].best], places).kind
            return Entity(label: label, score: score, word: text.span(start: start, end: end), start: start, end: end, index: nil)
        }
    }

    /// The answers to a question in a text, the most probable first. Long contexts are read in overlapping chunks.
    ///
    /// - Parameters:
    ///   - docStride: Number of tokens that neighbouring chunks share.
    ///   - chunkLength: Number of tokens of question and context together; 384 by default, if the model reads as many.
    ///   - maxAnswerLength: The largest number of tokens of an answer.
    ///   - handleImpossibleAnswer: Whether the empty answer, which means that there is none, may be one of them.
    public func answer(
        _ question: String, context: String, topK: Int = 1, docStride: Int = 128, chunkLength: Int? = nil, maxAnswerLength: Int = 15,
        handleImpossibleAnswer: Bool = false
    ) async throws -> [Answer] {
        try await perform { [self] cancellation in
            let count = try checked("top_k", topK, 1)
            let stride = try checked("doc_stride", docStride, 0)
            let longest = try checked("max_answer_len", maxAnswerLength, 1)
            if context.isEmpty {
                throw InputError("Each question needs a context that is not empty. Received: an empty context for \(repr(question))")
            }
            let limit = try chunkLength.map { try checked("chunk_length", $0, 1, info.maxLength) } ?? min(384, info.maxLength ?? 384)
            let size = try tokenizer.encode(question, special: false).count
            let room = limit - size - (try tokenizer.encode("", pair: "").count)
            if room < 1 {
                throw InputError("The question must be shorter than the \(limit) tokens of a chunk. Received: \(size) tokens")
            }
            let tokens = try tokenizer.encode(question, pair: context)
            let parts = try tokenizer.chunks(tokens, limit: limit, strategy: .onlySecond, stride: min(stride, room / 2))
            let chars = context.codePoints
            var found: [Range<Int>: Double] = [:]
            var order: [Range<Int>] = []
            var none = Double.infinity
            for (part, outputs) in zip(parts, try forwardAll(try encoder(for: "question-answering"), parts, cancellation)) {
                // The score of the first token is that of "no answer".
                let allowed = (0..<part.count).map { $0 == 0 || part.sequenceIds[$0] == 1 }
                func probabilities(_ name: String) throws -> [Double] { softmax(zip(try values(outputs, name), allowed).map { $1 ? $0 : -1e4 }) }
                let starts = try probabilities("start_logits")
                let ends = try probabilities("end_logits")
                none = min(none, starts[0] * ends[0])
                for span in spans(starts, ends, allowed, longest, max(20, count)) {
                    let place = trimmed(chars, part.starts[span.first], part.ends[span.last])
                    // The same span from two chunks counts once.
                    if found[place] == nil { order.append(place) }
                    found[place] = max(span.score, found[place] ?? 0)
                }
            }
            var answers = order.map { place -> Answer in
                let text = String(codePoints: chars[place])
                return Answer(score: found[place] ?? 0, start: place.lowerBound, end: place.upperBound, answer: text)
            }
            if handleImpossibleAnswer || answers.isEmpty { answers.append(Answer(score: none, start: 0, end: 0, answer: "")) }
            return ranked(answers.map { $0.score }, count).map { answers[$0] }
        }
    }

    /// Words for each masked token of a text (`info.maskToken`), the most probable first.
    public func fillMask(_ text: String, topK: Int = 5, truncation: Bool = false) async throws -> [[Filling]] {
        try await perform { [self] _ in
            let count = try checked("top_k", topK, 1)
            guard let mask = info.maskToken, let id = tokenizer.id(of: mask) else {
                throw TokenizerError("fill-mask needs a tokenizer with a mask token. Received: a tokenizer without one")
            }
            let tokens = try whole(text, truncation: truncation)
            let gaps = (0..<tokens.count).filter { tokens.ids[$0] == id }
            if gaps.isEmpty { throw InputError("The text has no \(mask) to fill. Received: \(repr(text))") }
            let logits = rows(try values(try encoder(for: "fill-mask").run(tokens), "logits"), tokens.count)
            return gaps.map { gap in
                let scores = softmax(logits[gap])
                return ranked(scores, count).map { token in
                    var ids = tokens.ids
                    ids[gap] = token
                    return Filling(
                        score: scores[token], token: token, text: tokenizer.decode([token]),
                        sequence: tokenizer.decode(ids, skipSpecial: gaps.count == 1))
                }
            }
        }
    }
}

/// Merges the tokens of each word.
private func words(_ tokens: [TokenGroup], _ aggregation: Aggregation) -> [TokenGroup] {
    var words: [[TokenGroup]] = []
    for token in tokens {
        if let last = words.last, last[0].word == token.word { words[words.count - 1].append(token) } else { words.append([token]) }
    }
    return words.map { word in
        var result = word[0]
        result.end = word[word.count - 1].end
        if aggregation == .max { result.scores = word.reduce(word[0]) { $1.score > $0.score ? $1 : $0 }.scores }
        if aggregation == .average {
            result.scores = result.scores.indices.map { label in word.reduce(0.0) { $0 + $1.scores[label] } / Double(word.count) }
        }
        return result
    }
}

/// The longest of overlapping entities; of equally long ones, that with the highest score.
private func withoutOverlaps(_ entities: [Entity]) -> [Entity] {
    var kept: [Entity] = []
    for number in entities.indices.sorted(by: { (entities[$0].start, $0) < (entities[$1].start, $1) }) {
        let entity = entities[number]
        guard let last = kept.last, entity.start < last.end else {
            kept.append(entity)
            continue
        }
        let longer = (entity.end - entity.start) - (last.end - last.start)
        if longer > 0 || (longer == 0 && entity.score > last.score) { kept[kept.count - 1] = entity }
    }
    return kept
}

/// The most probable spans of one chunk.
private func spans(
    _ starts: [Double], _ ends: [Double], _ allowed: [Bool], _ longest: Int, _ count: Int
) -> [(first: Int, last: Int, score: Double)] {
    var all: [(first: Int, last: Int, score: Double)] = []
    for first in 1..<max(starts.count, 1) where allowed[first] {
        for last in first..<min(first + longest, ends.count) where allowed[last] {
            let score = starts[first] * ends[last]
            if score > 0 { all.append((first: first, last: last, score: score)) }
        }
    }
    return ranked(all.map { $0.score }, count).map { all[$0] }
}

/// The span without white space at its ends.
private func trimmed(_ chars: [UInt32], _ start: Int, _ end: Int) -> Range<Int> {
    var from = start
    var to = end
    while from < to && Letters.isSpace(chars[from]) { from += 1 }
    while to > from && Letters.isSpace(chars[to - 1]) { to -= 1 }
    return from..<to
}
