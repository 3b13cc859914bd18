import Foundation

/// A message of a conversation.
public struct Message: Sendable, Equatable {
    /// Such as `"user"`, `"assistant"` or `"system"`.
    public var role: String
    /// Its text; `nil` beside tool calls in OpenAI's form.
    public var content: String?
    /// Further fields that the chat template reads, such as `"tool_calls"`.
    public var fields: [String: JSON]

    public init(role: String, content: String?, fields: [String: JSON] = [:]) {
        self.role = role
        self.content = content
        self.fields = fields
    }

    var json: JSON {
        let others = fields.keys.sorted().map { JSON.Field(name: $0, value: fields[$0] ?? .null) }
        return .object([JSON.Field(name: "role", value: .string(role)), JSON.Field(name: "content", value: content.map { .string($0) } ?? .null)] + others)
    }
}

/// Converts conversations to text, as `Tokenizer.apply_chat_template` of the Python package.
final class ChatTemplate {
    private let tokenizer: Tokenizer
    private let usual: (source: String, template: Template)
    private let forTools: (source: String, template: Template)

    private static let roles = ["system", "developer", "user", "assistant", "tool", "function"]
    private static let reasoning = ["reasoning_content", "thinking", "reasoning"]

    /// `value` is that of `chat_template` in `tokenizer_config.json`: a template, or a list of named ones, of which `default` is
    /// used, and `tool_use` if tools are given.
    ///
    /// - Throws: `ChatTemplateError` if the template is damaged or unsupported, or none of several is the default one.
    init(_ value: JSON, _ tokenizer: Tokenizer) throws {
        self.tokenizer = tokenizer
        let named = value.items ?? [["name": "default", "template": value]]
        func template(_ name: String) throws -> (source: String, template: Template)? {
            guard let source = named.first(where: { $0.text("name") == name })?["template"].string else { return nil }
            return (source: source, template: try Template(source))
        }
        guard let found = try template("default") else {
            let names = named.map { repr($0["name"]) }.joined(separator: ", ")
            throw ChatTemplateError(
                "This tokenizer has several chat templates, and none of them is 'default'. Expected chat_template=… to be one of \(names). "
                    + "Received: none")
        }
        usual = found
        forTools = try template("tool_use") ?? found
    }

    /// The text of a conversation. `prompts` tells that an answer follows; `variables` are further ones of the template.
    func render(_ messages: [JSON], _ tools: [JSON]? = nil, _ documents: [JSON]? = nil, prompts: Bool = false, _ variables: [String: JSON] = [:])
        throws -> String
    {
        if messages.isEmpty {
            throw InputError(
                "A conversation must be a non-empty list of messages, such as {\"role\": \"user\", \"content\": \"Hello\"}. Received: []")
        }
        let chosen = (tools ?? []).isEmpty ? usual : forTools
        var given: [String: TemplateValue] = [
            "tools": tools.map { .list($0.map { TemplateValue($0) }) } ?? .null,
            "documents": documents.map { .list($0.map { TemplateValue($0) }) } ?? .null,
            "add_generation_prompt": .bool(prompts),
        ]
        for (name, token) in tokenizer.specialTokens { given[name] = .string(token) }
        for (name, value) in variables { given[name] = TemplateValue(value) }
        let text = try ChatTemplate.best(messages.map(withReasoning)) { version in
            given["messages"] = .list(version.map { TemplateValue($0) })
            return try chosen.template.render(given)
        }
        for (index, message) in messages.enumerated() { try checkRole(message.text("role"), index, chosen.source) }
        return text
    }

    /// Renders a conversation with the keys that are `null`, or else without those that the template cannot read: with those of
    /// the content alone, then with none.
    private static func best(_ conversation: [JSON], _ write: ([JSON]) throws -> String) throws -> String {
        func without(_ kept: String...) -> [JSON] {
            conversation.map { message in .object(message.fields.filter { !$0.value.isNull || kept.contains($0.name) }) }
        }
        let hasNull = conversation.contains { message in message.fields.contains { $0.value.isNull } }
        var texts: [String] = []
        var failure: Error?
        for version in hasNull ? [conversation, without("content"), without()] : [conversation] {
            do { texts.append(try write(version)) } catch { failure = failure ?? error }
        }
        let counts = texts.map { $0.components(separatedBy: "None").count }
        if let least = counts.min(), let index = counts.firstIndex(of: least) { return texts[index] }
        throw failure ?? InputError("A conversation must be a non-empty list of messages. Received: []")
    }

    /// The token that the template puts after an answer, if there is one.
    private(set) lazy var turnEnd: Int? = {
        let answer = "Kerasformer"
        let turns = [Message(role: "user", content: answer).json, Message(role: "assistant", content: answer).json]
        // A template for other roles fails.
        guard let text = try? render(turns), let last = text.range(of: answer, options: .backwards) else { return nil }
        let after = String(text[last.upperBound...].drop { $0.isWhitespace })
        guard let first = try? tokenizer.encode(after, special: false).ids.first, tokenizer.isAdded(first) else { return nil }
        return tokenizer.decode([first]).allSatisfy { $0.isWhitespace } ? nil : first
    }()

    /// Checks a role that the template did not refuse; most templates write any role as it is.
    private func checkRole(_ role: String, _ index: Int, _ source: String) throws {
        if ChatTemplate.roles.contains(role) || source.contains("'\(role)'") || source.contains("\"\(role)\"") { return }
        throw InputError(
            "Message \(index) has an unknown role. Expected one of \(ChatTemplate.roles.joined(separator: ", ")), or another one that the "
                + "chat template names. Received: \(repr(role))")
    }

    /// Adds a message's reasoning under the names that templates read.
    private func withReasoning(_ message: JSON) -> JSON {
        guard let name = ChatTemplate.reasoning.first(where: { !message[$0].isNull }) else { return message }
        let result = message.with("reasoning_content", message[name])
        return message.has("thinking") ? result : result.with("thinking", message[name])
    }
}
