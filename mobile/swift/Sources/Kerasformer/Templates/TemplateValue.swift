import Foundation

/// An error of a template while it runs. `refuses` tells that the template refuses the conversation.
struct TemplateFailure: Error {
    let message: String
    var refuses = false

    init(_ message: String, refuses: Bool = false) {
        self.message = message
        self.refuses = refuses
    }
}

/// An object whose attributes a template may change.
final class TemplateObject {
    var values: [String: TemplateValue]

    init(_ values: [String: TemplateValue]) { self.values = values }
}

/// The arguments of a function, a method or a filter.
struct TemplateArguments {
    var positional: [TemplateValue] = []
    var named: [String: TemplateValue] = [:]

    func at(_ index: Int, _ name: String = "") -> TemplateValue? { index < positional.count ? positional[index] : named[name] }

    func text(_ index: Int, _ name: String = "") -> String? { at(index, name).map { $0.text } }
}

/// A value of a template.
enum TemplateValue {
    /// A variable, key or attribute that does not exist, with its name.
    case undefined(String)
    case null
    case bool(Bool)
    case int(Int)
    case double(Double)
    case string(String)
    case list([TemplateValue])
    case dict([(name: String, value: TemplateValue)])
    case object(TemplateObject)
    case function((TemplateArguments) throws -> TemplateValue)

    init(_ json: JSON) {
        switch json {
        case .null: self = .null
        case .bool(let flag): self = .bool(flag)
        case .int(let number): self = .int(number)
        case .double(let number): self = .double(number)
        case .string(let text): self = .string(text)
        case .array(let items): self = .list(items.map { TemplateValue($0) })
        case .object(let fields): self = .dict(fields.map { (name: $0.name, value: TemplateValue($0.value)) })
        }
    }

    func json() throws -> JSON {
        switch self {
        case .null: return .null
        case .bool(let flag): return .bool(flag)
        case .int(let number): return .int(number)
        case .double(let number): return .double(number)
        case .string(let text): return .string(text)
        case .list(let items): return .array(try items.map { try $0.json() })
        case .dict(let fields): return .object(try fields.map { JSON.Field(name: $0.name, value: try $0.value.json()) })
        case .undefined, .object, .function: throw TemplateFailure("Object of type \(typeName) is not JSON serializable")
        }
    }

    var isTrue: Bool {
        switch self {
        case .undefined, .null: return false
        case .bool(let flag): return flag
        case .int(let number): return number != 0
        case .double(let number): return number != 0
        case .string(let text): return !text.isEmpty
        case .list(let items): return !items.isEmpty
        case .dict(let fields): return !fields.isEmpty
        case .object, .function: return true
        }
    }

    /// The value as a template writes it.
    var text: String {
        if case .string(let text) = self { return text }
        if case .undefined = self { return "" }
        return (try? repr(json())) ?? typeName
    }

    var number: Double? {
        if case .int(let number) = self { return Double(number) }
        if case .double(let number) = self { return number }
        return nil
    }

    var int: Int? {
        if case .int(let number) = self { return number }
        return nil
    }

    var typeName: String {
        switch self {
        case .undefined: return "Undefined"
        case .null: return "NoneType"
        case .bool: return "bool"
        case .int: return "int"
        case .double: return "float"
        case .string: return "str"
        case .list: return "list"
        case .dict: return "dict"
        case .object: return "Namespace"
        case .function: return "function"
        }
    }

    func items() throws -> [TemplateValue] {
        switch self {
        case .list(let items): return items
        case .dict(let fields): return fields.map { .string($0.name) }
        case .string(let text): return text.unicodeScalars.map { .string(String($0)) }
        case .undefined: return []
        default: throw TemplateFailure("'\(typeName)' object is not iterable")
        }
    }

    func fields() throws -> [(name: String, value: TemplateValue)] {
        if case .dict(let fields) = self { return fields }
        if case .undefined = self { return [] }
        throw TemplateFailure("Can only get item pairs from a mapping.")
    }

    func isEqual(_ other: TemplateValue) -> Bool {
        if let one = number, let two = other.number { return one == two }
        switch (self, other) {
        case (.null, .null), (.undefined, .undefined): return true
        case (.bool(let one), .bool(let two)): return one == two
        case (.string(let one), .string(let two)): return one == two
        case (.list(let one), .list(let two)): return one.count == two.count && zip(one, two).allSatisfy { $0.isEqual($1) }
        case (.dict, .dict): return (try? json()) == (try? other.json())
        default: return false
        }
    }

