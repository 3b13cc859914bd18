/// The texts that are similar to another one, the most similar first, as `difflib.get_close_matches` of Python finds them.
func closest(_ text: String, _ known: [String], count: Int) -> [String] {
    var found: [(ratio: Double, text: String)] = []
    let wanted = text.codePoints
    for each in known {
        let other = each.codePoints
        let ratio = 2 * Double(common(other[...], wanted[...])) / Double(max(other.count + wanted.count, 1))
        if ratio >= 0.5 { found.append((ratio: ratio, text: each)) }
    }
    found.sort { $0.ratio > $1.ratio || ($0.ratio == $1.ratio && $0.text > $1.text) }
    return found.prefix(count).map { $0.text }
}

/// The number of characters in the longest common block, and in those before and after it.
private func common(_ a: ArraySlice<UInt32>, _ b: ArraySlice<UInt32>) -> Int {
    var longest = 0
    var start = a.startIndex
    var from = b.startIndex
    for i in a.indices {
        for j in b.indices {
            var length = 0
            while i + length < a.endIndex, j + length < b.endIndex, a[i + length] == b[j + length] { length += 1 }
            if length > longest {
                longest = length
                start = i
                from = j
            }
        }
    }
    if longest == 0 { return 0 }
    return longest + common(a[..<start], b[..<from]) + common(a[(start + longest)...], b[(from + longest)...])
}

/// A value as Python's `repr` writes it, for the errors.
func repr(_ value: JSON) -> String {
    switch value {
    case .null: return "None"
    case .bool(let flag): return flag ? "True" : "False"
    case .int(let number): return String(number)
    case .double(let number): return number.isFinite ? pythonNumber(number) : number.isNaN ? "nan" : number > 0 ? "inf" : "-inf"
    case .string(let text): return repr(text)
    case .array(let items): return "[" + items.map { repr($0) }.joined(separator: ", ") + "]"
    case .object(let fields): return "{" + fields.map { repr($0.name) + ": " + repr($0.value) }.joined(separator: ", ") + "}"
    }
}

func repr(_ text: String) -> String {
    let quote = text.contains("'") && !text.contains("\"") ? "\"" : "'"
    var result = quote
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\\": result += "\\\\"
        case "\n": result += "\\n"
        case "\t": result += "\\t"
        case "\r": result += "\\r"
        case "'": result += quote == "'" ? "\\'" : "'"
        default: result.unicodeScalars.append(scalar)
        }
    }
    return result + quote
}

func repr(_ text: String?) -> String { text.map { repr($0) } ?? "None" }

func repr(_ number: Int?) -> String { number.map { String($0) } ?? "None" }
