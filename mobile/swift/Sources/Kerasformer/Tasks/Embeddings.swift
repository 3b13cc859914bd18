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
    /// The vector of each text, of a model for embeddings.
    public func embed(_ texts: [String], options: EmbeddingOptions = EmbeddingOptions(), length: LongText = LongText()) async throws
        -> [[Double]]
    {
        try await perform { [self] cancellation in try embeddings(texts, try prompt(options), options, length, cancellation) }
    }

    /// The vector of a text, of a model for embeddings.
    public func embed(_ text: String, options: EmbeddingOptions = EmbeddingOptions(), length: LongText = LongText()) async throws -> [Double] {
        try await embed([text], options: options, length: length)[0]
    }

    /// Documents in the order of their similarity to a query, with a model for embeddings.
    ///
    /// - Parameter topK: The number of documents; `nil` for all.
    public func search(
        _ query: String, _ documents: [String], topK: Int? = nil, options: EmbeddingOptions = EmbeddingOptions(),
        length: LongText = LongText()
    ) async throws -> [RankedDocument] {
        try await perform { [self] cancellation in
            let count = try topK.map { try checked("top_k", $0, 1, optional: true) }
            let scores = try similarity(query, documents, options, length, cancellation)
            return ranked(scores, count).map { RankedDocument(index: $0, score: scores[$0]) }
        }
    }

    /// The vectors of a text, of a model for feature extraction: one for each token, including special tokens, or a single one
    /// if they are pooled, also by the model itself.
    public func features(_ text: String, pooling: Pooling? = nil, normalize: Bool = false, length: LongText = LongText()) async throws
        -> [[Double]]
    {
        try await perform { [self] cancellation in
            let parts = try chunks(text, length)
            let outputs = try forwardAll(try encoder(for: "feature-extraction"), parts, cancellation)
            func scaled(_ row: [Double]) -> [Double] { normalize ? unit(row) : row }
            if outputs[0]["sentence_embedding"] != nil {
                if pooling == .cls {
                    throw InputError("This bundle computes the mean of the token vectors. Expected: pooling='mean' or None. Received: 'cls'")
                }
                return [scaled(combined(try outputs.map { try values($0, "sentence_embedding") }, parts))]
            }
            let states = try zip(parts, outputs).map { part, output in rows(try values(output, "last_hidden_state"), part.count) }
            guard let pooling = pooling else { return bestPlaces(parts).map { scaled(states[$0.chunk][$0.index]) } }
            let vectors = states.map { each -> [Double] in
                // A tokenizer that adds no special tokens returns none for an empty text.
                if each.isEmpty { return [Double](repeating: 0, count: bundle.ofRole("forward").first?.outputs["last_hidden_state"]?.shape.last ?? 0) }
                if pooling == .cls { return each[0] }
                return each[0].indices.map { column in each.reduce(0.0) { $0 + $1[column] } / Double(each.count) }
            }
            return [scaled(combined(vectors, parts))]
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
