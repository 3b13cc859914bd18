/// The properties of characters as the Rust library `tokenizers` reads them.
enum Letters {
    /// Content of a class of a regular expression for white space, which `\s` of `NSRegularExpression` is not.
    static let spaces = "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

    /// Content of a class of a regular expression for words.
    static let words = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
        + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

    private static let letter: UInt16 = 1
    private static let number: UInt16 = 2
    private static let mark: UInt16 = 4
    private static let anyMark: UInt16 = 8
    private static let nonSpacing: UInt16 = 16
    private static let punctuation: UInt16 = 32
    private static let control: UInt16 = 64
    private static let word: UInt16 = 128
    private static let space: UInt16 = 256

    /// The properties of the characters below U+10000.
    private static let table: [UInt16] = (0..<0x10000).map { computed(UInt32($0)) }

    private static let lowerCase: [UInt32] = (0..<0x10000).map { computedLower(UInt32($0)) }

    private static func has(_ char: UInt32, _ property: UInt16) -> Bool {
        (char < 0x10000 ? table[Int(char)] : computed(char)) & property != 0
    }

    private static func computed(_ char: UInt32) -> UInt16 {
        guard let scalar = Unicode.Scalar(char) else { return control }
        var result: UInt16 = 0
        switch scalar.properties.generalCategory {
        case .uppercaseLetter, .lowercaseLetter, .titlecaseLetter, .modifierLetter, .otherLetter: result = letter | word
        case .decimalNumber: result = number | word
        case .letterNumber, .otherNumber: result = number
        case .nonspacingMark:
            result = mark | anyMark | word
            if !contains(unknownNonSpacing, char) { result |= nonSpacing }
        case .spacingMark, .enclosingMark: result = mark | anyMark | word
        case .connectorPunctuation: result = punctuation | word
        case .dashPunctuation, .openPunctuation, .closePunctuation, .initialPunctuation, .finalPunctuation, .otherPunctuation:
            result = punctuation
        case .control, .format, .privateUse, .surrogate: result = control
        default: break
        }
        if scalar.properties.isAlphabetic || char == 0x200C || char == 0x200D { result |= word }
        if contains(unknownMarks, char) { result &= ~mark }
        if contains(unknownPunctuation, char) { result &= ~punctuation }
        if contains(unknownControls, char) { result &= ~control }
        if char < 0x80 && (33...126).contains(char) && result & (letter | number) == 0 { result |= punctuation }
        if char == 0x1CF2 || char == 0x1CF3 { result |= mark }
        if char == 0x166D || char == 0x111C9 { result |= punctuation }
        if char == 9 || char == 10 || char == 13 { result &= ~control }
        if scalar.properties.isWhitespace { result |= space }
        return result
    }

    private static func computedLower(_ char: UInt32) -> UInt32 {
        guard let scalar = Unicode.Scalar(char) else { return char }
        return scalar.properties.lowercaseMapping.unicodeScalars.first?.value ?? char
    }

    static func isSpace(_ char: UInt32) -> Bool { has(char, space) }

    static func isMark(_ char: UInt32) -> Bool { has(char, mark) }

    /// Also marks that the Rust library does not know.
    static func isAnyMark(_ char: UInt32) -> Bool { has(char, anyMark) }

    static func isNonSpacingMark(_ char: UInt32) -> Bool { has(char, nonSpacing) }

    static func isLetter(_ char: UInt32) -> Bool { has(char, letter) }

    static func isNumber(_ char: UInt32) -> Bool { has(char, number) }

    static func isPunctuation(_ char: UInt32) -> Bool { has(char, punctuation) }

    /// Whether a character is part of a word: letters, marks, digits, connectors.
    static func isWord(_ char: UInt32) -> Bool { has(char, word) }

    /// Whether BERT's normalizer removes a character.
    static func isControl(_ char: UInt32) -> Bool { has(char, control) }

    /// The first character of the lower case; only U+0130 has another one.
    static func lower(_ char: UInt32) -> UInt32 { char < 0x10000 ? lowerCase[Int(char)] : computedLower(char) }

