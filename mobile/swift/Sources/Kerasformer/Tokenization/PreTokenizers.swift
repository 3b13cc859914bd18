import Foundation

/// A part of a text, which a model splits into tokens by itself.
struct Piece {
    let text: Aligned
    let from: Int
    let to: Int
}

/// Splits a text into words; one rule of the field `pre_tokenizer`. It adds the words to a list.
typealias PreTokenizer = (Piece, inout [Piece]) -> Void

func preTokenizerOf(_ config: JSON) throws -> PreTokenizer? {
    guard let type = config["type"].string else { return nil }
    switch type {
    case "Sequence":
        let steps = try config.list("pretokenizers").compactMap { try preTokenizerOf($0) }
        return { piece, out in
            var pieces = [piece]
            for step in steps {
                var next: [Piece] = []
                next.reserveCapacity(pieces.count + 16)
                for each in pieces { step(each, &next) }
                pieces = next
            }
            out += pieces
        }
    case "BertPreTokenizer": return splitAsBert
    case "WhitespaceSplit": return { splitAtEach($0, .removed, &$1, Letters.isSpace) }
    case "CharDelimiterSplit":
        let delimiter = config.text("delimiter").codePoints.first ?? 32
        return { piece, out in splitAtEach(piece, .removed, &out) { $0 == delimiter } }
    case "Punctuation":
        let behavior = try SplitBehavior.of(config, "Isolated")
        return { splitAtEach($0, behavior, &$1, Letters.isPunctuation) }
    case "Digits":
        let behavior: SplitBehavior = config.flag("individual_digits") ? .isolated : .contiguous
        return { splitAtEach($0, behavior, &$1, Letters.isNumber) }
    case "Whitespace": return { piece, out in splitByKind(piece, &out) { Letters.isSpace($0) ? 0 : Letters.isWord($0) ? 1 : 2 } }
    case "Split":
        let pattern = try Occurrences(config)
        let behavior = try SplitBehavior.of(config, "Removed")
        let invert = config.flag("invert")
        return { piece, out in
            var parts = SplitParts(piece, behavior)
            var end = piece.from
            for place in pattern.places(piece.text, piece.from, piece.to) {
                parts.add(end, place.lowerBound, invert)
                parts.add(place.lowerBound, place.upperBound, !invert)
                end = place.upperBound
            }
            parts.add(end, piece.to, invert)
            out += parts.finished()
        }
    case "ByteLevel":
        let addsSpace = config.flag("add_prefix_space", true)
        let usesPattern = config.flag("use_regex", true)
        return { splitIntoBytes($0, &$1, addsSpace: addsSpace, usesPattern: usesPattern) }
    case "Metaspace":
        let rule = Metaspace(config)
        return { rule.split($0, &$1) }
    default: throw TokenizerError("unsupported pre_tokenizer in tokenizer.json. Received: \(type)")
    }
}

/// What becomes of the parts of a text that separate words.
enum SplitBehavior: String {
    case removed, isolated, contiguous
    case mergedWithPrevious = "mergedwithprevious"
    case mergedWithNext = "mergedwithnext"

    static func of(_ config: JSON, _ usual: String) throws -> SplitBehavior {
        let name = config["behavior"].string ?? usual
        if let behavior = SplitBehavior(rawValue: name.lowercased()) { return behavior }
        throw TokenizerError("unsupported behavior of a pre_tokenizer in tokenizer.json. Received: \(name)")
    }
}

/// Joins parts of a text according to a behavior.
private struct SplitParts {
    private let piece: Piece
    private let behavior: SplitBehavior
    private var pieces: [Piece] = []
    private var start = -1
    private var end = -1
    private var separated = false

    init(_ piece: Piece, _ behavior: SplitBehavior) {
        self.piece = piece
        self.behavior = behavior
    }

    mutating func add(_ from: Int, _ to: Int, _ separates: Bool) {
        if from == to || (separates && behavior == .removed) { return }
        var joins = false
        switch behavior {
        case .contiguous: joins = separates == separated
        case .mergedWithPrevious: joins = separates && !separated
        case .mergedWithNext: joins = !separates && separated
        case .removed, .isolated: joins = false
        }
        if start < 0 || !joins {
            _ = finished()
            start = from
        }
        end = to
        separated = separates
    }

