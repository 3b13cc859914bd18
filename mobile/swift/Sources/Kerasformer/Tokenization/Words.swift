/// How the tokens of a text belong to words. Most pre-tokenizers find words; where one leaves a text whole (LLaMA 2, Gemma, ByT5)
/// or splits words into characters, white space separates words.
struct WordRule {
    private let splitsWords: Bool
    /// Whether words are not those of the pre-tokenizer.
    let needsSpaces: Bool

    init(_ normalizer: Normalizer?, _ preTokenizer: PreTokenizer?) {
        func parts(_ text: String) -> Int {
            guard let split = preTokenizer else { return 1 }
            let whole = Aligned(text.codePoints)
            let normal = normalizer?(whole) ?? whole
            var pieces: [Piece] = []
            split(Piece(text: normal, from: 0, to: normal.count), &pieces)
            return pieces.count
        }
        splitsWords = parts("aa") > 1
        needsSpaces = splitsWords || parts("a a") == 1
    }

    /// The tokens with the words of this rule.
    func applied(_ chars: [UInt32], _ tokens: [TextToken], _ addedContent: (Int) -> [UInt32]?) -> [TextToken] {
        let spaced = spacedWords(chars)
        var lastWord = -2
        var lastSpaced = -2
        var number = -1
        return tokens.map { token in
            var first = token.start
            while first < token.end && Letters.isSpace(chars[first]) { first += 1 }
            if first == token.end { first = token.start }
            var word = token.word
            if splitsWords {
                let part = String(codePoints: Array(chars[token.start..<token.end]))
                let isAdded = addedContent(token.id).map { part.contains(String(codePoints: $0)) } ?? false
                if !isAdded { word = -1 }
            }
            if word != lastWord || spaced[first] != lastSpaced { number += 1 }
            lastWord = word
            lastSpaced = spaced[first]
            return TextToken(id: token.id, start: token.start, end: token.end, word: number)
        }
    }
}

/// The index of the word of each character, and of the end of the text. A word includes one space before it; other white space
/// between words is a word of its own, as for GPT-2.
private func spacedWords(_ chars: [UInt32]) -> [Int] {
    func separates(_ index: Int) -> Bool {
        let beforeWord = chars[index] == 32 && index + 1 < chars.count && !Letters.isSpace(chars[index + 1])
        return Letters.isSpace(chars[index]) && !beforeWord
    }
    var words: [Int] = []
    words.reserveCapacity(chars.count + 1)
    var number = -1
    while words.count < chars.count {
        number += 1
        let isSpace = separates(words.count)
        repeat {
            words.append(number)
        } while words.count < chars.count && (isSpace ? separates(words.count) : !Letters.isSpace(chars[words.count]))
    }
    words.append(max(number, 0))
    return words
}
