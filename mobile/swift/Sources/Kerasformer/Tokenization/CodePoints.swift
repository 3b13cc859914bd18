extension String {
    /// The scalars of Unicode, which are the characters of Python. Strings of Swift are compared and split by visible
    /// characters, so that `"é"` has two equal forms; a tokenizer distinguishes them.
    var codePoints: [UInt32] { unicodeScalars.map { $0.value } }

    init<Points: Sequence>(codePoints: Points) where Points.Element == UInt32 {
        var view = String.UnicodeScalarView()
        for point in codePoints { view.append(Unicode.Scalar(point) ?? "\u{FFFD}") }
        self.init(view)
    }

    /// The place of characters that are counted as offsets count them, by scalars of Unicode.
    public func range(start: Int, end: Int) -> Range<String.Index> {
        let from = unicodeScalars.index(startIndex, offsetBy: start)
        return from..<unicodeScalars.index(from, offsetBy: end - start)
    }

    /// The part of a text from a start to an end that count scalars of Unicode, as offsets do.
    public func span(start: Int, end: Int) -> String { String(unicodeScalars[range(start: start, end: end)]) }
}

extension Array where Element: Equatable {
    /// Whether others follow at an index.
    func has(_ part: [Element], at index: Int) -> Bool {
        if index + part.count > count { return false }
        for offset in 0..<part.count where self[index + offset] != part[offset] { return false }
        return true
    }

    /// A copy in which a part is replaced wherever it occurs.
    func replacing(_ part: [Element], by other: [Element]) -> [Element] {
        if part.isEmpty || part.count > count { return self }
        var result: [Element] = []
        var index = 0
        while index < count {
            if self[index] == part[0] && has(part, at: index) {
                result += other
                index += part.count
            } else {
                result.append(self[index])
                index += 1
            }
        }
        return result
    }
}

/// A hash table from sequences of code points to numbers, in the order in which they are added.
struct CodePointTable {
    private var slots: [Int32]
    private var chars: [UInt32] = []
    private var starts: [Int] = [0]

    init(expected: Int) {
        var capacity = 16
        while capacity < expected * 2 { capacity *= 2 }
        slots = [Int32](repeating: -1, count: capacity)
    }

    var count: Int { starts.count - 1 }

    /// The number of a sequence, which is added if it is not known.
    mutating func add(_ text: [UInt32], _ from: Int, _ to: Int) -> Int {
        if (count + 1) * 2 > slots.count { grow() }
        let slot = slotOf(text, from, to)
        if slots[slot] >= 0 { return Int(slots[slot]) }
        slots[slot] = Int32(count)
        chars += text[from..<to]
        starts.append(chars.count)
        return count - 1
    }

    /// The number of a sequence, or -1.
    func find(_ text: [UInt32], _ from: Int, _ to: Int) -> Int { Int(slots[slotOf(text, from, to)]) }

    subscript(entry: Int) -> ArraySlice<UInt32> { chars[starts[entry]..<starts[entry + 1]] }

    private func slotOf(_ text: [UInt32], _ from: Int, _ to: Int) -> Int {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for index in from..<to { hash = (hash ^ UInt64(text[index])) &* 0x9E37_79B9_7F4A_7C15 }
        var slot = Int(truncatingIfNeeded: hash >> 32) & (slots.count - 1)
        while slots[slot] >= 0 && !isEqual(Int(slots[slot]), text, from, to) { slot = (slot + 1) & (slots.count - 1) }
        return slot
    }

    private func isEqual(_ entry: Int, _ text: [UInt32], _ from: Int, _ to: Int) -> Bool {
        let start = starts[entry]
        if starts[entry + 1] - start != to - from { return false }
        for index in 0..<(to - from) where chars[start + index] != text[from + index] { return false }
        return true
    }

    private mutating func grow() {
        slots = [Int32](repeating: -1, count: slots.count * 2)
        for entry in 0..<count { slots[slotOf(chars, starts[entry], starts[entry + 1])] = Int32(entry) }
    }
}

/// A hash table from non-negative numbers to numbers.
struct NumberTable {
    private var keys: [Int]
    private var values: [Int]
    private var count = 0

    init(expected: Int) {
        var capacity = 16
        while capacity < expected * 2 { capacity *= 2 }
        keys = [Int](repeating: -1, count: capacity)
        values = [Int](repeating: -1, count: capacity)
    }

    /// The value of a key, or -1.
    subscript(key: Int) -> Int {
        get { values[slotOf(key)] }
        set {
            if (count + 1) * 2 > keys.count { grow() }
            let slot = slotOf(key)
            if keys[slot] != key { count += 1 }
            keys[slot] = key
            values[slot] = newValue
        }
    }

    private func slotOf(_ key: Int) -> Int {
        var slot = Int(truncatingIfNeeded: (UInt64(bitPattern: Int64(key)) &* 0x9E37_79B9_7F4A_7C15) >> 32) & (keys.count - 1)
        while keys[slot] != key && keys[slot] != -1 { slot = (slot + 1) & (keys.count - 1) }
        return slot
    }

    private mutating func grow() {
        var larger = NumberTable(expected: keys.count)
        for index in keys.indices where keys[index] >= 0 { larger[keys[index]] = values[index] }
        self = larger
    }
}

/// Finds the words of a list that begin at a position of a text.
struct Trie {
    private var children: NumberTable
    private var values: [Int32] = [-1]

    init(expected: Int) { children = NumberTable(expected: expected) }

    mutating func add(_ word: ArraySlice<UInt32>, _ value: Int) {
        var node = 0
        for char in word {
            let key = node << 21 | Int(char)
            var child = children[key]
            if child < 0 {
                child = values.count
                values.append(-1)
                children[key] = child
            }
            node = child
        }
        values[node] = Int32(value)
    }

    /// Calls `found` with the value and the end of each word that begins at `start`, the shortest first.
    @inline(__always)
    func search(_ text: [UInt32], _ start: Int, _ limit: Int, _ found: (_ value: Int, _ end: Int) -> Void) {
        var node = 0
        var index = start
        while index < limit {
            node = children[node << 21 | Int(text[index])]
            if node < 0 { return }
            index += 1
            if values[node] >= 0 { found(Int(values[node]), index) }
        }
    }
}