    mutating func finished() -> [Piece] {
        if start >= 0 { pieces.append(Piece(text: piece.text, from: start, to: end)) }
        start = -1
        return pieces
    }
}

/// Splits at each character that fulfils a condition.
private func splitAtEach(_ piece: Piece, _ behavior: SplitBehavior, _ out: inout [Piece], _ separates: (UInt32) -> Bool) {
    var parts = SplitParts(piece, behavior)
    var start = piece.from
    for index in piece.from..<piece.to where separates(piece.text.chars[index]) {
        parts.add(start, index, false)
        parts.add(index, index + 1, true)
        start = index + 1
    }
    parts.add(start, piece.to, false)
    out += parts.finished()
}

/// Words without spaces, and each punctuation character alone.
private func splitAsBert(_ piece: Piece, _ out: inout [Piece]) {
    var start = piece.from
    for index in piece.from..<piece.to {
        let char = piece.text.chars[index]
        let isSpace = Letters.isSpace(char)
        if !isSpace && !Letters.isPunctuation(char) { continue }
        if start < index { out.append(Piece(text: piece.text, from: start, to: index)) }
        if !isSpace { out.append(Piece(text: piece.text, from: index, to: index + 1)) }
        start = index + 1
    }
    if start < piece.to { out.append(Piece(text: piece.text, from: start, to: piece.to)) }
}

/// Splits where the kind of characters changes; characters of kind 0 are left out.
private func splitByKind(_ piece: Piece, _ out: inout [Piece], _ kindOf: (UInt32) -> Int) {
    var start = piece.from
    while start < piece.to {
        let kind = kindOf(piece.text.chars[start])
        var end = start + 1
        while end < piece.to && kindOf(piece.text.chars[end]) == kind { end += 1 }
        if kind != 0 { out.append(Piece(text: piece.text, from: start, to: end)) }
        start = end
    }
}

/// The places of a string or of the matches of a regular expression in a text.
struct Occurrences {
    private let literal: [UInt32]
    private let pattern: NSRegularExpression?

    /// `config` has the field `pattern`.
    init(_ config: JSON) throws {
        let given = config["pattern"]
        literal = (given["String"].string ?? given.string ?? "").codePoints
        guard let regex = given["Regex"].string else {
            pattern = nil
            return
        }
        do {
            pattern = try NSRegularExpression(pattern: Occurrences.translated(regex))
        } catch {
            throw TokenizerError("unsupported regular expression in tokenizer.json. Received: \(regex)")
        }
    }

    func places(_ text: Aligned, _ from: Int, _ to: Int) -> [Range<Int>] {
        var result: [Range<Int>] = []
        guard let pattern = pattern else {
            var index = from
            while !literal.isEmpty && index <= to - literal.count {
                if text.chars.has(literal, at: index) {
                    result.append(index..<index + literal.count)
                    index += literal.count
                } else {
                    index += 1
                }
            }
            return result
        }
        let part = text.chars[from..<to]
        let string = String(codePoints: part)
        // The matches ascend and count units of UTF-16: two for characters above U+FFFF.
        var unit = 0
        var position = from
        func advance(_ target: Int) -> Int {
            while unit < target {
                unit += text.chars[position] > 0xFFFF ? 2 : 1
                position += 1
            }
            return position
        }
        for match in pattern.matches(in: string, range: NSRange(location: 0, length: string.utf16.count)) where match.range.length > 0 {
            let start = advance(match.range.location)
            result.append(start..<advance(match.range.location + match.range.length))
        }
        return result
    }

    /// Writes classes of characters out that `NSRegularExpression` understands otherwise.
    private static func translated(_ regex: String) -> String {
        let classes: [Unicode.Scalar: String] = ["s": Letters.spaces, "w": Letters.words, "d": "\\p{Nd}"]
        var out = String.UnicodeScalarView()
        var depth = 0
        var isEscaped = false
        for char in regex.unicodeScalars {
            if !isEscaped && char == "\\" {
                isEscaped = true
            } else if !isEscaped {
                if char == "[" { depth += 1 }
                if char == "]" && depth > 0 { depth -= 1 }
                out.append(char)
            } else {
                isEscaped = false
                if let content = classes[char] {
                    out.append(contentsOf: (depth > 0 ? content : "[" + content + "]").unicodeScalars)
                } else if let content = classes[Unicode.Scalar(Letters.lower(char.value)) ?? char] {
                    out.append(contentsOf: ("[^" + content + "]").unicodeScalars)
                } else {
                    out.append("\\")
                    out.append(char)
                }
            }
        }
        return String(out)
    }
}

