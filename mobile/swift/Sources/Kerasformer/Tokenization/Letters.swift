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
    private static let new: UInt16 = 512

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
            result = mark | anyMark | nonSpacing | word
        case .spacingMark, .enclosingMark: result = mark | anyMark | word
        case .connectorPunctuation: result = punctuation | word
        case .dashPunctuation, .openPunctuation, .closePunctuation, .initialPunctuation, .finalPunctuation, .otherPunctuation:
            result = punctuation
        case .control, .format, .privateUse, .surrogate: result = control
        default: break
        }
        if scalar.properties.isAlphabetic || char == 0x200C || char == 0x200D { result |= word }
        // The tables of the Rust library are of Unicode 8, those of accents of Unicode 9.
        let age = scalar.properties.age?.major ?? 0
        if age > 9 { result |= new }
        if age > 8 { result &= ~(nonSpacing | punctuation | control) }
        if age > 9 { result &= ~mark }
        if char < 0x80 && (33...126).contains(char) && result & (letter | number) == 0 { result |= punctuation }
        // Characters whose category has changed since.
        if [0x1885, 0x1886, 0xA9BD, 0x111C9].contains(char) { result &= ~nonSpacing }
        if char == 0x1734 { result |= nonSpacing }
        if char == 0x1CF2 || char == 0x1CF3 { result |= mark }
        if char == 0x111C9 { result &= ~mark }
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

    /// Whether a character is newer than the normal forms of the Rust library, which leave it where it is.
    static func isNew(_ char: UInt32) -> Bool { char >= 0x300 && has(char, new) }

    /// Whether a character is a mark that the Rust library knows, but not this version of the system.
    static func isLateMark(_ char: UInt32) -> Bool {
        char >= 0x897 && Unicode.Scalar(char)?.properties.age == nil && lateMarks.contains { $0.contains(char) }
    }

    /// Marks since Unicode 15.
    private static let lateMarks: [ClosedRange<UInt32>] = [
        0x897...0x897, 0xCF3...0xCF3, 0xECE...0xECE, 0x1ACF...0x1ADD, 0x1AE0...0x1AEB, 0x10D69...0x10D6D, 0x10EFA...0x10EFF,
        0x11241...0x11241, 0x113B8...0x113C0, 0x113C2...0x113C2, 0x113C5...0x113C5, 0x113C7...0x113CA, 0x113CC...0x113D0,
        0x113D2...0x113D2, 0x113E1...0x113E2, 0x11B60...0x11B67, 0x11F00...0x11F01, 0x11F03...0x11F03, 0x11F34...0x11F3A,
        0x11F3E...0x11F42, 0x11F5A...0x11F5A, 0x13440...0x13440, 0x13447...0x13455, 0x1611E...0x1612F, 0x1E08F...0x1E08F,
        0x1E4EC...0x1E4EF, 0x1E5EE...0x1E5EF, 0x1E6E3...0x1E6E3, 0x1E6E6...0x1E6E6, 0x1E6EE...0x1E6EF, 0x1E6F5...0x1E6F5,
    ]

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
}
