import Foundation

/// A token of a word: its id, and its start and end in the word, in characters.
struct WordToken {
    let id: Int
    let start: Int
    let end: Int
}

/// Tokens and their ids.
struct Vocabulary {
    private var table: CodePointTable
    private var ids: [Int32] = []
    private var entries: [Int32] = []

    init(_ tokens: [(token: [UInt32], id: Int)]) {
        table = CodePointTable(expected: tokens.count)
        for (token, id) in tokens {
            let entry = table.add(token, 0, token.count)
            if entry == ids.count { ids.append(Int32(id)) } else { ids[entry] = Int32(id) }
            while entries.count <= id { entries.append(-1) }
            entries[id] = Int32(entry)
        }
    }

    /// The field `vocab`, an object.
    init(_ config: JSON) throws {
        guard case .object(let fields) = config["vocab"] else { throw TokenizerError("the vocabulary of tokenizer.json is missing") }
        self.init(try fields.map { field in
            guard let id = field.value.int, id >= 0 else { throw TokenizerError("the id of the token \(field.name) is no number") }
            return (token: field.name.codePoints, id: id)
        })
    }

    var count: Int { table.count }

    /// The id of a token, or -1.
    func id(_ chars: [UInt32], _ from: Int, _ to: Int) -> Int {
        let entry = table.find(chars, from, to)
        return entry < 0 ? -1 : Int(ids[entry])
    }

    func id(_ token: [UInt32]) -> Int? {
        let found = id(token, 0, token.count)
        return found < 0 ? nil : found
    }

    func token(_ id: Int) -> [UInt32]? { id >= 0 && id < entries.count && entries[id] >= 0 ? Array(table[Int(entries[id])]) : nil }

    /// All tokens with their ids.
    var all: [(token: [UInt32], id: Int)] { ids.enumerated().map { (token: Array(table[$0.offset]), id: Int($0.element)) } }
}

/// The vocabulary, and the rule that splits a word into tokens; the field `model`. One thread at a time uses a model.
class Model {
    let vocabulary: Vocabulary
    let unknown: Int?
    private let byteIds: [Int]
    private var words = CodePointTable(expected: Model.mostKnown)
    private var known: [[WordToken]] = []
    private static let mostKnown = 20_000
    private static let longestKnown = 48

    init(_ vocabulary: Vocabulary, unknown: Int?) {
        self.vocabulary = vocabulary
        self.unknown = unknown
        byteIds = (0..<256).map { vocabulary.id(String(format: "<0x%02X>", $0).codePoints) ?? -1 }
    }

    static func of(_ config: JSON) throws -> Model {
        let usual = config.has("merges") ? "BPE" : config["vocab"].items != nil ? "Unigram" : "WordPiece"
        let type = config["type"].string ?? usual
        switch type {
        case "WordPiece": return try WordPiece(config)
        case "WordLevel": return try WordLevel(config)
        case "BPE": return try BytePairs(config)
        case "Unigram": return try Unigram(config)
        default: throw TokenizerError("unsupported model in tokenizer.json. Received: \(type)")
        }
    }

    /// The tokens of a word; words that occurred before are looked up.
    final func tokens(_ piece: Piece) throws -> [WordToken] {
        let chars = piece.text.chars
        if piece.to - piece.from > Model.longestKnown { return try tokenized(chars, piece.from, piece.to) }
        let word = words.find(chars, piece.from, piece.to)
        if word >= 0 { return known[word] }
        let result = try tokenized(chars, piece.from, piece.to)
        if known.count >= Model.mostKnown {
            words = CodePointTable(expected: Model.mostKnown)
            known.removeAll(keepingCapacity: true)
        }
        _ = words.add(chars, piece.from, piece.to)
        known.append(result)
        return result
    }

    fileprivate func tokenized(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] { [] }

