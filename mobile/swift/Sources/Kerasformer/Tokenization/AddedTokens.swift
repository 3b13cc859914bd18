/// A token that is found in a text before any other step of the tokenizer, such as `[MASK]`.
struct AddedToken {
    let id: Int
    let content: [UInt32]
    let isSpecial: Bool
    let isNormalized: Bool
    let isSingleWord: Bool
    let takesSpacesBefore: Bool
    let takesSpacesAfter: Bool

    init(_ config: JSON) {
        id = config["id"].int ?? 0
        content = config.text("content").codePoints
        isSpecial = config.flag("special")
        isNormalized = config.flag("normalized", !isSpecial)
        isSingleWord = config.flag("single_word")
        takesSpacesBefore = config.flag("lstrip")
        takesSpacesAfter = config.flag("rstrip")
    }
}

/// Finds added tokens in texts.
struct AddedTokens {
    private let tokens: [AddedToken]
    private var trie: Trie

    /// `contents` are the tokens as they appear in a text.
    init(_ tokens: [AddedToken], contents: [[UInt32]]) {
        self.tokens = tokens
        trie = Trie(expected: contents.reduce(16) { $0 + $1.count })
        for (index, content) in contents.enumerated() where !content.isEmpty { trie.add(content[...], index) }
    }

    /// Calls `use` with the sections of a text, and the token that a section is, or `nil`. As in the Rust library, a token
    /// may be found again in the spaces that the one before it took.
    func split(_ text: Aligned, _ use: (_ section: Aligned, _ token: AddedToken?) throws -> Void) rethrows {
        if tokens.isEmpty { return try use(text, nil) }
        let chars = text.chars
        var done = 0
        var index = 0
        while index < chars.count {
            var found = -1
            var end = index
            trie.search(chars, index, chars.count) { value, stop in  // the longest of several tokens counts
                found = value
                end = stop
            }
            if found < 0 {
                index += 1
                continue
            }
            var start = index
            index = end
            let token = tokens[found]
            let inWord = (start > 0 && Letters.isWord(chars[start - 1])) || (end < chars.count && Letters.isWord(chars[end]))
            if token.isSingleWord && inWord { continue }
            if token.takesSpacesBefore {
                while start > 0 && Letters.isSpace(chars[start - 1]) { start -= 1 }
                start = max(start, done)
            }
            if token.takesSpacesAfter { while end < chars.count && Letters.isSpace(chars[end]) { end += 1 } }
            if start > done { try use(text.slice(done, start), nil) }
            try use(text.slice(start, end), token)
            done = end
        }
        if done < chars.count { try use(text.slice(done, chars.count), nil) }
    }
}
