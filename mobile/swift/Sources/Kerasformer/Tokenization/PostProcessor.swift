/// The template that surrounds texts with special tokens; the field `post_processor`.
struct PostProcessor {
    /// A special token if `sequence` is negative, otherwise the first or the second text.
    struct Part {
        let sequence: Int
        let id: Int
        let type: Int

        static func text(_ sequence: Int, _ type: Int) -> Part { Part(sequence: sequence, id: 0, type: type) }

        static func token(_ id: Int, _ type: Int = 0) -> Part { Part(sequence: -1, id: id, type: type) }
    }

    private var single: [Part] = [.text(0, 0)]
    private var pair: [Part] = [.text(0, 0), .text(1, 1)]
    /// The template without special tokens, if it is not the other one without them.
    private var plain: [Part] = [.text(0, 0), .text(1, 1)]
    private var isTemplate = false
    /// Whether offsets exclude the spaces at the ends of tokens.
    private(set) var trims = false
    /// Whether the space that was put before a text is not counted as one of them.
    private(set) var keepsAddedSpace = false

    /// `special` is whether special tokens are added.
    func template(isPair: Bool, special: Bool) -> [Part] {
        let whole = isPair ? pair : single
        if special { return whole }
        let texts = plain.isEmpty ? whole.filter { $0.sequence >= 0 } : plain
        return texts.filter { $0.sequence == 0 || isPair }
    }

    init(_ config: JSON) throws {
        guard let type = config["type"].string else { return }
        switch type {
        case "ByteLevel": readTrimming(config)
        case "Sequence":
            let steps = try config.list("processors").map { try PostProcessor($0) }
            if let last = steps.last(where: { $0.isTemplate }) { self = last }
            let trimming = steps.first { $0.trims }
            trims = trimming != nil
            keepsAddedSpace = trimming?.keepsAddedSpace ?? false
        case "BertProcessing":
            let cls = try PostProcessor.special(config, "cls")
            let sep = try PostProcessor.special(config, "sep")
            single = [.token(cls), .text(0, 0), .token(sep)]
            pair = single + [.text(1, 1), .token(sep, 1)]
            isTemplate = true
        case "RobertaProcessing":
            let cls = try PostProcessor.special(config, "cls")
            let sep = try PostProcessor.special(config, "sep")
            single = [.token(cls), .text(0, 0), .token(sep)]
            pair = single + [.token(sep), .text(1, 0), .token(sep)]
            plain = []
            isTemplate = true
            readTrimming(config)
        case "TemplateProcessing":
            single = try PostProcessor.parts(config, "single")
            pair = try PostProcessor.parts(config, "pair")
            plain = []
            isTemplate = true
        default: throw TokenizerError("unsupported post_processor in tokenizer.json. Received: \(type)")
        }
    }

    private mutating func readTrimming(_ config: JSON) {
        trims = config.flag("trim_offsets", true)
        keepsAddedSpace = config.flag("add_prefix_space", true)
    }

    private static func special(_ config: JSON, _ name: String) throws -> Int {
        let pair = config.list(name)
        if pair.count == 2, let id = pair[1].int { return id }
        throw TokenizerError("post_processor of tokenizer.json lacks \(name)")
    }

    private static func parts(_ config: JSON, _ name: String) throws -> [Part] {
        var result: [Part] = []
        for item in config.list(name) {
            guard let field = item.fields.first else { throw TokenizerError("post_processor of tokenizer.json is damaged") }
            let type = field.value["type_id"].int ?? 0
            let id = field.value.text("id")
            if field.name == "Sequence" {
                result.append(.text(id == "A" ? 0 : 1, type))
            } else {
                for token in config["special_tokens"][id].list("ids") { result.append(.token(token.int ?? 0, type)) }
            }
        }
        return result
    }
}
