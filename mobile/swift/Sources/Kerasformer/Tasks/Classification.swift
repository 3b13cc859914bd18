import Foundation

/// A class and its score.
public struct ClassScore: Sendable, Equatable {
    public let label: String
    public let score: Double
}

/// A document and its score.
public struct RankedDocument: Sendable, Equatable {
    /// Index of the document in the list of the call.
    public let index: Int
    public let score: Double
}

extension TextModel {
    /// The classes of a text, or of a pair of texts, the most probable first.
    ///
    /// - Parameter topK: The number of classes; `nil` for all.
    public func classify(
        _ text: String, pair: String? = nil, topK: Int? = 1, combine: Combine = .mean, length: LongText = LongText()
    ) async throws -> [ClassScore] {
        try await perform { [self] cancellation in
            let forward = try encoder(for: "text-classification", "text-ranking", "zero-shot-classification")
            let count = try topK.map { try checked("top_k", $0, 1, optional: true) }
            let parts = try pair == nil ? chunks(text, length) : [whole(text, pair: pair, truncation: length.truncation)]
            let problem = details["problem_type"].string
            let rows: [[Double]] = try forwardAll(forward, parts, cancellation).map { outputs in
                let logits = try values(outputs, "logits")
                if problem == "regression" { return logits }
                return problem == "multi_label_classification" || logits.count == 1 ? sigmoid(logits) : softmax(logits)
            }
            let scores = combined(rows, parts, combine)
            return ranked(scores, count).map { ClassScore(label: info.labels[$0], score: scores[$0]) }
        }
    }

    /// Classes that are named in the call, the most probable first, with a model for natural language inference.
    ///
    /// - Parameters:
    ///   - hypothesisTemplate: A sentence in which `{}` is replaced by the name of a class.
    ///   - multiLabel: Whether several classes may be true.
    public func classifyZeroShot(
        _ text: String, labels: [String], hypothesisTemplate: String = "This example is {}.", multiLabel: Bool = false,
        combine: Combine = .mean, length: LongText = LongText()
    ) async throws -> [ClassScore] {
        try await perform { [self] cancellation in
            let forward = try encoder(for: "text-classification", "text-ranking", "zero-shot-classification")
            if labels.isEmpty { throw InputError("At least one class was expected. Received: candidate_labels=[]") }
            let parts = hypothesisTemplate.components(separatedBy: "{}")
            if parts.count != 2 || hypothesisTemplate.filter({ "{}".contains($0) }).count != 2 {
                throw InputError(
                    "hypothesis_template must contain {}, which is replaced by the name of a class. Received: hypothesis_template="
                        + repr(hypothesisTemplate))
            }
            guard let entailment = info.labels.firstIndex(where: { $0.lowercased().hasPrefix("entail") }), info.labels.count > 1 else {
                throw InputError(
                    "zero-shot-classification needs a model for natural language inference, with a class whose name starts with 'entail' "
                        + "and at least one other. Received: the classes \(info.labels.joined(separator: ", "))")
            }
            let contradiction = entailment == 0 ? info.labels.count - 1 : 0  // as in transformers
            let isIndependent = multiLabel || labels.count == 1
            let hypotheses = labels.map { parts[0] + $0 + parts[1] }
            var evidence: [Double] = []
            for pair in try chunksOfPairs(text, hypotheses, length, isFirst: true, cut: .onlyFirst) {
                let rows = try forwardAll(forward, pair, cancellation).map { outputs -> [Double] in
                    let logits = try values(outputs, "logits")
                    return [isIndependent ? logits[entailment] - logits[contradiction] : logits[entailment]]
                }
                evidence.append(combined(rows, pair, combine)[0])
            }
            let scores = isIndependent ? sigmoid(evidence) : softmax(evidence)
            return ranked(scores).map { ClassScore(label: labels[$0], score: scores[$0]) }
        }
    }

    /// Documents in the order of their relevance to a query, with a classifier of pairs.
    ///
    /// - Parameters:
    ///   - topK: The number of documents; `nil` for all.
    ///   - label: The class that ranks documents, for a classifier with several.
    public func rank(
        _ query: String, _ documents: [String], topK: Int? = nil, label: String? = nil, combine: Combine = .max,
        length: LongText = LongText()
    ) async throws -> [RankedDocument] {
        try await perform { [self] cancellation in
            let forward = try encoder(for: "text-classification", "text-ranking", "zero-shot-classification")
            let count = try topK.map { try checked("top_k", $0, 1, optional: true) }
            guard let column = label.map({ info.labels.firstIndex(of: $0) }) ?? (info.labels.count == 1 ? 0 : nil) else {
                throw InputError(
                    "A model with several classes ranks by one of them. Expected: label=…, one of \(info.labels.joined(separator: ", ")). "
                        + "Received: label=\(repr(label))")
            }
            let activate = try activation()
            let scores = try documents.map { document -> Double in
                let parts = try chunksOfPairs(document, [query], length, isFirst: false, cut: .longestFirst)[0]
                let rows = try forwardAll(forward, parts, cancellation).map { [activate(try values($0, "logits"))[column]] }
                return combined(rows, parts, combine, text: 1)[0]
            }
            return ranked(scores, count).map { RankedDocument(index: $0, score: scores[$0]) }
        }
    }

    /// The function for the scores of a cross-encoder, by its name in the checkpoint.
    private func activation() throws -> ([Double]) -> [Double] {
        switch details["score_activation"].string {
        case nil: return info.labels.count == 1 ? sigmoid : { $0 }
        case "torch.nn.modules.linear.Identity": return { $0 }
        case "torch.nn.modules.activation.Sigmoid": return sigmoid
        case "torch.nn.modules.activation.Tanh": return { $0.map { tanh($0) } }
        case let name?:
            throw InputError("The checkpoint has an unsupported function for scores. Expected: Identity, Sigmoid or Tanh. Received: \(name)")
        }
    }
}
