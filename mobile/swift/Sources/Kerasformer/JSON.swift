import Foundation

/// A value of JSON. Objects keep the order of their fields, and integers differ from other numbers, as in Python.
public enum JSON: Equatable, Sendable {
    case null
    case bool(Bool)
    case int(Int)
    case double(Double)
    case string(String)
    case array([JSON])
    case object([Field])

    public struct Field: Equatable, Sendable {
        public let name: String
        public let value: JSON
    }

    /// The value of a field; `null` if there is none. Of equal names, the last one counts.
    public subscript(name: String) -> JSON {
        fields.last { $0.name == name }?.value ?? .null
    }

    public var fields: [Field] {
        if case .object(let fields) = self { return fields }
        return []
    }

    public var items: [JSON]? {
        if case .array(let items) = self { return items }
        return nil
    }

    public var string: String? {
        if case .string(let text) = self { return text }
        return nil
    }

    public var int: Int? {
        if case .int(let number) = self { return number }
        return nil
    }

    public var bool: Bool? {
        if case .bool(let flag) = self { return flag }
        return nil
    }

    /// A number of either kind.
    public var number: Double? {
        switch self {
        case .int(let number): return Double(number)
        case .double(let number): return number
        default: return nil
        }
    }

    var isNull: Bool { self == .null }

    func has(_ name: String) -> Bool { fields.contains { $0.name == name } }

    func flag(_ name: String, _ usual: Bool = false) -> Bool { self[name].bool ?? usual }

    func text(_ name: String) -> String { self[name].string ?? "" }

    func list(_ name: String) -> [JSON] { self[name].items ?? [] }

    /// A copy in which a field has another value.
    func with(_ name: String, _ value: JSON) -> JSON {
        .object(fields.filter { $0.name != name } + [Field(name: name, value: value)])
    }

    /// Reads a text in JSON.
    static func parse(_ data: Data) throws -> JSON {
        var reader = JSONReader(bytes: [UInt8](data))
        return try reader.document()
    }
}

