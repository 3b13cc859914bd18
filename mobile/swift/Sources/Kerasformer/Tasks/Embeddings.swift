/// How a vector of a text is computed by a model for embeddings.
public struct EmbeddingOptions: Sendable {
    /// The name of one of the model's prompts, which is put before a text; or a prompt of one's own.
    public var promptName, prompt: String?
    /// Number of entries that are kept.
    public var truncateDim: Int?
    /// Whether vectors are scaled to length 1; as the model does by default.
    public var normalize: Bool?

    public init(promptName: String? = nil, prompt: String? = nil, truncateDim: Int? = nil, normalize: Bool? = nil) {
        self.promptName = promptName
        self.prompt = prompt
        self.truncateDim = truncateDim
        self.normalize = normalize
    }
}

/// How the vectors of tokens become one of a text, for models without a rule of their own.
public enum Pooling: String, Sendable {
    case mean, cls
}

extension TextModel {
    /// The vector of each text. Models for embeddings have rules of their own; for others, `pooling` makes one of the vectors
    /// of tokens.
    public func embed(
        _ texts: [String], options: EmbeddingOptions = EmbeddingOptions(), pooling: Pooling = .mean, length: LongText = LongText()
    ) async throws -> [[Double]] {
        try await perform { [self] cancellation in
            if !details["embedding"].isNull { return try embeddings(texts, try prompt(options), options, length, cancellation) }
            return try texts.map { text in
                let parts = try chunks(text, length)
                let forward = try encoder(for: "feature-extraction")
                let outputs = try forwardAll(forward, parts, cancellation)
                var vectors: [[Double]] = []
                for (part, output) in zip(parts, outputs) {
                    if output["sentence_embedding"] != nil {
                        if pooling == .cls { throw InputError("This bundle computes the mean of the token vectors. Received: pooling='cls'") }
                        vectors.append(try values(output, "sentence_embedding"))
                    } else {
                        let states = rows(try values(output, "last_hidden_state"), part.count)
                        let mean = states[0].indices.map { column in states.reduce(0.0) { $0 + $1[column] } / Double(states.count) }
                        vectors.append(pooling == .cls ? states[0] : mean)
                    }
                }
                let vector = combined(vectors, parts)
                return options.normalize == true ? unit(vector) : vector
            }
        }
    }

    /// The vector of a text; see above.
    public func embed(
        _ text: String, options: EmbeddingOptions = EmbeddingOptions(), pooling: Pooling = .mean, length: LongText = LongText()
    ) async throws -> [Double] {
        try await embed([text], options: options, pooling: pooling, length: length)[0]
    }

    /// The vector of each token of a text, including special tokens, of a model for feature extraction.
    public func tokenVectors(_ text: String, normalize: Bool = false, length: LongText = LongText()) async throws -> [[Double]] {
        try await perform { [self] cancellation in
            let parts = try chunks(text, length)
            let outputs = try forwardAll(try encoder(for: "feature-extraction"), parts, cancellation)
            let states = try zip(parts, outputs).map { rows(try values($1, "last_hidden_state"), $0.count) }
            return bestPlaces(parts).map { normalize ? unit(states[$0.chunk][$0.index]) : states[$0.chunk][$0.index] }
        }
    }

    /// The similarity of a query to each document; larger for closer ones.
    func similarity(
        _ query: String, _ documents: [String], _ options: EmbeddingOptions, _ length: LongText, _ cancellation: Cancellation
    ) throws -> [Double] {
        let asked = try embeddings([query], try prompt(options, ["query"]), options, length, cancellation)[0]
        let found = try embeddings(documents, try prompt(options, ["document", "passage", "corpus"]), options, length, cancellation)
        let kind = details["embedding"].text("similarity")
        return found.map { vector in
            let difference = zip(asked, vector).map { $0 - $1 }
            switch kind {
            case "cosine": return dot(unit(asked), unit(vector))
            case "dot": return dot(asked, vector)
            case "manhattan": return -difference.reduce(0.0) { $0 + $1.magnitude }
            default: return -dot(difference, difference).squareRoot()
            }
        }
    }

    private func embeddings(
        _ texts: [String], _ prompt: String, _ options: EmbeddingOptions, _ length: LongText, _ cancellation: Cancellation
    ) throws -> [[Double]] {
        let forward = try encoder(for: "sentence-similarity")
        let known = details["embedding"]
        let dimension = known["dimension"].int ?? 0
        let size = try options.truncateDim.map { try checked("truncate_dim", $0, 1, dimension, optional: true) }
        return try texts.map { text in
            let parts = try chunks(prompt + text, length)
            let vectors = try forwardAll(forward, parts, cancellation).map { try values($0, "sentence_embedding") }
            let vector = Array(combined(vectors, parts).prefix(size ?? known["truncate_dim"].int ?? dimension))
            return options.normalize ?? known.flag("normalized") ? unit(vector) : vector
        }
    }

    /// The text to put before inputs: the requested prompt; else the first prompt of some names; else the default prompt.
    private func prompt(_ options: EmbeddingOptions, _ names: [String]? = nil) throws -> String {
        let prompts = details["embedding"]["prompts"]
        if let prompt = options.prompt {
            if options.promptName == nil { return prompt }
            throw InputError("Only one of prompt_name and prompt can be set. Received: both")
        }
        guard let name = options.promptName else {
            if let names = names { return names.first { prompts.has($0) }.map { prompts.text($0) } ?? "" }
            return details["embedding"]["default_prompt"].string.map { prompts.text($0) } ?? ""
        }
        if prompts.has(name) { return prompts.text(name) }
        let known = prompts.fields.map { repr($0.name) }.joined(separator: ", ")
        throw InputError(
            "The model has no prompt of this name. Expected: \(known.isEmpty ? "none; pass prompt= with the text" : known). Received: \(repr(name))")
    }
}
