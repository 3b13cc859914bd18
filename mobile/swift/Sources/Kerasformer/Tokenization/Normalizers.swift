import Foundation

/// Changes a text before it is split; one rule of the field `normalizer`.
typealias Normalizer = (Aligned) -> Aligned

func normalizerOf(_ config: JSON) throws -> Normalizer? {
    guard let type = config["type"].string else { return nil }
    switch type {
    case "Sequence":
        let steps = try config.list("normalizers").compactMap { try normalizerOf($0) }
        return { text in steps.reduce(text) { $1($0) } }
    case "BertNormalizer": return bertNormalizer(config)
    case "NFC", "NFD", "NFKC", "NFKD":
        let form = UnicodeForm(type)
        return { form.normalize($0) }
    case "Lowercase": return lowercased
    case "StripAccents": return { text in text.filter { !Letters.isMark($0) } }
    case "Precompiled":
        let map = try Charsmap(config.text("precompiled_charsmap"))
        return { map.normalize($0) }
    case "Replace":
        let pattern = try Occurrences(config)
        let content = config.text("content").codePoints
        return { replaced($0, pattern, content) }
    case "Strip":
        let left = config.flag("strip_left")
        let right = config.flag("strip_right")
        return { stripped($0, left, right) }
    case "Prepend":
        let prefix = config.text("prepend").codePoints
        return { $0.prepended(prefix, 0, $0.count) }
    case "ByteLevel": return { byteLevel($0, 0, $0.count) }
    case "Nmt": return nmt
    default: throw TokenizerError("unsupported normalizer in tokenizer.json. Received: \(type)")
    }
}

/// The rules of BERT: control characters, Chinese characters as words, accents, upper case.
private func bertNormalizer(_ config: JSON) -> Normalizer {
    let lower = config.flag("lowercase", true)
    let strip = config["strip_accents"].bool ?? lower
    let clean = config.flag("clean_text", true)
    let chinese = config.flag("handle_chinese_chars", true)
    let form = UnicodeForm("NFD")
    return { given in
        var text = given
        if clean {
            text = text.filter { $0 != 0 && $0 != 0xFFFD && !Letters.isControl($0) }
            if text.contains({ $0 != 32 && Letters.isSpace($0) }) { text = text.with(text.chars.map { Letters.isSpace($0) ? 32 : $0 }) }
        }
        if chinese { text = separated(text) }
        if strip { text = form.normalize(text).filter { !Letters.isNonSpacingMark($0) } }
        return lower ? lowercased(text) : text
    }
}

/// Spaces around Chinese characters. The first one gets the place of the character, as in the Rust library.
private func separated(_ text: Aligned) -> Aligned {
    if !text.contains(Letters.isChinese) { return text }
    var result = AlignedBuilder(text, capacity: text.count * 2)
    for char in text.chars {
        if Letters.isChinese(char) {
            result.change(32, 0)
            result.change(char, 1)
            result.change(32, 1)
        } else {
            result.change(char, 0)
        }
    }
    return result.build()
}

private func lowercased(_ text: Aligned) -> Aligned {
    if !text.contains({ Letters.lower($0) != $0 || $0 == 0x130 }) { return text }
    var result = AlignedBuilder(text, capacity: text.count)
    for char in text.chars {
        result.change(Letters.lower(char), 0)
        if char == 0x130 { result.change(0x307, 1) }  // the only character with two in lower case
    }
    return result.build()
}

private func stripped(_ text: Aligned, _ left: Bool, _ right: Bool) -> Aligned {
    var start = 0
    var end = text.count
    while left && start < end && Letters.isSpace(text.chars[start]) { start += 1 }
    while right && start < end && Letters.isSpace(text.chars[end - 1]) { end -= 1 }
    return text.slice(start, end)
}

/// Replaces the matches of a pattern; all characters of a replacement get the place of the match's last one.
private func replaced(_ text: Aligned, _ pattern: Occurrences, _ content: [UInt32]) -> Aligned {
    let places = pattern.places(text, 0, text.count)
    if places.isEmpty { return text }
    var result = AlignedBuilder(text, capacity: text.count)
    var end = 0
    for place in places {
        for index in end..<place.lowerBound { result.copy(text.chars[index], index) }
        for char in content { result.copy(char, place.upperBound - 1) }
        end = place.upperBound
    }
    for index in end..<text.count { result.copy(text.chars[index], index) }
    return result.build()
}

/// The rules of SentencePiece's `nmt`: control characters, and other spaces as plain ones.
private func nmt(_ text: Aligned) -> Aligned {
    let spaces: Set<UInt32> = [
        9, 10, 12, 13, 0x1680, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD,
    ]
    let kept = text.filter { char in
        !((1...8).contains(char) || char == 11 || (14...31).contains(char) || char == 127 || char == 0x8F || char == 0x9F)
    }
    return kept.with(kept.chars.map { spaces.contains($0) ? 32 : $0 })
}