    func contains(_ value: TemplateValue) throws -> Bool {
        guard case .string(let whole) = self else { return try items().contains { $0.isEqual(value) } }
        guard case .string(let part) = value else {
            throw TemplateFailure("'in <string>' requires string as left operand, not \(value.typeName)")
        }
        return part.isEmpty || whole.contains(part)
    }

    func compared(_ name: String, _ other: TemplateValue) throws -> Bool {
        switch name {
        case "==", "eq", "equalto": return isEqual(other)
        case "!=", "ne": return !isEqual(other)
        case "in": return try other.contains(self)
        case "not in": return !(try other.contains(self))
        default: break
        }
        var order = 0
        if let one = number, let two = other.number {
            order = one < two ? -1 : one > two ? 1 : 0
        } else if case .string(let one) = self, case .string(let two) = other {
            order = one < two ? -1 : one > two ? 1 : 0
        } else {
            throw TemplateFailure("'\(name)' not supported between instances of '\(typeName)' and '\(other.typeName)'")
        }
        switch name {
        case "<", "lt": return order < 0
        case "<=", "le": return order <= 0
        case ">", "gt": return order > 0
        default: return order >= 0
        }
    }

    func calculated(_ name: String, _ other: TemplateValue) throws -> TemplateValue {
        if name == "~" { return .string(text + other.text) }
        if let one = int, let two = other.int, name != "/", name != "**" {
            if two == 0 && (name == "//" || name == "%") { throw TemplateFailure("integer division or modulo by zero") }
            switch name {
            case "+": return .int(one &+ two)
            case "-": return .int(one &- two)
            case "*": return .int(one &* two)
            case "//": return .int(Int((Double(one) / Double(two)).rounded(.down)))
            default: return .int(((one % two) + two) % two)
            }
        }
        if let one = number, let two = other.number {
            switch name {
            case "+": return .double(one + two)
            case "-": return .double(one - two)
            case "*": return .double(one * two)
            case "/": if two != 0 { return .double(one / two) }
            case "**": return int != nil && (other.int ?? -1) >= 0 ? .int(Int(pow(one, two))) : .double(pow(one, two))
            default: if two != 0 { return .double(name == "//" ? (one / two).rounded(.down) : one - two * (one / two).rounded(.down)) }
            }
            throw TemplateFailure("division by zero")
        }
        switch (self, other) {
        case (.string(let one), .string(let two)) where name == "+": return .string(one + two)
        case (.list(let one), .list(let two)) where name == "+": return .list(one + two)
        case (.string(let one), .int(let count)) where name == "*" && one.utf8.count * max(count, 0) <= Template.mostCharacters:
            return .string(String(repeating: one, count: max(count, 0)))
        case (.undefined(let missing), _), (_, .undefined(let missing)): throw TemplateFailure("'\(missing)' is undefined")
        default: throw TemplateFailure("unsupported operand type(s) for \(name): '\(typeName)' and '\(other.typeName)'")
        }
    }

    /// `value[key]`, or `value.key` if the value has no such item.
    func item(_ key: TemplateValue, isAttribute: Bool = false) throws -> TemplateValue {
        let name = key.text
        switch self {
        case .undefined(let missing): throw TemplateFailure("'\(missing)' is undefined")
        case .object(let object): return object.values[name] ?? .undefined(name)
        case .dict(let fields):
            if isAttribute, let method = method(name) { return method }
            return fields.last { $0.name == name }?.value ?? method(name) ?? .undefined(name)
        case .list, .string:
            if let index = key.int {
                let items = try items()
                let place = index < 0 ? index + items.count : index
                return items.indices.contains(place) ? items[place] : .undefined("the item \(index)")
            }
            return method(name) ?? .undefined("\(typeName) object' has no attribute '\(name)")
        default: return .undefined("\(typeName) object' has no attribute '\(name)")
        }
    }

    /// `value[start:stop:step]`
    func slice(_ bounds: [TemplateValue?]) throws -> TemplateValue {
        let items = try items()
        let step = (bounds.count > 2 ? bounds[2]?.int : nil) ?? 1
        if step == 0 { throw TemplateFailure("slice step cannot be zero") }
        func bound(_ index: Int, _ usual: Int) -> Int {
            guard index < bounds.count, let given = bounds[index]?.int else { return usual }
            let place = given < 0 ? given + items.count : given
            return step > 0 ? min(max(place, 0), items.count) : min(max(place, -1), items.count - 1)
        }
        let start = bound(0, step > 0 ? 0 : items.count - 1)
        let selected = stride(from: start, to: bound(1, step > 0 ? items.count : -1), by: step).map { items[$0] }
        if case .string = self { return .string(selected.map { $0.text }.joined()) }
        return .list(selected)
    }

