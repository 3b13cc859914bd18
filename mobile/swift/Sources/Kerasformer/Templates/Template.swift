import Foundation

/// The limits of a run of a template: its time, and the size of what it writes.
final class TemplateRun {
    private let end = Date(timeIntervalSinceNow: 2)

    func check() throws { if Date() > end { throw TemplateFailure("it runs for more than 2 seconds, the limit") } }
}

/// The variables of a template, a loop or a macro.
final class TemplateScope {
    let run: TemplateRun
    private let parent: TemplateScope?
    private var values: [String: TemplateValue] = [:]

    init(_ parent: TemplateScope?, _ run: TemplateRun) {
        self.parent = parent
        self.run = run
    }

    func value(_ name: String) -> TemplateValue { values[name] ?? parent?.value(name) ?? .undefined(name) }

    func set(_ name: String, _ value: TemplateValue) { values[name] = value }

    /// Sets one name, or each of several to an item of the value.
    func set(_ names: [String], _ value: TemplateValue) throws {
        if names.count == 1 { return set(names[0], value) }
        let items = try value.items()
        if items.count != names.count { throw TemplateFailure("\(names.count) values were expected. Received: \(items.count)") }
        for (name, item) in zip(names, items) { set(name, item) }
    }

    func inner() -> TemplateScope { TemplateScope(self, run) }
}

/// What follows a statement: the next one, the next round of the loop, or the statement after the loop.
private enum Flow {
    case next, nextRound, end
}

private typealias Statement = (TemplateScope, inout String) throws -> Flow

/// A template of Jinja, with the part of the language that chat templates use.
final class Template {
    static let mostCharacters = 2_000_000
    static let tooLong = TemplateFailure("it creates text of more than 2,000,000 characters, the limit")
    private let parts: [TemplatePart]
    private var next = 0
    private var body: Statement = { _, _ in .next }

    /// - Throws: `ChatTemplateError` if the template is not valid, or uses another part of the language.
    init(_ source: String) throws {
        var lexer = TemplateLexer(source)
        parts = try lexer.allParts()
        body = try statements([])
    }

    /// - Throws: `ChatTemplateError` if the template fails, refuses the conversation, or exceeds a limit.
    func render(_ variables: [String: TemplateValue]) throws -> String {
        let scope = TemplateScope(nil, TemplateRun())
        for (name, value) in templateFunctions { scope.set(name, value) }
        for (name, value) in variables { scope.set(name, value) }
        var out = ""
        do {
            _ = try body(scope.inner(), &out)
        } catch let error as TemplateFailure {
            throw ChatTemplateError("The chat template \(error.refuses ? "refuses this conversation" : "failed"): \(error.message)")
        }
        return out
    }

    /// Reads statements up to one of some names, or to the end of the template.
    private func statements(_ ends: [String]) throws -> Statement {
        var all: [Statement] = []
        reading: while next < parts.count {
            switch parts[next] {
            case .text(let text):
                all.append { scope, out in try Template.write(text, &out, scope) }
            case .expression(let tokens):
                var parser = TemplateParser(tokens)
                let value = try parser.whole()
                all.append { scope, out in try Template.write(try value(scope).text, &out, scope) }
            case .statement(let tokens):
                if ends.contains(tokens[0].text) { break reading }
                all.append(try statement(tokens))
            }
            next += 1
        }
        if next >= parts.count && !ends.isEmpty { throw failure("\(ends[ends.count - 1]) is missing") }
        let body = all
        return { scope, out in
            for statement in body {
                let flow = try statement(scope, &out)
                if flow != .next { return flow }
            }
            return .next
        }
    }

    private static func write(_ text: String, _ out: inout String, _ scope: TemplateScope) throws -> Flow {
        try scope.run.check()
        if out.utf8.count + text.utf8.count > mostCharacters { throw tooLong }
        out += text
        return .next
    }

    /// The parser of the current statement, after its name.
    private func current() throws -> (name: String, parser: TemplateParser) {
        guard next < parts.count, case .statement(let tokens) = parts[next] else { throw failure("a statement is missing") }
        var parser = TemplateParser(tokens)
        return (name: try parser.name(), parser: parser)
    }

