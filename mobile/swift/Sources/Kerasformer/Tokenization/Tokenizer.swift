import Foundation

/// Converts text to token ids and back, as `tokenizer.json` describes it. Several threads may use a tokenizer; their calls come
/// one after another.
public final class Tokenizer: @unchecked Sendable {
    let settings: JSON
    private let normalizer: Normalizer?
    private let preTokenizer: PreTokenizer?
    private let wordRule: WordRule
    private let model: Model
    private let postProcessor: PostProcessor
    private let decoder: Decoder?
    private let added: [Int: AddedToken]
    private let addedIds: [[UInt32]: Int]
    private let plain: AddedTokens
    private let normalized: AddedTokens
    private let dropped: Set<UInt32>
    private let skipsIncomplete: Bool
    private let unknown: Int?
    private let lock = NSLock()
    let hasByteTokens: Bool
    let cleansSpaces: Bool

    /// The content of each special token that is written in `tokenizer_config.json`, by names such as `"mask_token"`.
    public let specialTokens: [String: String]

    /// Number of tokens, including added tokens.
    public let vocabularySize: Int

    /// The tokenizer of the texts that the model writes, if it is another one (Marian).
    private let target: Tokenizer?
    var writer: Tokenizer { target ?? self }

    private static let tokenNames = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]

    /// Reads `tokenizer.json` and, if they exist, `tokenizer_config.json` and `target_tokenizer.json` of a folder.
    ///
    /// - Throws: `TokenizerError` if a file is missing or damaged, or has an unsupported rule.
    public convenience init(folder: URL) throws {
        let config = folder.appendingPathComponent("tokenizer_config.json")
        let settings: JSON = FileManager.default.fileExists(atPath: config.path) ? try Tokenizer.read(config) : .object([])
        let file = folder.appendingPathComponent("tokenizer.json")
        if let kind = settings["tokenizer_class"].string, !FileManager.default.fileExists(atPath: file.path) {
            throw TokenizerError(
                "the rules of \(kind) cannot be written as tokenizer.json, which is missing. Run this bundle with kerasformer in Python, "
                    + "or train the model with a tokenizer like that of BERT, GPT-2 or T5")
        }
        let other = folder.appendingPathComponent("target_tokenizer.json")
        let target = FileManager.default.fileExists(atPath: other.path) ? try Tokenizer(try Tokenizer.read(other), settings) : nil
        try self.init(try Tokenizer.read(file), settings, target: target)
    }

    private static func read(_ file: URL) throws -> JSON {
        guard let data = try? Data(contentsOf: file) else {
            throw TokenizerError(
                "\(file.lastPathComponent) cannot be read. Expected: a folder with a tokenizer. Received: \(file.deletingLastPathComponent().path)")
        }
        do {
            let content = try JSON.parse(data)
            if case .object = content { return content }
        } catch let error as JSONError {
            throw TokenizerError("\(file.lastPathComponent) is damaged: \(error.message)")
        }
        throw TokenizerError("\(file.lastPathComponent) must be an object")
    }

    init(_ content: JSON, _ settings: JSON, target: Tokenizer? = nil) throws {
        if content["model"].isNull { throw TokenizerError("tokenizer.json has no model. Is it damaged?") }
        let rule = try normalizerOf(content["normalizer"])
        let model = try Model.of(content["model"])
        let tokens = content.list("added_tokens").map { AddedToken($0) }
        var ids: [[UInt32]: Int] = [:]
        var byId: [Int: AddedToken] = [:]
        for token in tokens {
            ids[token.content] = token.id
            byId[token.id] = token
        }
        var named: [String: String] = [:]
        for name in Tokenizer.tokenNames {
            if let text = settings[name].string ?? settings[name]["content"].string { named[name] = text }
        }
        self.settings = settings
        self.target = target
        self.model = model
        normalizer = rule
        preTokenizer = try preTokenizerOf(content["pre_tokenizer"])
        wordRule = WordRule(normalizer, preTokenizer)
        postProcessor = try PostProcessor(content["post_processor"])
        decoder = try decoderOf(content["decoder"])
        added = byId
        addedIds = ids
        let splitsSpecialTokens = settings.flag("split_special_tokens")
        let matched = tokens.filter { !($0.isSpecial && splitsSpecialTokens) }
        let (changed, unchanged) = (matched.filter { $0.isNormalized }, matched.filter { !$0.isNormalized })
        plain = AddedTokens(unchanged, contents: unchanged.map { $0.content })
        normalized = AddedTokens(changed, contents: changed.map { token in rule.map { $0(Aligned(token.content)).chars } ?? token.content })
        specialTokens = named
        vocabularySize = model.vocabulary.count + ids.keys.filter { model.vocabulary.id($0) == nil }.count
        hasByteTokens = (ids["<0x0A>".codePoints] ?? model.vocabulary.id("<0x0A>".codePoints)) != nil
        // In vocabularies of byte-pair encoding, spaces are part of the text, and the clean-up would remove them.
        cleansSpaces = settings.flag("clean_up_tokenization_spaces") && content["model"].text("type") != "BPE"
        skipsIncomplete = settings.text("errors") == "ignore"
        dropped = Set(settings.text("dropped_characters").codePoints)
        let name = (named["unk_token"] ?? "").codePoints
        unknown = ids[name] ?? model.vocabulary.id(name)
    }

    /// The id of a token as it appears in the vocabulary.
    public func id(of token: String) -> Int? {
        let name = token.codePoints
        return addedIds[name] ?? model.vocabulary.id(name)
    }

    /// The token of an id as it appears in the vocabulary.
    public func token(_ id: Int) -> String? { chars(id).map { String(codePoints: $0) } }

    private func chars(_ id: Int) -> [UInt32]? { added[id]?.content ?? model.vocabulary.token(id) }

    func isKnown(_ id: Int) -> Bool { chars(id) != nil }

    func isSpecial(_ id: Int) -> Bool { added[id]?.isSpecial ?? false }

    func isAdded(_ id: Int) -> Bool { added[id] != nil }

    func isByteToken(_ id: Int) -> Bool { token(id).flatMap { byteOf(Array($0.utf8)) } != nil }

    /// All tokens with their ids.
    var tokens: [(token: String, id: Int)] {
        (model.vocabulary.all + addedIds.map { (token: $0.key, id: $0.value) }).map { (token: String(codePoints: $0.token), id: $0.id) }
    }

    /// The tokens of a text, or of a pair of texts.
    ///
    /// - Parameter special: Whether special tokens are added.
    /// - Throws: `InputError` if the text contains characters that were removed from the vocabulary.
    public func encode(_ text: String, pair: String? = nil, special: Bool = true) throws -> Encoding {
        lock.lock()
        defer { lock.unlock() }
        var texts = [try tokens(text)]
        if let pair = pair { texts.append(try tokens(pair)) }
        return joined(texts, special: special)
    }

    /// The tokens of the words of a text, of which each is tokenized by itself (`is_split_into_words` in Python). Word ids are the
    /// indices of these words; offsets count from the start of a word.
    ///
    /// - Parameter special: Whether special tokens are added.
    /// - Throws: `InputError`, as for `encode`.
    public func encodeWords(_ words: [String], special: Bool = true) throws -> Encoding {
        lock.lock()
        defer { lock.unlock() }
        var all: [TextToken] = []
        for (word, text) in words.enumerated() {
            all += try tokens(text).map { TextToken(id: $0.id, start: $0.start, end: $0.end, word: word) }
        }
        return joined([all], special: special)
    }

    /// The tokens of one or two texts, with special tokens around them.
    private func joined(_ texts: [[TextToken]], special: Bool) -> Encoding {
        var result = Encoding()
        for part in postProcessor.template(isPair: texts.count > 1, special: special) {
            if part.sequence < 0 { result.appendSpecial(part.id, type: part.type) }
            else { result.append(texts[part.sequence], sequence: part.sequence, type: part.type) }
        }
        return result
    }

    /// The text of ids; ids that the vocabulary lacks are left out.
    public func decode(_ ids: [Int], skipSpecial: Bool = false) -> String {
        String(decoding: decoded(ids.filter { !skipSpecial || !isSpecial($0) }), as: UTF8.self)
    }

    /// A decoder of ids that arrive one after another.
    public func stream(skipSpecial: Bool = true) -> TextStream { TextStream(self, skipSpecial: skipSpecial) }

    /// The text of ids in UTF-8.
    func decoded(_ ids: [Int]) -> [UInt8] {
        var tokens: [[UInt8]] = []
        for id in ids {
            guard let token = token(id) else { continue }
            let bytes = Array(token.utf8)
            tokens.append(skipsIncomplete && !isAdded(id) ? bytesOf(bytes) : bytes)
        }
        if skipsIncomplete { return Array(validText(Array(tokens.joined()), invalid: "").utf8) }
        let text: [UInt8] = decoder.map { Array($0(tokens).joined()) } ?? Array(tokens.joined(separator: [32]))
        return cleansSpaces ? cleaned(text, cleanedSpaces) : text
    }

    private func tokens(_ text: String) throws -> [TextToken] {
        var result: [TextToken] = []
        result.reserveCapacity(text.utf8.count / 3 + 8)
        var pieces: [Piece] = []
        var word = 0
        try plain.split(Aligned(text.codePoints)) { section, found in
            if let found = found {
                add(WordToken(id: found.id, start: 0, end: section.count), section, 0, word, &result)
                word += 1
                return
            }
            try normalized.split(normalizer?(section) ?? section) { part, inside in
                if let inside = inside {
                    add(WordToken(id: inside.id, start: 0, end: part.count), part, 0, word, &result)
                    word += 1
                } else if part.count > 0 {
                    pieces.removeAll(keepingCapacity: true)
                    let whole = Piece(text: part, from: 0, to: part.count)
                    if let split = preTokenizer { split(whole, &pieces) } else { pieces.append(whole) }
                    for piece in pieces {
                        for token in try model.tokens(piece) { add(token, piece.text, piece.from, word, &result) }
                        word += 1
                    }
                }
            }
        }
        if wordRule.needsSpaces { result = wordRule.applied(text.codePoints, result) { added[$0]?.content } }
        if !dropped.isEmpty { try checkCharacters(text.codePoints, result) }
        return result
    }

    /// Adds a token of the word that begins at an index of a text.
    @inline(__always)
    private func add(_ token: WordToken, _ text: Aligned, _ base: Int, _ word: Int, _ result: inout [TextToken]) {
        let from = base + token.start
        let to = base + token.end
        var start = from < text.count ? Int(text.starts[from]) : 0
        var end = to > 0 ? Int(text.ends[to - 1]) : 0
        if postProcessor.trims {
            var leading = from
            while leading < to && isSpace(text.chars[leading]) { leading += 1 }
            var trailing = to
            while trailing > from && isSpace(text.chars[trailing - 1]) { trailing -= 1 }
            var spaces = leading - from
            // A single space may be the one that was added before the text, which is not a part of it.
            if spaces == 1 && postProcessor.keepsAddedSpace && (result.isEmpty || start == 0) { spaces = 0 }
            start = min(start + spaces, end)
            if end >= to - trailing { end = max(end - (to - trailing), start) }
        }
        result.append(TextToken(id: token.id, start: start, end: end, word: word))
    }

    /// U+0120 is the space among the characters of bytes.
    private func isSpace(_ char: UInt32) -> Bool { char == 0x120 || Letters.isSpace(char) }

    /// Checks that no unknown token contains characters that were removed from the vocabulary.
    private func checkCharacters(_ chars: [UInt32], _ tokens: [TextToken]) throws {
        var found: Set<UInt32> = []
        for token in tokens where token.id == unknown {
            let part = Aligned(Array(chars[token.start..<token.end]))
            found.formUnion((normalizer?(part) ?? part).chars.filter { dropped.contains($0) })
        }
        if found.isEmpty { return }
        let removed = found.sorted().map { "'" + String(codePoints: [$0]) + "'" }
        let more = removed.count > 10 ? " and \(removed.count - 10) more" : ""
        throw InputError(
            "A text contains characters that were removed from the vocabulary of this model. Expected: texts of the languages for "
                + "which it was pruned. Received: \(removed.prefix(10).joined(separator: ", "))\(more). Prune the original model with "
                + "texts that contain them, or use that model")
    }
}