extension JSON: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral, ExpressibleByNilLiteral {
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int) { self = .int(value) }
    public init(floatLiteral value: Double) { self = .double(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(arrayLiteral elements: JSON...) { self = .array(elements) }
    public init(dictionaryLiteral elements: (String, JSON)...) { self = .object(elements.map { Field(name: $0.0, value: $0.1) }) }
    public init(nilLiteral: ()) { self = .null }
}

/// What is wrong with a text that should be JSON.
struct JSONError: Error {
    let message: String
}

private struct JSONReader {
    let bytes: [UInt8]
    private var next = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    mutating func document() throws -> JSON {
        let result = try value()
        skipSpaces()
        if next < bytes.count { throw failure() }
        return result
    }

    private mutating func value() throws -> JSON {
        skipSpaces()
        switch try peek() {
        case UInt8(ascii: "{"): return .object(try members())
        case UInt8(ascii: "["): return .array(try elements())
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"): return try number()
        default: return try word()
        }
    }

    private mutating func members() throws -> [JSON.Field] {
        var result: [JSON.Field] = []
        next += 1
        while !(try closes(UInt8(ascii: "}"), first: result.isEmpty)) {
            skipSpaces()
            let name = try string()
            skipSpaces()
            if try peek() != UInt8(ascii: ":") { throw failure() }
            next += 1
            result.append(JSON.Field(name: name, value: try value()))
        }
        return result
    }

    private mutating func elements() throws -> [JSON] {
        var result: [JSON] = []
        next += 1
        while !(try closes(UInt8(ascii: "]"), first: result.isEmpty)) { result.append(try value()) }
        return result
    }

    /// Whether an object or array ends here; otherwise reads the comma before its next item.
    private mutating func closes(_ end: UInt8, first: Bool) throws -> Bool {
        skipSpaces()
        let byte = try peek()
        if byte == end {
            next += 1
            return true
        }
        if !first {
            if byte != UInt8(ascii: ",") { throw failure() }
            next += 1
        }
        return false
    }

    private mutating func string() throws -> String {
        if try peek() != UInt8(ascii: "\"") { throw failure() }
        next += 1
        let start = next
        while try peek() != UInt8(ascii: "\"") {
            if bytes[next] == UInt8(ascii: "\\") { return try escapedString(from: start) }
            next += 1
        }
        next += 1
        return String(decoding: bytes[start..<next - 1], as: UTF8.self)
    }

    /// Reads on in a string that has escapes; half of a surrogate pair becomes U+FFFD.
    private mutating func escapedString(from start: Int) throws -> String {
        var units = Array(String(decoding: bytes[start..<next], as: UTF8.self).utf16)
        while try peek() != UInt8(ascii: "\"") {
            let from = next
            while bytes[next] != UInt8(ascii: "\\"), try peek() != UInt8(ascii: "\"") { next += 1 }
            units += Array(String(decoding: bytes[from..<next], as: UTF8.self).utf16)
            if bytes[next] == UInt8(ascii: "\\") { units.append(try escaped()) }
        }
        next += 1
        return String(decoding: units, as: UTF16.self)
    }

    private mutating func escaped() throws -> UInt16 {
        next += 1
        let letter = try peek()
        next += 1
        switch letter {
        case UInt8(ascii: "b"): return 8
        case UInt8(ascii: "f"): return 12
        case UInt8(ascii: "n"): return 10
        case UInt8(ascii: "r"): return 13
        case UInt8(ascii: "t"): return 9
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return UInt16(letter)
        default: break
        }
        guard letter == UInt8(ascii: "u"), next + 4 <= bytes.count,
            let unit = UInt16(String(decoding: bytes[next..<next + 4], as: UTF8.self), radix: 16)
        else { throw failure() }
        next += 4
        return unit
    }

    private mutating func number() throws -> JSON {
        let start = next
        if hasWord("-Infinity") { return .double(-Double.infinity) }
        while next < bytes.count, "+-.eE0123456789".utf8.contains(bytes[next]) { next += 1 }
        let text = String(decoding: bytes[start..<next], as: UTF8.self)
        if let number = Int(text) { return .int(number) }
        if let number = Double(text) { return .double(number) }
        throw failure()
    }

    private mutating func word() throws -> JSON {
        if hasWord("null") { return .null }
        if hasWord("true") { return .bool(true) }
        if hasWord("false") { return .bool(false) }
        if hasWord("NaN") { return .double(Double.nan) }
        if hasWord("Infinity") { return .double(Double.infinity) }
        throw failure()
    }

    private mutating func hasWord(_ word: String) -> Bool {
        if !bytes[next...].starts(with: word.utf8) { return false }
        next += word.utf8.count
        return true
    }

    private func peek() throws -> UInt8 {
        if next < bytes.count { return bytes[next] }
        throw failure()
    }

    private mutating func skipSpaces() {
        while next < bytes.count, [9, 10, 13, 32].contains(bytes[next]) { next += 1 }
    }

    private func failure() -> JSONError { JSONError(message: "not JSON at byte \(next) of \(bytes.count)") }
}

/// How JSON is written; by default as `json.dumps` of Python does.
struct JSONStyle {
    var ascii = false
    var indent: Int? = nil
    var comma = ", "
    var colon = ": "
    var sorted = false
}

extension JSON {
    func written(_ style: JSONStyle = JSONStyle()) -> String {
        var out = ""
        write(to: &out, style, depth: 0)
        return out
    }

    private func write(to out: inout String, _ style: JSONStyle, depth: Int) {
        let comma = style.indent == nil ? style.comma : ","
        func line(_ depth: Int) { if let indent = style.indent { out += "\n" + String(repeating: " ", count: indent * depth) } }
        switch self {
        case .null: out += "null"
        case .bool(let flag): out += flag ? "true" : "false"
        case .int(let number): out += String(number)
        case .double(let number): out += pythonNumber(number)
        case .string(let text): JSON.write(text, to: &out, ascii: style.ascii)
        case .array(let items):
            out += "["
            for (index, item) in items.enumerated() {
                if index > 0 { out += comma }
                line(depth + 1)
                item.write(to: &out, style, depth: depth + 1)
            }
            if !items.isEmpty { line(depth) }
            out += "]"
        case .object(let fields):
            out += "{"
            let ordered = style.sorted ? fields.sorted { $0.name.codePoints.lexicographicallyPrecedes($1.name.codePoints) } : fields
            for (index, field) in ordered.enumerated() {
                if index > 0 { out += comma }
                line(depth + 1)
                JSON.write(field.name, to: &out, ascii: style.ascii)
                out += style.colon
                field.value.write(to: &out, style, depth: depth + 1)
            }
            if !fields.isEmpty { line(depth) }
            out += "}"
        }
    }

    private static func write(_ text: String, to out: inout String, ascii: Bool) {
        out += "\""
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x22: out += "\\\""
            case 0x5C: out += "\\\\"
            case 8: out += "\\b"
            case 9: out += "\\t"
            case 10: out += "\\n"
            case 12: out += "\\f"
            case 13: out += "\\r"
            case 32...126: out.unicodeScalars.append(scalar)
            default:
                if !ascii && scalar.value >= 32 { out.unicodeScalars.append(scalar) }
                else { for unit in String(scalar).utf16 { out += String(format: "\\u%04x", Int(unit)) } }
            }
        }
        out += "\""
    }
}

/// A number as Python's `repr` writes it, such as `1e-05` and `1.0`.
func pythonNumber(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value > 0 ? "Infinity" : "-Infinity" }
    let text = value.description
    // Swift writes numbers up to 2^54 without an exponent, Python those below 10^16.
    guard value.magnitude >= 1e16, !text.contains("e") else { return text }
    let digits = text.dropLast(2).filter { $0 != "-" }
    let rest = String(digits.dropFirst()).replacingOccurrences(of: "0+$", with: "", options: .regularExpression)
    return (value < 0 ? "-" : "") + String(digits.prefix(1)) + (rest.isEmpty ? "" : "." + rest) + "e+\(digits.count - 1)"
}