    private func statement(_ tokens: [TemplateToken]) throws -> Statement {
        var parser = TemplateParser(tokens)
        switch try parser.name() {
        case "if": return try branches(try parser.whole())
        case "for": return try loop(parser)
        case "set": return try assignment(parser)
        case "macro": return try macro(parser)
        case "break": return { _, _ in .end }
        case "continue": return { _, _ in .nextRound }
        case "generation":  // marks the text of an assistant, which only a training reads
            next += 1
            return try statements(["endgeneration"])
        default: throw failure("the statement \(tokens[0].text) is unsupported in this library")
        }
    }

    private func branches(_ first: @escaping TemplateExpression) throws -> Statement {
        var branches: [(condition: TemplateExpression, body: Statement)] = []
        var condition = first
        while true {
            next += 1
            branches.append((condition: condition, body: try statements(["elif", "else", "endif"])))
            var (name, parser) = try current()
            if name == "endif" { break }
            condition = name == "elif" ? try parser.whole() : { _ in .bool(true) }
        }
        let all = branches
        return { scope, out in
            for (condition, body) in all where try condition(scope).isTrue { return try body(scope, &out) }
            return .next
        }
    }

    private func loop(_ given: TemplateParser) throws -> Statement {
        var parser = given
        let names = try parser.targets()
        try parser.expect("in")
        let values = try parser.expression(isTernary: false)
        let condition: TemplateExpression? = parser.skip("if") ? try parser.expression() : nil
        try parser.finish()
        next += 1
        let body = try statements(["else", "endfor"])
        var otherwise: Statement?
        if try current().name == "else" {
            next += 1
            otherwise = try statements(["endfor"])
        }
        let instead = otherwise
        return { scope, out in
            let items = try values(scope).items().filter { item in
                guard let condition = condition else { return true }
                let inner = scope.inner()
                try inner.set(names, item)
                return try condition(inner).isTrue
            }
            if items.isEmpty, let instead = instead { return try instead(scope, &out) }
            for (index, item) in items.enumerated() {
                try scope.run.check()
                let inner = scope.inner()
                try inner.set(names, item)
                inner.set("loop", Template.variables(items, index))
                if try body(inner, &out) == .end { break }
            }
            return .next
        }
    }

    private static func variables(_ items: [TemplateValue], _ index: Int) -> TemplateValue {
        .object(
            TemplateObject([
                "index": .int(index + 1), "index0": .int(index), "first": .bool(index == 0), "last": .bool(index == items.count - 1),
                "length": .int(items.count), "revindex": .int(items.count - index), "revindex0": .int(items.count - index - 1),
                "previtem": index > 0 ? items[index - 1] : .undefined("previtem"),
                "nextitem": index + 1 < items.count ? items[index + 1] : .undefined("nextitem"),
            ]))
    }

    private func assignment(_ given: TemplateParser) throws -> Statement {
        var parser = given
        let names = try parser.targets()
        let attribute: String? = parser.skip(".") ? try parser.name() : nil
        var value: TemplateExpression
        if parser.skip("=") {
            value = try parser.whole()
        } else {
            try parser.finish()
            next += 1
            let body = try statements(["endset"])
            value = { scope in
                var text = ""
                _ = try body(scope.inner(), &text)
                return .string(text)
            }
        }
        let assigned = value
        return { scope, _ in
            guard let name = attribute else {
                try scope.set(names, try assigned(scope))
                return .next
            }
            guard case .object(let object) = scope.value(names[0]) else {
                throw TemplateFailure("cannot assign attribute on non-namespace object")
            }
            object.values[name] = try assigned(scope)
            return .next
        }
    }

    private func macro(_ given: TemplateParser) throws -> Statement {
        var parser = given
        let name = try parser.name()
        var parameters: [(name: String, usual: TemplateExpression?)] = []
        try parser.expect("(")
        while !parser.skip(")") {
            let parameter = try parser.name()
            parameters.append((name: parameter, usual: parser.skip("=") ? try parser.expression() : nil))
            _ = parser.skip(",")
        }
        try parser.finish()
        next += 1
        let body = try statements(["endmacro"])
        let known = parameters
        return { scope, _ in
            scope.set(
                name,
                .function { arguments in
                    if arguments.positional.count > known.count {
                        throw TemplateFailure("macro '\(name)' takes not more than \(known.count) argument(s)")
                    }
                    let inner = scope.inner()
                    for (index, parameter) in known.enumerated() {
                        let usual = try parameter.usual?(inner)
                        inner.set(parameter.name, arguments.at(index, parameter.name) ?? usual ?? .undefined(parameter.name))
                    }
                    var text = ""
                    _ = try body(inner, &text)
                    return .string(text)
                })
            return .next
        }
    }

