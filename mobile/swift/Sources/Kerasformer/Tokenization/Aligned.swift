/// A text in which each character knows its place in the original text, which every step of a tokenizer preserves. As in
/// Python, a character is a scalar of Unicode.
final class Aligned {
    let chars: [UInt32]
    /// Start of each character's part of the original text.
    let starts: [Int32]
    /// Its end.
    let ends: [Int32]

    init(chars: [UInt32], starts: [Int32], ends: [Int32]) {
        self.chars = chars
        self.starts = starts
        self.ends = ends
    }

    convenience init(_ text: [UInt32]) {
        let count = Int32(text.count)
        self.init(chars: text, starts: [Int32](0..<count), ends: [Int32](1..<(count + 1)))
    }

    var count: Int { chars.count }

    func slice(_ from: Int, _ to: Int) -> Aligned {
        if from == 0 && to == count { return self }
        return Aligned(chars: Array(chars[from..<to]), starts: Array(starts[from..<to]), ends: Array(ends[from..<to]))
    }

    /// The same text with other characters.
    func with(_ chars: [UInt32]) -> Aligned { Aligned(chars: chars, starts: starts, ends: ends) }

    /// Puts a text before a part of this one, with the place of its first character; an empty part remains empty.
    func prepended(_ prefix: [UInt32], _ from: Int, _ to: Int) -> Aligned {
        if from == to { return slice(from, to) }
        var result = AlignedBuilder(self, capacity: to - from + prefix.count)
        for char in prefix { result.copy(char, from) }
        for index in from..<to { result.copy(chars[index], index) }
        return result.build()
    }

    func contains(_ condition: (UInt32) -> Bool) -> Bool {
        for char in chars where condition(char) { return true }
        return false
    }

    /// The text without the characters that do not fulfil a condition.
    func filter(_ keep: (UInt32) -> Bool) -> Aligned {
        if !contains({ !keep($0) }) { return self }
        var result = AlignedBuilder(self, capacity: count)
        for index in 0..<count where keep(chars[index]) { result.copy(chars[index], index) }
        return result.build()
    }
}

/// Builds a text from the characters of another one.
struct AlignedBuilder {
    private let source: Aligned
    private var chars: [UInt32] = []
    private var starts: [Int32] = []
    private var ends: [Int32] = []
    /// Index of the next character of the source, for `change`.
    private var next = 0

    init(_ source: Aligned, capacity: Int) {
        self.source = source
        chars.reserveCapacity(capacity)
        starts.reserveCapacity(capacity)
        ends.reserveCapacity(capacity)
    }

    /// Adds a character with the place of one of the source.
    mutating func copy(_ char: UInt32, _ index: Int) {
        chars.append(char)
        starts.append(index < 0 ? 0 : source.starts[index])
        ends.append(index < 0 ? 0 : source.ends[index])
    }

    /// Adds a character that replaces the next one of the source (`change` is 0), that is new (above 0), or that replaces the
    /// next one and as many others as `-change`. New characters get the place of the one before them.
    mutating func change(_ char: UInt32, _ change: Int) {
        if change > 0 { return copy(char, next - 1) }
        copy(char, min(next, source.count - 1))
        next += 1 - change
    }

    func build() -> Aligned { Aligned(chars: chars, starts: starts, ends: ends) }
}
