/// Decodes tokens that arrive one after another, without incomplete characters. The pieces together are the text of all ids
/// decoded at once.
///
/// A token is not always a complete text: a token of bytes may have two of the three bytes of `€`, and a space may depend on
/// the following token. Recent tokens are therefore decoded together, and only text that no later token can change is returned.
public struct TextStream {
    private let tokenizer: Tokenizer
    private let skipSpecial: Bool
    private var ids: [Int] = []
    private var returned = 0

    /// Number of tokens that are kept for decoders that treat the first token of a text differently.
    private static let context = 4
    private static let maxTokens = 32

    init(_ tokenizer: Tokenizer, skipSpecial: Bool) {
        self.tokenizer = tokenizer
        self.skipSpecial = skipSpecial
    }

    /// Adds tokens, and returns the text that has become certain; often an empty one.
    public mutating func put(_ tokens: [Int]) -> String {
        for token in tokens where tokenizer.isKnown(token) && !(skipSpecial && tokenizer.isSpecial(token)) { ids.append(token) }
        let text = tokenizer.decoded(ids)
        let certain = min(certainLength(text), text.count)
        var piece: ArraySlice<UInt8> = []
        if certain > returned {
            piece = text[returned..<certain]
            returned = certain
        }
        if certain == text.count && ids.count > TextStream.maxTokens {
            // All text was returned, so that later text depends on the last tokens only.
            ids = Array(ids.suffix(TextStream.context))
            returned = tokenizer.decoded(ids).count
        }
        return String(decoding: piece, as: UTF8.self)
    }

    /// Returns the rest of the text, after which the stream can be used for another one.
    public mutating func end() -> String {
        let piece = tokenizer.decoded(ids).dropFirst(returned)
        ids = []
        returned = 0
        return String(decoding: piece, as: UTF8.self)
    }

    /// The length of the text that later tokens cannot change, in bytes of UTF-8.
    private func certainLength(_ text: [UInt8]) -> Int {
        if tokenizer.hasByteTokens, let last = ids.last, tokenizer.isByteToken(last) {
            // A run of bytes can only be decoded as a whole.
            var known = ids
            while let id = known.last, tokenizer.isByteToken(id) { known.removeLast() }
            return tokenizer.decoded(known).count
        }
        // U+FFFD at the end may be the first bytes of a character that later tokens complete.
        let certain = text.suffix(3).elementsEqual([0xEF, 0xBF, 0xBD]) ? text.count - 3 : text.count
        if !tokenizer.cleansSpaces { return certain }
        // The longest pattern of the clean-up has four characters; one more, as a replacement may complete a pattern.
        return text[max(certain - 5, 0)..<certain].firstIndex(of: 32) ?? certain
    }
}