    private func failure(_ problem: String) -> ChatTemplateError { ChatTemplateError("The chat template is not valid Jinja: \(problem)") }
}

let templateTests: Set<String> = [
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "true", "false", "number", "integer",
    "in", "equalto", "eq", "ne", "lt", "le", "gt", "ge", "callable",
]

func test(_ name: String, _ value: TemplateValue, _ argument: TemplateValue) throws -> Bool {
    switch (name, value) {
    case ("defined", .undefined): return false
    case ("defined", _): return true
    case ("undefined", .undefined), ("none", .null), ("string", .string), ("mapping", .dict), ("boolean", .bool), ("integer", .int),
        ("number", .int), ("number", .double), ("callable", .function), ("true", .bool(true)), ("false", .bool(false)):
        return true
    case ("iterable", .string), ("iterable", .list), ("iterable", .dict), ("sequence", .string), ("sequence", .list), ("sequence", .dict):
        return true
    case ("in", _), ("equalto", _), ("eq", _), ("ne", _), ("lt", _), ("le", _), ("gt", _), ("ge", _):
        return try value.compared(name, argument)
    default: return false
    }
}

let templateFilters: Set<String> = [
    "trim", "length", "count", "upper", "lower", "title", "capitalize", "tojson", "join", "first", "last", "list", "map", "select",
    "reject", "selectattr", "rejectattr", "items", "dictsort", "replace", "string", "int", "float", "default", "d", "safe", "indent",
    "reverse",
]

/// Applies a filter of Jinja.
func filter(_ name: String, _ value: TemplateValue, _ given: TemplateArguments) throws -> TemplateValue {
    switch name {
    case "default", "d":
        var isMissing = false
        if case .undefined = value { isMissing = true }
        if given.at(1, "boolean")?.isTrue == true && !value.isTrue { isMissing = true }
        return isMissing ? given.at(0, "default_value") ?? .string("") : value
    case "trim": return .string(stripped(value.text, given.text(0, "chars"), true, true))
    case "length", "count": return .int(try value.items().count)
    case "upper": return .string(value.text.uppercased())
    case "lower": return .string(value.text.lowercased())
    case "title": return .string(titled(value.text))
    case "capitalize": return .string(capitalized(value.text))
    case "string", "safe": return .string(value.text)
    case "tojson":
        var style = JSONStyle()
        style.ascii = given.at(0, "ensure_ascii")?.isTrue ?? false
        style.indent = given.at(1, "indent")?.int
        style.sorted = given.named["sort_keys"]?.isTrue ?? false
        if case .list(let pair)? = given.named["separators"], pair.count == 2 { (style.comma, style.colon) = (pair[0].text, pair[1].text) }
        return .string(try value.json().written(style))
    case "join": return .string(try attributes(value, given).map { $0.text }.joined(separator: given.text(0, "d") ?? ""))
    case "first": return try value.items().first ?? .undefined("the first item of an empty list")
    case "last": return try value.items().last ?? .undefined("the last item of an empty list")
    case "list": return .list(try value.items())
    case "reverse":
        if case .string(let text) = value { return .string(String(text.reversed())) }
        return .list(try value.items().reversed())
    case "map":
        if given.named["attribute"] != nil { return .list(try attributes(value, given)) }
        let name = given.text(0) ?? ""
        if !templateFilters.contains(name) { throw TemplateFailure("No filter named '\(name)'.") }
        let rest = TemplateArguments(positional: Array(given.positional.dropFirst()))
        return .list(try value.items().map { try filter(name, $0, rest) })
    case "select", "reject": return .list(try value.items().filter { try passes($0, given, 0) == (name == "select") })
    case "selectattr", "rejectattr":
        let key = given.text(0) ?? ""
        return .list(try value.items().filter { try passes(try path($0, key), given, 1) == (name == "selectattr") })
    case "items": return .list(try value.fields().map { .list([.string($0.name), $0.value]) })
    case "dictsort":
        let sorted = try value.fields().sorted { $0.name.lowercased() < $1.name.lowercased() }
        return .list(sorted.map { .list([.string($0.name), $0.value]) })
    case "replace": return .string(try replaced(value.text, given))
    case "int":
        let number = value.number ?? Double(stripped(value.text, nil, true, true))
        return number.flatMap { Int(exactly: $0.rounded(.towardZero)) }.map { .int($0) } ?? given.at(0, "default") ?? .int(0)
    case "float":
        let number = value.number ?? Double(stripped(value.text, nil, true, true))
        return number.map { .double($0) } ?? given.at(0, "default") ?? .double(0)
    default:  // indent
        let width = given.at(0, "width") ?? .int(4)
        let prefix = width.int.map { String(repeating: " ", count: max($0, 0)) } ?? width.text
        let isFirst = given.at(1, "first")?.isTrue ?? false
        let isBlank = given.at(2, "blank")?.isTrue ?? false
        let lines = value.text.components(separatedBy: "\n").enumerated().map { index, line -> String in
            let isIndented = index == 0 ? isFirst : isBlank || !line.isEmpty
            return isIndented ? prefix + line : line
        }
        return .string(lines.joined(separator: "\n"))
    }
}