    /// Whether BERT's normalizer puts spaces around a character: the blocks of Chinese characters.
    static func isChinese(_ char: UInt32) -> Bool {
        if char < 0x3400 { return false }
        switch char {
        case 0x4E00...0x9FFF, 0x3400...0x4DBF, 0x20000...0x2A6DF, 0x2A700...0x2B73F, 0x2B740...0x2B81F, 0x2B920...0x2CEAF,
            0xF900...0xFAFF, 0x2F800...0x2FA1F:
            return true
        default: return false
        }
    }

    /// The bytes of a character in UTF-8.
    @inline(__always)
    static func utf8(_ char: UInt32, _ use: (UInt8) -> Void) {
        if char < 0x80 { return use(UInt8(char)) }
        if char < 0x800 {
            use(UInt8(0xC0 | char >> 6))
        } else {
            if char < 0x10000 {
                use(UInt8(0xE0 | char >> 12))
            } else {
                use(UInt8(0xF0 | char >> 18))
                use(UInt8(0x80 | (char >> 12 & 0x3F)))
            }
            use(UInt8(0x80 | (char >> 6 & 0x3F)))
        }
        use(UInt8(0x80 | (char & 0x3F)))
    }

    private static func contains(_ ranges: [ClosedRange<UInt32>], _ char: UInt32) -> Bool {
        if char < ranges[0].lowerBound { return false }
        var low = 0
        var high = ranges.count - 1
        while low < high {
            let middle = (low + high + 1) / 2
            if ranges[middle].lowerBound <= char { low = middle } else { high = middle - 1 }
        }
        return ranges[low].contains(char)
    }

    private static func ranges(_ text: String) -> [ClosedRange<UInt32>] {
        text.split(separator: " ").map { part in
            let ends = part.split(separator: "-").map { UInt32($0, radix: 16)! }
            return ends[0]...ends[ends.count - 1]
        }
    }

    // The tables of the Rust library are older than these marks, punctuation characters and control characters.
    private static let unknownMarks = ranges(
        "7FD 8D3 9FE AFA-AFF B55 C04 D00 D3B-D3C D81 EBA 1ABF-1AC0 1CF7 1DF6-1DF9 A82C A8FF 10D24-10D27 10EAB-10EAC "
            + "10F46-10F50 11145-11146 111C9 111CE-111CF 1133B 1145E 1182C-1183A 11930-11935 11937-11938 1193B-1193E 11940 "
            + "11942-11943 119D1-119D7 119DA-119E0 119E4 11A01-11A0A 11A33-11A39 11A3B-11A3E 11A47 11A51-11A5B 11A8A-11A99 "
            + "11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D8A-11D8E 11D90-11D91 11D93-11D97 11EF3-11EF6 16F4F "
            + "16F7F-16F87 16FE4 16FF0-16FF1 1E130-1E136 1E2EC-1E2EF")
    private static let unknownNonSpacing = ranges(
        "7FD 8D3-8E1 9FE AFA-AFF B55 C04 D00 D3B-D3C D81 EBA 1885-1886 1ABF-1AC0 1DF6-1DF9 1DFB A82C A8C5 A8FF A9BD "
            + "10D24-10D27 10EAB-10EAC 10F46-10F50 111C9 111CF 1123E 1133B 11438-1143F 11442-11444 11446 1145E 1182F-11837 "
            + "11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB 119E0 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 "
            + "11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 "
            + "11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 "
            + "16F4F 16FE4 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E130-1E136 1E2EC-1E2EF 1E944-1E94A")
    private static let unknownPunctuation = ranges(
        "9FD A76 C77 C84 2E43-2E4F 2E52 10EAD 10F55-10F59 1144B-1144F 1145A-1145B 1145D 11660-1166C 1183B 11944-11946 119E2 "
            + "11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11C41-11C45 11C70-11C71 11EF7-11EF8 11FFF 16E97-16E9A 16FE2 1E95E-1E95F")
    private static let unknownControls = ranges("8E2 110CD 13430-13438")
}