/// A normal form of Unicode. Foundation normalizes; the places are found again, since a form only orders, joins and splits.
/// A tokenizer uses it in one thread at a time.
private final class UnicodeForm {
    private let form: String
    /// The parts of characters that were seen.
    private var known: [UInt32: [UInt32]] = [:]
    /// The characters that pairs were joined to; 0 for none.
    private var pairs: [UInt64: UInt32] = [:]

    init(_ form: String) { self.form = form }

    func normalize(_ text: Aligned) -> Aligned {
        if !text.contains({ $0 >= 0xA0 }) { return text }
        if normalized(text.chars[...]) == text.chars { return text }
        var result = AlignedBuilder(text, capacity: text.count + 16)
        var start = 0
        for end in 1...text.count {
            if end < text.count && continues(text.chars[end]) && !Letters.isNew(text.chars[end - 1]) { continue }
            if end == start + 1 && (text.chars[start] < 0xA0 || Letters.isNew(text.chars[start])) { result.change(text.chars[start], 0) }
            else { addCluster(text.chars[start..<end], to: &result) }
            start = end
        }
        return result.build()
    }

    /// Whether a character may be joined to, or ordered before, characters before it: marks and parts of Korean syllables.
    private func continues(_ char: UInt32) -> Bool {
        if char < 0x300 || Letters.isNew(char) { return false }
        return Letters.isAnyMark(char) || (0x1100...0x11FF).contains(char) || (0x3130...0x318F).contains(char)
            || (0xD7B0...0xD7FF).contains(char) || (0xFF9E...0xFFDC).contains(char)
    }

    private func addCluster(_ chars: ArraySlice<UInt32>, to result: inout AlignedBuilder) {
        // The parts of each character; all but the first are new characters to the Rust library.
        var parts: [UInt32] = []
        var changes: [Int] = []
        for char in chars {
            for (index, part) in decomposed(char).enumerated() {
                parts.append(part)
                changes.append(index == 0 ? 0 : 1)
            }
        }
        var used = [Bool](repeating: false, count: parts.count)
        for char in normalized(chars) {
            var change = 1
            // A joined character replaces all of its parts. Equal parts keep their order.
            for part in decomposed(char) {
                guard let source = parts.indices.first(where: { !used[$0] && parts[$0] == part }) else { continue }
                used[source] = true
                change += changes[source] - 1
            }
            result.change(char, change)
        }
    }

    private func decomposed(_ char: UInt32) -> [UInt32] {
        if let parts = known[char] { return parts }
        let parts = decomposed(String(codePoints: [char]))
        known[char] = parts
        return parts
    }

    private func normalized(_ chars: ArraySlice<UInt32>) -> [UInt32] {
        let parts = decomposed(String(codePoints: chars))
        return form.hasSuffix("C") ? composed(parts) : parts
    }

    /// Decomposition by Foundation. The marks of a character are put in order (Unicode Standard, section 3.11, D109), since
    /// Foundation of Linux leaves those before a mark that it has split.
    private func decomposed(_ text: String) -> [UInt32] {
        let whole = form.hasPrefix("NFK") ? text.decomposedStringWithCompatibilityMapping : text.decomposedStringWithCanonicalMapping
        var parts = whole.codePoints
        for end in parts.indices.dropFirst() where parts[end] >= 0x300 {
            let combining = combiningClass(parts[end])
            var index = end
            while combining > 0, index > 0, combiningClass(parts[index - 1]) > combining {
                parts.swapAt(index, index - 1)
                index -= 1
            }
        }
        return parts
    }

    private func combiningClass(_ char: UInt32) -> UInt8 {
        char < 0x300 ? 0 : Unicode.Scalar(char)?.properties.canonicalCombiningClass.rawValue ?? 0
    }

    /// Canonical composition (Unicode Standard, section 3.11, D117). Foundation composes two characters; in a longer
    /// text, that of Linux leaves a Hangul syllable and its last consonant apart and cuts code points to 16 bits.
    private func composed(_ parts: [UInt32]) -> [UInt32] {
        var result: [UInt32] = []
        var starter: Int?
        var last: UInt8 = 0
        for part in parts {
            let combining = combiningClass(part)
            if part >= 0x300, let index = starter, index == result.count - 1 || last < combining,
                let joined = joined(result[index], part)
            {
                result[index] = joined
                continue
            }
            if combining == 0 { starter = result.count }
            last = combining
            result.append(part)
        }
        return result
    }

    /// The character that consists of two others, if there is one.
    private func joined(_ first: UInt32, _ second: UInt32) -> UInt32? {
        let pair = UInt64(first) << 32 | UInt64(second)
        if let known = pairs[pair] { return known == 0 ? nil : known }
        let parts = String(codePoints: [first, second]).decomposedStringWithCanonicalMapping
        let whole = parts.precomposedStringWithCanonicalMapping
        let isOne = whole.codePoints.count == 1 && whole.decomposedStringWithCanonicalMapping.codePoints == parts.codePoints
        let joined = isOne ? whole.codePoints[0] : 0
        pairs[pair] = joined
        return joined == 0 ? nil : joined
    }
}
