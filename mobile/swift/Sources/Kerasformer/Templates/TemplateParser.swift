import Foundation

/// A symbol of a tag: a name, a text, a number or an operator.
struct TemplateToken {
    enum Kind { case name, string, number, symbol, end }

    let kind: Kind
    let text: String
    var value: TemplateValue = .null
}

/// A part of a template: text, an expression `{{ … }}` or a statement `{% … %}`.
enum TemplatePart {
    case text(String)
    case expression([TemplateToken])
    case statement([TemplateToken])
}

/// Splits a template into its parts. As in `transformers`, a line end after a statement and spaces before it are removed
/// (`trim_blocks`, `lstrip_blocks`).
struct TemplateLexer {
    private let source: [UInt32]
    private var next = 0
    private var parts: [TemplatePart] = []

    init(_ text: String) {
        var chars = text.codePoints.replacing([13, 10], by: [10])
        if chars.last == 10 { chars.removeLast() }
        source = chars
    }

    mutating func allParts() throws -> [TemplatePart] {
        var trims = false  // whether the tag before removes all space after it
        while next < source.count {
            let from = next
            while next < source.count && !(at(0) == "{" && "{%#".contains(at(1))) { next += 1 }
            var text = source[from..<next]
            let kind = at(1)
            let mark = at(2)
            if trims { text = text.drop { Letters.isSpace($0) } }
            if next < source.count && mark == "-" {
                while let last = text.last, Letters.isSpace(last) { text.removeLast() }
            } else if next < source.count && kind != "{" && mark != "+" {
                var line = text
                while let last = line.last, last != 10, Letters.isSpace(last) { line.removeLast() }
                if line.last == 10 || (line.isEmpty && (from == 0 || source[from - 1] == 10)) { text = line }
            }
            if !text.isEmpty { parts.append(.text(String(codePoints: text))) }
            if next >= source.count { break }
            next += mark == "-" || mark == "+" ? 3 : 2
            switch kind {
            case "#": trims = try comment()
            case "{":
                let (tokens, removes) = try tag("}")
                parts.append(.expression(tokens))
                trims = removes
            default:
                let (tokens, removes) = try tag("%")
                parts.append(.statement(tokens))
                trims = removes
            }
        }
        return parts
    }

    /// The character some places after the next one.
    private func at(_ offset: Int) -> Character {
        let index = next + offset
        return index >= 0 && index < source.count ? Character(Unicode.Scalar(source[index]) ?? " ") : "\0"
    }

    private mutating func comment() throws -> Bool {
        while next < source.count && !(at(0) == "#" && at(1) == "}") { next += 1 }
        if next >= source.count { throw failure("a comment is not closed") }
        let removes = at(-1) == "-"
        next += 2
        if !removes { skipLineEnd() }
        return removes
    }

    /// The symbols up to the end of a tag, and whether it removes the space after it.
    private mutating func tag(_ end: Character) throws -> (tokens: [TemplateToken], removes: Bool) {
        var tokens: [TemplateToken] = []
        var depth = 0
        while true {
            while next < source.count && Letters.isSpace(source[next]) { next += 1 }
            if next >= source.count { throw failure("a tag is not closed") }
            let mark = at(0) == "-" || at(0) == "+" ? 1 : 0
            if depth == 0 && at(mark) == end && at(mark + 1) == "}" {
                let removes = at(0) == "-"
                let keeps = at(0) == "+"
                next += mark + 2
                if end == "%" && !removes && !keeps { skipLineEnd() }
                return (tokens: tokens + [TemplateToken(kind: .end, text: "the end of the tag")], removes: removes)
            }
            let token = try symbol()
            if token.kind == .symbol && "([{".contains(token.text) { depth += 1 }
            if token.kind == .symbol && ")]}".contains(token.text) { depth -= 1 }
            tokens.append(token)
        }
    }

    private mutating func skipLineEnd() { if at(0) == "\n" { next += 1 } }

    private mutating func taken(_ isPart: (Character) -> Bool) -> String {
        let start = next
        while next < source.count && isPart(at(0)) { next += 1 }
        return String(codePoints: source[start..<next])
    }