    /// The ids of the bytes of a part of a text, if the vocabulary has all of them.
    fileprivate final func bytes(_ chars: [UInt32], _ from: Int, _ to: Int) -> [Int]? {
        var result: [Int] = []
        for index in from..<to { Letters.utf8(chars[index]) { result.append(byteIds[Int($0)]) } }
        return result.contains(-1) ? nil : result
    }

    fileprivate final func neededUnknown() throws -> Int {
        if let id = unknown { return id }
        throw TokenizerError(
            "this tokenizer cannot tokenize a text: a part of it is unknown, and there is no token for that. Is its vocabulary complete?")
    }
}

private func unknownOf(_ config: JSON, _ vocabulary: Vocabulary) -> Int? {
    config["unk_token"].string.flatMap { vocabulary.id($0.codePoints) }
}

/// The longest token that begins a word, then the longest that continues it, and so on.
private final class WordPiece: Model {
    private let longest: Int
    private var first: Trie
    private var following: Trie

    init(_ config: JSON) throws {
        let vocabulary = try Vocabulary(config)
        let prefix = (config["continuing_subword_prefix"].string ?? "##").codePoints
        longest = config["max_input_chars_per_word"].int ?? 100
        first = Trie(expected: vocabulary.count * 3)
        following = Trie(expected: vocabulary.count)
        for (token, id) in vocabulary.all where !token.isEmpty {
            first.add(token[...], id)
            if token.count > prefix.count && token.has(prefix, at: 0) { following.add(token[prefix.count...], id) }
        }
        super.init(vocabulary, unknown: unknownOf(config, vocabulary))
    }

    override func tokenized(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] {
        var result: [WordToken] = []
        var start = from
        while start < to && to - from <= longest {
            var found = -1
            var end = start
            func keep(_ id: Int, _ stop: Int) {
                found = id
                end = stop
            }
            if start == from { first.search(chars, start, to, keep) } else { following.search(chars, start, to, keep) }
            if found < 0 { break }
            result.append(WordToken(id: found, start: start - from, end: end - from))
            start = end
        }
        return start == to ? result : [WordToken(id: try neededUnknown(), start: 0, end: to - from)]
    }
}

/// Whole words.
private final class WordLevel: Model {
    init(_ config: JSON) throws {
        let vocabulary = try Vocabulary(config)
        super.init(vocabulary, unknown: unknownOf(config, vocabulary))
    }

    override func tokenized(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] {
        let id = vocabulary.id(chars, from, to)
        return [WordToken(id: id >= 0 ? id : try neededUnknown(), start: 0, end: to - from)]
    }
}

/// Byte-pair encoding: characters, whose most frequent pairs are merged. Reference: Sennrich et al. 2016, arXiv:1508.07909.
private final class BytePairs: Model {
    private let prefix: [UInt32]
    private let suffix: [UInt32]
    private let fusesUnknown: Bool
    private let usesBytes: Bool
    private let ignoresMerges: Bool
    /// The rank of a merge in the upper 32 bits, and the merged token in the lower ones, for each pair of tokens.
    private var merges: NumberTable

    init(_ config: JSON) throws {
        let vocabulary = try Vocabulary(config)
        prefix = config.text("continuing_subword_prefix").codePoints
        suffix = config.text("end_of_word_suffix").codePoints
        fusesUnknown = config.flag("fuse_unk")
        usesBytes = config.flag("byte_fallback")
        ignoresMerges = config.flag("ignore_merges")
        guard let pairs = config["merges"].items else { throw TokenizerError("the merges of tokenizer.json are missing") }
        merges = NumberTable(expected: pairs.count)
        for (rank, pair) in pairs.enumerated() {
            var parts: [[UInt32]] = []
            if let text = pair.string {
                parts = text.codePoints.split(separator: 32, omittingEmptySubsequences: false).map { Array($0) }
            } else {
                parts = (pair.items ?? []).map { ($0.string ?? "").codePoints }
            }
            guard parts.count == 2, let one = vocabulary.id(parts[0]), let two = vocabulary.id(parts[1]),
                let both = vocabulary.id(parts[0] + parts[1].dropFirst(prefix.count))
            else {
                throw TokenizerError(
                    "a merge in tokenizer.json has a token that the vocabulary lacks: \(parts.map { String(codePoints: $0) })")
            }
            merges[one << 32 | two] = rank << 32 | both
        }
        super.init(vocabulary, unknown: unknownOf(config, vocabulary))
    }