/// Words with their spaces, whose bytes are characters, as in GPT-2.
private func splitIntoBytes(_ piece: Piece, _ out: inout [Piece], addsSpace: Bool, usesPattern: Bool) {
    var text = piece.text
    var from = piece.from
    var to = piece.to
    if addsSpace && from < to && text.chars[from] != 32 {
        text = text.prepended([32], from, to)
        from = 0
        to = text.count
    }
    while from < to {
        let end = usesPattern ? wordEnd(text.chars, from, to) : to
        let word = byteLevel(text, from, end)
        out.append(Piece(text: word, from: 0, to: word.count))
        from = end
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
private func wordEnd(_ chars: [UInt32], _ from: Int, _ to: Int) -> Int {
    func letter(_ index: Int) -> Character { index < to && chars[index] < 0x80 ? Character(Unicode.Scalar(UInt8(chars[index]))) : "\0" }
    func kindOf(_ char: UInt32) -> Int { Letters.isSpace(char) ? 0 : Letters.isLetter(char) ? 1 : Letters.isNumber(char) ? 2 : 3 }
    if chars[from] == 0x27 {
        switch (letter(from + 1), letter(from + 2)) {
        case ("s", _), ("t", _), ("m", _), ("d", _): return from + 2
        case ("r", "e"), ("v", "e"), ("l", "l"): return from + 3
        default: break
        }
    }
    let first = chars[from] == 32 && from + 1 < to && !Letters.isSpace(chars[from + 1]) ? from + 1 : from
    let kind = kindOf(chars[first])
    var end = first + 1
    while end < to && kindOf(chars[end]) == kind { end += 1 }
    // The last of several spaces belongs to the next word.
    return kind == 0 && end < to && end - first > 1 ? end - 1 : end
}

/// Each byte of a part of a text as a character.
func byteLevel(_ text: Aligned, _ from: Int, _ to: Int) -> Aligned {
    let table = ByteCharacters.chars
    var result = AlignedBuilder(text, capacity: to - from + 8)
    for index in from..<to { Letters.utf8(text.chars[index]) { result.copy(table[Int($0)], index) } }
    return result.build()
}

/// The characters that stand for bytes in vocabularies of bytes.
enum ByteCharacters {
    /// A character for each byte.
    static let chars: [UInt32] = {
        var others: UInt32 = 0x100
        return (0..<256).map { byte -> UInt32 in
            if (0x21...0x7E).contains(byte) || ((0xA1...0xFF).contains(byte) && byte != 0xAD) { return UInt32(byte) }
            others += 1
            return others - 1
        }
    }()

    private static let bytes: [UInt32: UInt8] = Dictionary(uniqueKeysWithValues: chars.enumerated().map { ($0.element, UInt8($0.offset)) })

    /// The byte of a character, if it stands for one.
    static func byte(_ char: UInt32) -> UInt8? { bytes[char] }
}

/// Words that start with a character for the space before them, as in SentencePiece.
private struct Metaspace {
    private let replacement: [UInt32]
    private let scheme: String
    private let splits: Bool

    init(_ config: JSON) {
        replacement = (config["replacement"].string ?? "▁").codePoints
        scheme = config["prepend_scheme"].string ?? (config.flag("add_prefix_space", true) ? "always" : "never")
        splits = config.flag("split", true)
    }

    func split(_ piece: Piece, _ out: inout [Piece]) {
        if piece.from == piece.to { return }
        let mark = replacement[0]
        var text = piece.text.slice(piece.from, piece.to)
        if text.contains({ $0 == 32 }) { text = text.with(text.chars.map { $0 == 32 ? mark : $0 }) }
        let prepends = scheme == "always" || (scheme == "first" && text.starts[0] == 0)
        if prepends && text.chars[0] != mark { text = text.prepended(replacement, 0, text.count) }
        var start = 0
        for end in 1..<max(text.count, 1) where splits && text.chars[end] == mark {
            out.append(Piece(text: text, from: start, to: end))
            start = end
        }
        out.append(Piece(text: text, from: start, to: text.count))
    }
}
