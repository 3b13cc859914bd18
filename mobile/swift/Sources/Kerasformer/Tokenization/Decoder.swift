import Foundation

/// Converts tokens to parts of a text; one rule of the field `decoder`. Tokens and parts are in UTF-8, since strings of Swift
/// are searched by visible characters.
typealias Decoder = ([[UInt8]]) -> [[UInt8]]

func decoderOf(_ config: JSON) throws -> Decoder? {
    guard let type = config["type"].string else { return nil }
    func bytes(_ name: String, _ usual: String) -> [UInt8] { Array((config[name].string ?? usual).utf8) }
    switch type {
    case "Sequence":
        let steps = try config.list("decoders").compactMap { try decoderOf($0) }
        return { tokens in steps.reduce(tokens) { $1($0) } }
    case "ByteLevel": return { tokens in [Array(validText(tokens.flatMap { bytesOf($0) }).utf8)] }
    case "ByteFallback": return joinedBytes
    case "Fuse": return { tokens in [Array(tokens.joined())] }
    case "WordPiece":
        let prefix = bytes("prefix", "##")
        let cleans = config.flag("cleanup", true)
        return { tokens in
            tokens.enumerated().map { index, token in
                var part = token
                if index > 0 { part = token.has(prefix, at: 0) ? Array(token[prefix.count...]) : [32] + token }
                return cleans ? cleaned(part, wordPieceSpaces) : part
            }
        }
    case "Metaspace":
        let mark = bytes("replacement", "▁")
        let scheme = config["prepend_scheme"].string ?? (config.flag("add_prefix_space", true) ? "always" : "never")
        return { tokens in tokens.enumerated().map { $1.replacing(mark, by: $0 == 0 && scheme != "never" ? [] : [32]) } }
    case "BPEDecoder":
        let suffix = bytes("suffix", "</w>")
        return { tokens in tokens.enumerated().map { $1.replacing(suffix, by: $0 == tokens.count - 1 ? [] : [32]) } }
    case "Replace":
        let content = bytes("content", "")
        let pattern = Array(config["pattern"].text("String").utf8)
        guard config["pattern"]["Regex"].string == nil else {
            let regex = try Occurrences(config)
            return { tokens in tokens.map { replaced($0, regex, content) } }
        }
        return { tokens in tokens.map { $0.replacing(pattern, by: content) } }
    case "Strip":
        let char = bytes("content", "")
        let first = config["start"].int ?? 0
        let last = config["stop"].int ?? 0
        return { tokens in tokens.map { stripped($0, char, first, last) } }
    default: throw TokenizerError("unsupported decoder in tokenizer.json. Received: \(type)")
    }
}

private func replaced(_ token: [UInt8], _ regex: Occurrences, _ content: [UInt8]) -> [UInt8] {
    let text = Aligned(String(decoding: token, as: UTF8.self).codePoints)
    var result: [UInt8] = []
    var end = 0
    for place in regex.places(text, 0, text.count) {
        result += Array(String(codePoints: text.chars[end..<place.lowerBound]).utf8) + content
        end = place.upperBound
    }
    return result + Array(String(codePoints: text.chars[end...]).utf8)
}

private func stripped(_ token: [UInt8], _ char: [UInt8], _ first: Int, _ last: Int) -> [UInt8] {
    var part = token[...]
    for _ in 0..<first where part.starts(with: char) { part = part.dropFirst(char.count) }
    for _ in 0..<last where part.suffix(char.count).elementsEqual(char) { part = part.dropLast(char.count) }
    return Array(part)
}

private func pairs(_ texts: [(String, String)]) -> [(pattern: [UInt8], replacement: [UInt8])] {
    texts.map { (pattern: Array($0.0.utf8), replacement: Array($0.1.utf8)) }
}

private let wordPieceSpaces = pairs([
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" do not", " don't"),
    (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
])

/// The patterns whose space is removed after decoding if `clean_up_tokenization_spaces` is set.
let cleanedSpaces = pairs([
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
    (" 've", "'ve"), (" 're", "'re"),
])

func cleaned(_ text: [UInt8], _ patterns: [(pattern: [UInt8], replacement: [UInt8])]) -> [UInt8] {
    patterns.reduce(text) { $0.replacing($1.pattern, by: $1.replacement) }
}

/// The byte of a token such as `<0xE2>`.
func byteOf(_ token: [UInt8]) -> UInt8? {
    if token.count != 6 || !token.has([0x3C, 0x30, 0x78], at: 0) || token[5] != 0x3E { return nil }
    let digits = token[3..<5]
    if digits.contains(0x2B) || digits.contains(0x2D) { return nil }  // signs, which numbers may have
    return UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
}

/// The bytes that the characters of a token stand for; a token with another character is read as it is.
func bytesOf(_ token: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    for scalar in String(decoding: token, as: UTF8.self).unicodeScalars {
        guard let byte = ByteCharacters.byte(scalar.value) else { return token }
        result.append(byte)
    }
    return result
}

/// Joins tokens such as `<0xE2>` to characters; each byte of a run that is not valid becomes U+FFFD.
private func joinedBytes(_ tokens: [[UInt8]]) -> [[UInt8]] {
    var result: [[UInt8]] = []
    var run: [UInt8] = []
    func flush() {
        if run.isEmpty { return }
        if isValid(run) {
            result.append(run)
        } else {
            result += [[UInt8]](repeating: [0xEF, 0xBF, 0xBD], count: run.count)
        }
        run.removeAll()
    }
    for token in tokens {
        if let byte = byteOf(token) {
            run.append(byte)
        } else {
            flush()
            result.append(token)
        }
    }
    flush()
    return result
}

/// Decodes UTF-8. Each longest part that begins a character but does not complete it becomes `invalid`, as in Rust.
func validText(_ bytes: [UInt8], invalid: String = "\u{FFFD}") -> String {
    var result = ""
    var index = 0
    while index < bytes.count {
        let length = lengthOf(bytes[index])
        var read = 1
        while read < length && index + read < bytes.count && continues(bytes[index], read, bytes[index + read]) { read += 1 }
        if read == length { result += String(decoding: bytes[index..<index + read], as: UTF8.self) } else { result += invalid }
        index += read
    }
    return result
}

private func isValid(_ bytes: [UInt8]) -> Bool { Array(validText(bytes, invalid: "").utf8).count == bytes.count }

/// The number of bytes of a character that begins with a byte; 0 if none does.
private func lengthOf(_ first: UInt8) -> Int {
    switch first {
    case 0x00...0x7F: return 1
    case 0xC2...0xDF: return 2
    case 0xE0...0xEF: return 3
    case 0xF0...0xF4: return 4
    default: return 0
    }
}

/// Whether a byte may follow others of a character; the second byte excludes overlong forms and surrogates.
private func continues(_ first: UInt8, _ position: Int, _ byte: UInt8) -> Bool {
    let low: UInt8 = position > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80
    let high: UInt8 = position > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF
    return byte >= low && byte <= high
}