/// A token of a text, and the index of its word.
struct TextToken {
    let id: Int
    let start: Int
    let end: Int
    let word: Int
}

/// The tokens of a text, or of a pair of texts.
public struct Encoding: Sendable, Equatable {
    /// Ids of the tokens.
    public private(set) var ids: [Int] = []
    /// Start of each token in its text, counted in scalars of Unicode as Python counts; 0 for special tokens. See
    /// `String.range(start:end:)`.
    public private(set) var starts: [Int] = []
    /// End of each token in its text.
    public private(set) var ends: [Int] = []
    /// Segment of each token, 1 for the second text if the model distinguishes the two.
    public private(set) var typeIds: [Int] = []
    /// 1 for special tokens, otherwise 0.
    public private(set) var specialTokensMask: [Int] = []
    /// Index of each token's word in its text; -1 for special tokens.
    public private(set) var wordIds: [Int] = []
    /// 0 and 1 for tokens of the first and the second text; -1 for special tokens.
    public private(set) var sequenceIds: [Int] = []
    /// Index of each token in the whole text, if these are only a part of its tokens.
    public private(set) var positions: [Int] = []

    /// Number of tokens.
    public var count: Int { ids.count }

    /// Start and end of each token, one after another: two numbers for each token.
    public var offsets: [Int] { (0..<count).flatMap { [starts[$0], ends[$0]] } }

    mutating func appendSpecial(_ id: Int, type: Int) {
        append(id, 0, 0, type, mask: 1, word: -1, sequence: -1, position: count)
    }

    mutating func append(_ tokens: [TextToken], sequence: Int, type: Int) {
        for token in tokens {
            append(token.id, token.start, token.end, type, mask: 0, word: token.word, sequence: sequence, position: count)
        }
    }

    private mutating func append(_ id: Int, _ start: Int, _ end: Int, _ type: Int, mask: Int, word: Int, sequence: Int, position: Int) {
        ids.append(id)
        starts.append(start)
        ends.append(end)
        typeIds.append(type)
        specialTokensMask.append(mask)
        wordIds.append(word)
        sequenceIds.append(sequence)
        positions.append(position)
    }

    /// Some of the tokens.
    func selected(_ indices: [Int]) -> Encoding {
        var result = Encoding()
        for index in indices {
            result.append(
                ids[index], starts[index], ends[index], typeIds[index], mask: specialTokensMask[index], word: wordIds[index],
                sequence: sequenceIds[index], position: positions[index])
        }
        return result
    }
}