    private mutating func symbol() throws -> TemplateToken {
        let char = at(0)
        if char == "'" || char == "\"" { return TemplateToken(kind: .string, text: "a text", value: .string(try string(char))) }
        if char.isNumber {
            var digits = taken { $0.isNumber || $0 == "_" }.filter { $0 != "_" }
            if at(0) == "." && at(1).isNumber {
                next += 1
                digits += "." + taken { $0.isNumber }
            }
            let value: TemplateValue = Int(digits).map { .int($0) } ?? .double(Double(digits) ?? 0)
            return TemplateToken(kind: .number, text: digits, value: value)
        }
        if char.isLetter || char == "_" { return TemplateToken(kind: .name, text: taken { $0.isLetter || $0.isNumber || $0 == "_" }) }
        let two = String([char, at(1)])
        if ["**", "//", "==", "!=", "<=", ">="].contains(two) {
            next += 2
            return TemplateToken(kind: .symbol, text: two)
        }
        if !"+-*/%~|.,:()[]{}=<>".contains(char) { throw failure("unexpected character '\(char)'") }
        next += 1
        return TemplateToken(kind: .symbol, text: String(char))
    }

    private mutating func string(_ quote: Character) throws -> String {
        let escapes: [Character: String] = ["n": "\n", "r": "\r", "t": "\t", "b": "\u{8}", "f": "\u{C}", "\\": "\\", "'": "'", "\"": "\""]
        let lengths: [Character: Int] = ["x": 2, "u": 4, "U": 8]
        var result = ""
        next += 1
        while next < source.count {
            let char = at(0)
            next += 1
            if char == quote { return result }
            if char != "\\" {
                result.unicodeScalars.append(contentsOf: char.unicodeScalars)
                continue
            }
            let kind = at(0)
            next += 1
            if let length = lengths[kind] {
                let digits = String(codePoints: source[next..<min(next + length, source.count)])
                guard let code = UInt32(digits, radix: 16), let scalar = Unicode.Scalar(code) else { throw failure("a text has a damaged escape") }
                result.unicodeScalars.append(scalar)
                next += length
            } else {
                result += escapes[kind] ?? "\\" + String(kind)
            }
        }
        throw failure("a text is not closed")
    }

    private func failure(_ problem: String) -> ChatTemplateError {
        let line = source.prefix(next).filter { $0 == 10 }.count + 1
        return ChatTemplateError("The chat template is not valid Jinja in line \(line): \(problem)")
    }
}

typealias TemplateExpression = (TemplateScope) throws -> TemplateValue

/// Reads the expressions of a tag.
struct TemplateParser {
    private let tokens: [TemplateToken]
    private var next = 0

    init(_ tokens: [TemplateToken]) { self.tokens = tokens }

    private var token: TemplateToken { tokens[min(next, tokens.count - 1)] }
    private var following: TemplateToken { tokens[min(next + 1, tokens.count - 1)] }
    var isFinished: Bool { token.kind == .end }

    func finish() throws { if !isFinished { throw failure("unexpected \(token.text)") } }

    mutating func name() throws -> String {
        let found = token
        if found.kind != .name { throw failure("a name was expected. Received: \(found.text)") }
        next += 1
        return found.text
    }

    /// Whether a name or an operator follows, which is then passed.
    mutating func skip(_ text: String) -> Bool {
        if token.text != text || !(token.kind == .name || token.kind == .symbol) { return false }
        next += 1
        return true
    }

    mutating func expect(_ text: String) throws { if !skip(text) { throw failure("\(text) was expected. Received: \(token.text)") } }

    /// Names that get values.
    mutating func targets() throws -> [String] {
        let isGrouped = skip("(")
        var names = [try name()]
        while skip(",") { names.append(try name()) }
        if isGrouped { try expect(")") }
        return names
    }

    /// An expression that is the rest of the tag; several with commas are a list.
    mutating func whole() throws -> TemplateExpression {
        let first = try expression()
        if isFinished { return first }
        var items = [first]
        while skip(",") { if !isFinished { items.append(try expression()) } }
        try finish()
        return { scope in .list(try items.map { try $0(scope) }) }
    }