/// An item of a value, or of one of its items, with dots between the names.
private func path(_ value: TemplateValue, _ name: String) throws -> TemplateValue {
    try name.components(separatedBy: ".").reduce(value) { try $0.item(Int($1).map { .int($0) } ?? .string($1)) }
}

private func attributes(_ value: TemplateValue, _ given: TemplateArguments) throws -> [TemplateValue] {
    let items = try value.items()
    guard let name = given.named["attribute"]?.text else { return items }
    return try items.map { try path($0, name) }
}

private func passes(_ value: TemplateValue, _ given: TemplateArguments, _ from: Int) throws -> Bool {
    guard let name = given.text(from) else { return value.isTrue }
    let argument = given.at(from + 1) ?? .null
    if ["==", "!=", "<", "<=", ">", ">="].contains(name) { return try value.compared(name, argument) }
    if !templateTests.contains(name) { throw TemplateFailure("No test named '\(name)'.") }
    return try test(name, value, argument)
}

/// The functions that every template may call.
private let templateFunctions: [String: TemplateValue] = [
    "namespace": .function { given in
        var values = given.named
        for (name, value) in try (given.at(0) ?? .dict([])).fields() where values[name] == nil { values[name] = value }
        return .object(TemplateObject(values))
    },
    "dict": .function { given in .dict(given.named.keys.sorted().map { (name: $0, value: given.named[$0] ?? .null) }) },
    "range": .function { given in
        let limits = try given.positional.map { limit -> Int in
            guard let number = limit.int else { throw TemplateFailure("range() needs integers") }
            return number
        }
        if limits.isEmpty { throw TemplateFailure("range() needs integers") }
        let step = limits.count > 2 ? limits[2] : 1
        let start = limits.count > 1 ? limits[0] : 0
        let stop = limits.count > 1 ? limits[1] : limits[0]
        if step == 0 { throw TemplateFailure("range() arg 3 must not be zero") }
        if (stop - start) / step > 100_000 { throw TemplateFailure("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).") }
        return .list(stride(from: start, to: stop, by: step).map { .int($0) })
    },
    "raise_exception": .function { given in throw TemplateFailure(given.text(0) ?? "", refuses: true) },
    "strftime_now": .function { given in .string(try now(given.text(0) ?? "")) },
]

/// The present time as `strftime` of Python writes it.
private func now(_ form: String) throws -> String {
    let patterns: [Character: String] = [
        "Y": "yyyy", "m": "MM", "d": "dd", "B": "MMMM", "b": "MMM", "A": "EEEE", "a": "EEE", "H": "HH", "M": "mm", "S": "ss", "y": "yy",
        "I": "hh", "p": "a", "j": "DDD",
    ]
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    var result = ""
    var chars = form[...]
    while let char = chars.popFirst() {
        if char != "%" {
            result.append(char)
            continue
        }
        let isShort = chars.first == "-"
        if isShort { chars.removeFirst() }
        guard let code = chars.popFirst() else { break }
        if code == "%" {
            result += "%"
            continue
        }
        guard let pattern = patterns[code] else { throw TemplateFailure("the date format %\(code) is unsupported") }
        formatter.dateFormat = isShort ? String(pattern.prefix(1)) : pattern
        result += formatter.string(from: Date())
    }
    return result
}