    /// A method of Python. Methods that change their object are not allowed.
    private func method(_ name: String) -> TemplateValue? {
        switch (self, name) {
        case (.dict(let fields), "items"): return .function { _ in .list(fields.map { .list([.string($0.name), $0.value]) }) }
        case (.dict(let fields), "keys"): return .function { _ in .list(fields.map { .string($0.name) }) }
        case (.dict(let fields), "values"): return .function { _ in .list(fields.map { $0.value }) }
        case (.dict(let fields), "get"):
            return .function { given in fields.last { $0.name == given.text(0) }?.value ?? given.at(1) ?? .null }
        case (.list(let items), "count"):
            return .function { given in .int(items.filter { item in given.at(0).map { item.isEqual($0) } ?? false }.count) }
        case (.string(let text), _): return textMethod(text, name)
        default: return nil
        }
    }
}

private func textMethod(_ text: String, _ name: String) -> TemplateValue? {
    func affixes(_ given: TemplateArguments) -> [String] {
        if case .list(let items)? = given.at(0) { return items.map { $0.text } }
        return [given.text(0) ?? ""]
    }
    switch name {
    case "strip": return .function { .string(stripped(text, $0.text(0), true, true)) }
    case "lstrip": return .function { .string(stripped(text, $0.text(0), true, false)) }
    case "rstrip": return .function { .string(stripped(text, $0.text(0), false, true)) }
    case "startswith": return .function { given in .bool(affixes(given).contains { $0.isEmpty || text.hasPrefix($0) }) }
    case "endswith": return .function { given in .bool(affixes(given).contains { $0.isEmpty || text.hasSuffix($0) }) }
    case "upper": return .function { _ in .string(text.uppercased()) }
    case "lower": return .function { _ in .string(text.lowercased()) }
    case "title": return .function { _ in .string(titled(text)) }
    case "capitalize": return .function { _ in .string(capitalized(text)) }
    case "replace": return .function { .string(try replaced(text, $0)) }
    case "join": return .function { given in .string(try (given.at(0) ?? .list([])).items().map { $0.text }.joined(separator: text)) }
    case "isdigit": return .function { _ in .bool(!text.isEmpty && text.allSatisfy { $0.isNumber }) }
    case "splitlines":
        return .function { _ in
            var lines = text.components(separatedBy: "\n")
            if lines.last == "" { lines.removeLast() }
            return .list(lines.map { .string($0) })
        }
    case "split", "rsplit":
        return .function { given in
            guard case .string(let separator)? = given.at(0, "sep") else {
                return .list(text.split { $0.isWhitespace }.map { .string(String($0)) })
            }
            let parts = text.components(separatedBy: separator)
            guard let most = given.at(1, "maxsplit")?.int, most >= 0, parts.count > most + 1 else { return .list(parts.map { .string($0) }) }
            let rest = parts.count - most
            let joined =
                name == "split"
                ? Array(parts[..<most]) + [parts[most...].joined(separator: separator)]
                : [parts[..<rest].joined(separator: separator)] + Array(parts[rest...])
            return .list(joined.map { .string($0) })
        }
    default: return nil
    }
}

/// The text without characters at its ends; white space as in Python by default.
func stripped(_ text: String, _ given: String?, _ start: Bool, _ end: Bool) -> String {
    let chars = text.codePoints
    let removed = Set((given ?? "").codePoints)
    func isRemoved(_ char: UInt32) -> Bool { given == nil ? Letters.isSpace(char) || (0x1C...0x1F).contains(char) : removed.contains(char) }
    var from = 0
    var to = chars.count
    while start && from < to && isRemoved(chars[from]) { from += 1 }
    while end && from < to && isRemoved(chars[to - 1]) { to -= 1 }
    return String(codePoints: chars[from..<to])
}

func replaced(_ text: String, _ given: TemplateArguments) throws -> String {
    let old = given.text(0) ?? ""
    let new = given.text(1) ?? ""
    let parts = text.components(separatedBy: old)
    if text.utf8.count + parts.count * new.utf8.count > Template.mostCharacters { throw Template.tooLong }
    guard let most = given.at(2)?.int, most >= 0, parts.count > most + 1 else { return parts.joined(separator: new) }
    return (parts.prefix(most) + [parts.dropFirst(most).joined(separator: old)]).joined(separator: new)
}

func capitalized(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst().lowercased() }

func titled(_ text: String) -> String {
    var result = ""
    var isInside = false
    for char in text {
        result += isInside ? char.lowercased() : char.uppercased()
        isInside = char.isLetter
    }
    return result
}