    mutating func expression(isTernary: Bool = true) throws -> TemplateExpression {
        let value = try or()
        if !isTernary || !skip("if") { return value }
        let condition = try or()
        let otherwise: TemplateExpression = skip("else") ? try expression() : { _ in .undefined("the else branch") }
        return { scope in try condition(scope).isTrue ? try value(scope) : try otherwise(scope) }
    }

    private mutating func or() throws -> TemplateExpression {
        var left = try and()
        while skip("or") {
            let first = left
            let second = try and()
            left = { scope in
                let value = try first(scope)
                return value.isTrue ? value : try second(scope)
            }
        }
        return left
    }

    private mutating func and() throws -> TemplateExpression {
        var left = try not()
        while skip("and") {
            let first = left
            let second = try not()
            left = { scope in
                let value = try first(scope)
                return value.isTrue ? try second(scope) : value
            }
        }
        return left
    }

    private mutating func not() throws -> TemplateExpression {
        if !skip("not") { return try comparison() }
        let value = try not()
        return { scope in .bool(!(try value(scope).isTrue)) }
    }

    private mutating func comparison() throws -> TemplateExpression {
        let first = try sum()
        var others: [(name: String, value: TemplateExpression)] = []
        while true {
            var name = token.text
            if token.kind == .name && name == "not" && following.text == "in" {
                next += 1
                name = "not in"
            } else if !(token.kind == .symbol && ["==", "!=", "<=", ">=", "<", ">"].contains(name)) && !(token.kind == .name && name == "in") {
                break
            }
            next += 1
            others.append((name: name, value: try sum()))
        }
        if others.isEmpty { return first }
        return { scope in
            var left = try first(scope)
            for (name, value) in others {
                let right = try value(scope)
                if !(try left.compared(name, right)) { return .bool(false) }
                left = right
            }
            return .bool(true)
        }
    }

    private mutating func sum() throws -> TemplateExpression { try operators([["+", "-"], ["~"], ["*", "//", "/", "%"]]) }

    /// Operators of several levels, the weakest first.
    private mutating func operators(_ levels: [[String]]) throws -> TemplateExpression {
        guard let names = levels.first else { return try unary() }
        let stronger = Array(levels.dropFirst())
        var left = try operators(stronger)
        while token.kind == .symbol && names.contains(token.text) {
            let name = token.text
            next += 1
            let first = left
            let second = try operators(stronger)
            left = { scope in try first(scope).calculated(name, try second(scope)) }
        }
        return left
    }

    private mutating func unary(withFilters: Bool = true) throws -> TemplateExpression {
        var value: TemplateExpression
        if skip("-") {
            let operand = try unary(withFilters: false)
            value = { scope in try TemplateValue.int(0).calculated("-", try operand(scope)) }
        } else {
            value = try postfix(try primary())
        }
        if skip("**") {
            let base = value
            let exponent = try unary(withFilters: false)
            value = { scope in try base(scope).calculated("**", try exponent(scope)) }
        }
        return withFilters ? try filtered(value) : value
    }

    private mutating func primary() throws -> TemplateExpression {
        let found = token
        next += 1
        switch found.kind {
        case .name:
            switch found.text {
            case "true", "True": return { _ in .bool(true) }
            case "false", "False": return { _ in .bool(false) }
            case "none", "None": return { _ in .null }
            default: return { scope in scope.value(found.text) }
            }
        case .number: return { _ in found.value }
        case .string:
            var text = found.value.text
            while token.kind == .string {  // neighbouring texts are one
                text += token.value.text
                next += 1
            }
            let whole = text
            return { _ in .string(whole) }
        case .symbol where found.text == "(":
            let items = try list(")")
            if items.count == 1 && tokens[next - 2].text != "," { return items[0] }
            return { scope in .list(try items.map { try $0(scope) }) }
        case .symbol where found.text == "[":
            let items = try list("]")
            return { scope in .list(try items.map { try $0(scope) }) }
        case .symbol where found.text == "{":
            var fields: [(key: TemplateExpression, value: TemplateExpression)] = []
            while !skip("}") {
                let key = try expression()
                try expect(":")
                fields.append((key: key, value: try expression()))
                if !skip(",") && token.text != "}" { throw failure("a comma was expected. Received: \(token.text)") }
            }
            let all = fields
            return { scope in .dict(try all.map { (name: try $0.key(scope).text, value: try $0.value(scope)) }) }
        default:
            throw failure("unexpected \(found.text)")
        }
    }