    override func tokenized(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] {
        if ignoresMerges {
            let id = vocabulary.id(chars, from, to)
            if id >= 0 { return [WordToken(id: id, start: 0, end: to - from)] }
        }
        return merged(try symbols(chars, from, to))
    }

    /// The tokens of the single characters.
    private func symbols(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] {
        var result: [WordToken] = []
        result.reserveCapacity(to - from)
        var unknownStart = -1
        for index in from..<to {
            var id = -1
            if prefix.isEmpty && suffix.isEmpty {
                id = vocabulary.id(chars, index, index + 1)
            } else {
                let symbol = (index > from ? prefix : []) + [chars[index]] + (index == to - 1 ? suffix : [])
                id = vocabulary.id(symbol, 0, symbol.count)
            }
            let start = index - from
            if id < 0, usesBytes, let ids = bytes(chars, index, index + 1) {
                result += ids.map { WordToken(id: $0, start: start, end: start + 1) }
                continue
            }
            if unknownStart >= 0 && (id >= 0 || !fusesUnknown) {
                result.append(WordToken(id: try neededUnknown(), start: unknownStart, end: start))
                unknownStart = -1
            }
            if id >= 0 {
                result.append(WordToken(id: id, start: start, end: start + 1))
            } else if unknown != nil && unknownStart < 0 {
                unknownStart = start
            }
        }
        if unknownStart >= 0 { result.append(WordToken(id: try neededUnknown(), start: unknownStart, end: to - from)) }
        return result
    }

    /// Merges pairs, that of the lowest rank first, and of equal ranks the first one.
    private func merged(_ tokens: [WordToken]) -> [WordToken] {
        let size = tokens.count
        var ids = tokens.map { $0.id }
        var ends = tokens.map { $0.end }
        var next = [Int](1..<(size + 1))
        var previous = [Int](-1..<(size - 1))
        var queue = Heap()
        func consider(_ first: Int) {
            if first < 0 || next[first] >= size { return }
            let merge = merges[ids[first] << 32 | ids[next[first]]]
            if merge >= 0 { queue.add((merge >> 32) << 32 | first) }
        }
        for index in 0..<max(size - 1, 0) { consider(index) }
        while let best = queue.poll() {
            let first = best & 0xFFFF_FFFF
            let second = next[first]
            if ids[first] < 0 || second >= size { continue }
            let merge = merges[ids[first] << 32 | ids[second]]
            if merge < 0 || merge >> 32 != best >> 32 { continue }  // one of the two was merged with another token
            ids[first] = merge & 0xFFFF_FFFF
            ids[second] = -1
            ends[first] = ends[second]
            next[first] = next[second]
            if next[second] < size { previous[next[second]] = first }
            consider(previous[first])
            consider(first)
        }
        return (0..<size).filter { ids[$0] >= 0 }.map { WordToken(id: ids[$0], start: tokens[$0].start, end: ends[$0]) }
    }
}

/// A heap of numbers, the smallest first.
private struct Heap {
    private var items: [Int] = []

    mutating func add(_ item: Int) {
        items.append(item)
        var index = items.count - 1
        while index > 0 && items[(index - 1) / 2] > item {
            items[index] = items[(index - 1) / 2]
            index = (index - 1) / 2
        }
        items[index] = item
    }

    /// Removes the smallest item.
    mutating func poll() -> Int? {
        guard let first = items.first, let last = items.popLast() else { return nil }
        if items.isEmpty { return first }
        var index = 0
        while true {
            var child = 2 * index + 1
            if child >= items.count { break }
            if child + 1 < items.count && items[child + 1] < items[child] { child += 1 }
            if items[child] >= last { break }
            items[index] = items[child]
            index = child
        }
        items[index] = last
        return first
    }
}

