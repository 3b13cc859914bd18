import Foundation

/// The normalization of SentencePiece: the table of replacements of a `Precompiled` normalizer.
///
/// The table is a double array (a trie in units of 32 bits) over UTF-8, followed by the replacements, each ended by a 0.
/// References: `spm_precompiled`, which the Rust library `tokenizers` uses; google/sentencepiece, `normalizer.cc`.
/// A tokenizer uses it in one thread at a time.
final class Charsmap {
    private let units: [UInt32]
    private let replacements: [UInt8]
    /// Replacements of single characters that were looked up; `nil` for characters that are unchanged.
    private var known: [UInt32: [UInt32]?] = [:]

    init(_ base64: String) throws {
        guard let data = Data(base64Encoded: base64, options: .ignoreUnknownCharacters), data.count >= 4 else { throw Charsmap.damaged }
        let bytes = [UInt8](data)
        func word(_ at: Int) -> UInt32 {
            UInt32(bytes[at]) | UInt32(bytes[at + 1]) << 8 | UInt32(bytes[at + 2]) << 16 | UInt32(bytes[at + 3]) << 24
        }
        let size = Int(word(0))
        if size > bytes.count - 4 || size < 4 { throw Charsmap.damaged }
        units = (0..<size / 4).map { word(4 + 4 * $0) }
        replacements = Array(bytes[(4 + size)...])
    }

    private static let damaged = TokenizerError("the precompiled_charsmap of tokenizer.json is damaged")

    func normalize(_ text: Aligned) -> Aligned {
        var chars: [UInt32] = []
        var changes: [Int] = []
        var changed = false
        // Replaces several characters. The last change has the difference of the numbers, as in the Rust library.
        func replace(_ count: Int, _ replacement: [UInt32]) {
            changed = true
            let more = replacement.count - count
            for (index, char) in replacement.enumerated() {
                chars.append(char)
                changes.append(index >= replacement.count - max(more, 0) ? 1 : 0)
            }
            if more < 0 && !changes.isEmpty { changes[changes.count - 1] += more }
        }
        var index = 0
        while index < text.count {
            let end = clusterEnd(text.chars, index)
            if end - index > 1, let whole = findWhole(text.chars[index..<end]) {
                replace(end - index, whole)
            } else {
                for char in text.chars[index..<end] {
                    if let replacement = single(char) {
                        replace(1, replacement)
                    } else {
                        chars.append(char)
                        changes.append(0)
                    }
                }
            }
            index = end
        }
        if !changed { return text }
        var result = AlignedBuilder(text, capacity: chars.count)
        for position in chars.indices { result.change(chars[position], changes[position]) }
        return result.build()
    }

    /// The end of the visible character that begins at an index.
    private func clusterEnd(_ chars: [UInt32], _ start: Int) -> Int {
        let char = chars[start]
        let next = start + 1 < chars.count ? chars[start + 1] : 0
        // Only a line end joins two characters below U+0300, apart from rare marks that precede their character.
        if next < 0x300 && char < 0x600 && !(char == 13 && next == 10) { return start + 1 }
        let part = String(codePoints: chars[start..<min(chars.count, start + 64)])
        var end = start + part[part.startIndex].unicodeScalars.count
        // Marks that are newer than the system, and what follows them; a control character joins nothing.
        let last = chars[end - 1]
        if last < 32 || (Letters.isControl(last) && !isJoiner(last)) { return end }
        while end < chars.count && (Letters.isLateMark(chars[end]) || (Letters.isLateMark(chars[end - 1]) && extends(chars[end]))) {
            end += 1
        }
        return end
    }

    private func extends(_ char: UInt32) -> Bool { isJoiner(char) || Letters.isAnyMark(char) }

    /// Whether a character is one of the zero-width joiners, which clusters contain, unlike other format characters.
    private func isJoiner(_ char: UInt32) -> Bool { char == 0x200C || char == 0x200D }

    private func findWhole(_ chars: ArraySlice<UInt32>) -> [UInt32]? {
        let bytes = Array(String(codePoints: chars).utf8)
        return bytes.count < 6 ? find(bytes) : nil
    }

    private func single(_ char: UInt32) -> [UInt32]? {
        if let result = known[char] { return result }
        let result = find(Array(String(codePoints: [char]).utf8))
        known[char] = .some(result)
        return result
    }

    /// The replacement for the first key of the table with which a text starts, if any.
    private func find(_ bytes: [UInt8]) -> [UInt32]? {
        var node = children(units[0])
        for byte in bytes {
            if byte == 0 { return nil }
            node ^= Int(byte)
            if node >= units.count { return nil }
            let unit = units[node]
            if unit & 0x8000_00FF != UInt32(byte) { return nil }  // values have the highest bit set
            node ^= children(unit)
            if unit >> 8 & 1 == 1 { return replacement(Int(units[node] & 0x7FFF_FFFF)) }
        }
        return nil
    }

    private func replacement(_ start: Int) -> [UInt32] {
        var end = start
        while replacements[end] != 0 { end += 1 }
        return String(decoding: replacements[start..<end], as: UTF8.self).codePoints
    }

    private func children(_ unit: UInt32) -> Int { Int((unit >> 10) << ((unit & 0x200) >> 6)) }
}