    private mutating func list(_ end: String) throws -> [TemplateExpression] {
        var items: [TemplateExpression] = []
        while !skip(end) {
            items.append(try expression())
            if !skip(",") && token.text != end { throw failure("a comma was expected. Received: \(token.text)") }
        }
        return items
    }

    private mutating func postfix(_ start: @escaping TemplateExpression) throws -> TemplateExpression {
        var value = start
        while true {
            let of = value
            if skip(".") {
                let key: TemplateValue = token.kind == .number ? token.value : .string(token.text)
                if token.kind == .number { next += 1 } else { _ = try name() }
                value = { scope in try of(scope).item(key, isAttribute: true) }
            } else if skip("[") {
                value = try subscripted(of)
            } else if skip("(") {
                value = try called(of)
            } else {
                return value
            }
        }
    }

    private mutating func subscripted(_ of: @escaping TemplateExpression) throws -> TemplateExpression {
        var bounds: [TemplateExpression?] = []
        var isSlice = false
        while true {
            bounds.append(token.text == ":" || token.text == "]" ? nil : try expression())
            if !skip(":") { break }
            isSlice = true
        }
        try expect("]")
        let all = bounds
        if isSlice { return { scope in try of(scope).slice(try all.map { try $0?(scope) }) } }
        guard let key = all[0] else { throw failure("an index is missing") }
        return { scope in try of(scope).item(try key(scope)) }
    }

    private mutating func called(_ of: @escaping TemplateExpression) throws -> TemplateExpression {
        let given = try arguments()
        return { scope in
            try scope.run.check()
            let callee = try of(scope)
            guard case .function(let function) = callee else {
                if case .undefined(let name) = callee { throw TemplateFailure("'\(name)' is undefined") }
                throw TemplateFailure("'\(callee.typeName)' object is not callable")
            }
            return try function(try given(scope))
        }
    }

    /// The arguments up to a closing bracket.
    private mutating func arguments() throws -> (TemplateScope) throws -> TemplateArguments {
        var given: [(name: String?, value: TemplateExpression)] = []
        while !skip(")") {
            var label: String?
            if token.kind == .name && following.kind == .symbol && following.text == "=" {
                label = token.text
                next += 2
            }
            given.append((name: label, value: try expression()))
            if !skip(",") && token.text != ")" { throw failure("a comma was expected. Received: \(token.text)") }
        }
        let all = given
        return { scope in
            var result = TemplateArguments()
            for (name, value) in all {
                if let name = name { result.named[name] = try value(scope) } else { result.positional.append(try value(scope)) }
            }
            return result
        }
    }

    /// Filters `| name(…)` and tests `is name`.
    private mutating func filtered(_ start: @escaping TemplateExpression) throws -> TemplateExpression {
        var value = start
        while true {
            let of = value
            if token.kind == .symbol && skip("|") {
                let name = try name()
                if !templateFilters.contains(name) { throw failure("the filter \(name) is unsupported in this library") }
                let given: (TemplateScope) throws -> TemplateArguments = skip("(") ? try arguments() : { _ in TemplateArguments() }
                value = { scope in
                    try scope.run.check()
                    return try filter(name, try of(scope), try given(scope))
                }
            } else if token.kind == .name && skip("is") {
                let isNegated = skip("not")
                let name = try name()
                if !templateTests.contains(name) { throw failure("the test \(name) is unsupported in this library") }
                var argument: TemplateExpression = { _ in .null }
                if skip("(") {
                    let given = try arguments()
                    argument = { scope in try given(scope).at(0) ?? .null }
                } else if token.kind == .string || token.kind == .number || (token.kind == .symbol && "[{".contains(token.text))
                    || (token.kind == .name && !["else", "or", "and", "is", "if", "not", "in"].contains(token.text)) {
                    argument = try postfix(try primary())
                }
                let other = argument
                value = { scope in .bool(try test(name, try of(scope), try other(scope)) != isNegated) }
            } else {
                return value
            }
        }
    }

    private func failure(_ problem: String) -> ChatTemplateError { ChatTemplateError("The chat template is not valid Jinja: \(problem)") }
}