/// The most probable sequence of tokens. Reference: Kudo 2018, arXiv:1804.10959.
private final class Unigram: Model {
    private let usesBytes: Bool
    private var scores: [Double] = []
    private var unknownScore = 0.0
    private var trie: Trie

    init(_ config: JSON) throws {
        guard let entries = config["vocab"].items else { throw TokenizerError("the vocabulary of tokenizer.json is missing") }
        usesBytes = config.flag("byte_fallback")
        var tokens: [(token: [UInt32], id: Int)] = []
        for (id, entry) in entries.enumerated() {
            guard let pair = entry.items, pair.count == 2, let token = pair[0].string, let score = pair[1].number else {
                throw TokenizerError("the vocabulary of tokenizer.json is damaged. Received: \(entry.written())")
            }
            tokens.append((token: token.codePoints, id: id))
            scores.append(Unigram.asRead(score))
        }
        unknownScore = (scores.min() ?? 0) - 10
        trie = Trie(expected: tokens.reduce(0) { $0 + $1.token.count } / 2)
        for (token, id) in tokens where !token.isEmpty { trie.add(token[...], id) }
        super.init(Vocabulary(tokens), unknown: config["unk_id"].int)
    }

    /// A score as the Rust library reads it from the file: its digits as a number, divided by a power of ten. Both steps
    /// round, and a difference of the last bit decides between paths with the same scores in another order.
    private static func asRead(_ exact: Double) -> Double {
        let parts = "\(abs(exact))".split(separator: "e")
        let digits = parts[0].split(separator: ".")
        let fraction = digits.count > 1 && digits[1] != "0" ? digits[1] : ""
        guard let number = Double(digits[0] + fraction) else { return exact }
        let exponent = (parts.count > 1 ? Int(parts[1]) ?? 0 : 0) - fraction.count
        let power = pow(10, Double(abs(exponent)))
        return (exact < 0 ? -1 : 1) * (exponent < 0 ? number / power : number * power)
    }

    override func tokenized(_ chars: [UInt32], _ from: Int, _ to: Int) throws -> [WordToken] {
        let size = to - from
        var best = [Double](repeating: 0, count: size + 1)
        var starts = [Int](repeating: -1, count: size + 1)
        var ids = [Int](repeating: -1, count: size + 1)
        func reach(_ end: Int, _ id: Int, _ start: Int, _ score: Double) {
            if starts[end] >= 0 && score <= best[end] { return }
            best[end] = score
            starts[end] = start
            ids[end] = id
        }
        for start in 0..<size {
            var hasSingle = false
            trie.search(chars, from + start, to) { id, end in
                reach(end - from, id, start, scores[id] + best[start])
                if end - from == start + 1 { hasSingle = true }
            }
            if !hasSingle { reach(start + 1, try neededUnknown(), start, unknownScore + best[start]) }
        }
        var path: [Int] = []  // ends of tokens, the last one first
        var end = size
        while end > 0 {
            path.append(end)
            // Neighbouring unknown tokens are one.
            if ids[end] == unknown { while starts[end] > 0 && ids[starts[end]] == unknown { end = starts[end] } }
            end = starts[end]
        }
        var result: [WordToken] = []
        var start = 0
        for stop in path.reversed() {
            var id = ids[stop]
            if id == unknown { id = vocabulary.id(chars, from + start, from + stop) }
            if id >= 0 {
                result.append(WordToken(id: id, start: start, end: stop))
            } else if usesBytes, let ids = bytes(chars, from + start, from + stop) {
                result += ids.map { WordToken(id: $0, start: start, end: stop) }
            } else {
                result.append(WordToken(id: try neededUnknown(), start: start, end: stop))
            }
            start = stop
        }
        return result
    }
}
