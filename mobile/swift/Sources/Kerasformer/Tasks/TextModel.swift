import Foundation

/// Opens the model files of a bundle with a runtime, such as `.onnxRuntime()`.
public struct EngineOpener: Sendable {
    let open: @Sendable (ModelBundle) throws -> Engine

    public init(_ open: @escaping @Sendable (ModelBundle) throws -> Engine) { self.open = open }
}

/// What is known about a model.
public struct ModelInfo: Sendable {
    /// The task that it was exported for, as `kf.pipeline` names it, such as `"text-classification"`.
    public let task: String
    public let name: String
    public let modelType: String
    /// The names of the classes.
    public let labels: [String]
    /// The largest number of tokens of a text.
    public let maxLength: Int?
    /// The largest number of tokens of a generated text with its prompt.
    public let capacity: Int?
    /// The languages of a translator, if tokens select them.
    public let languages: [String]
    /// The token that stands for a masked word.
    public let maskToken: String?
    /// Generation settings of the bundle that this library does not support.
    public let ignoredSettings: [String]
}

/// A model that is ready to answer. Any task may call it; the calls of one model are carried out one after another, outside of
/// Swift's pool of threads. A cancelled task ends its call at the next chunk or token with `CancellationError`.
public final class TextModel: @unchecked Sendable {
    public let info: ModelInfo
    public let tokenizer: Tokenizer
    let details: JSON
    let chatTemplate: ChatTemplate?
    let bundle: ModelBundle
    private var engine: Engine?
    private var loaded: Loaded?
    private let queue = DispatchQueue(label: "kerasformer.model")

    /// The parts that exist as long as the model is open.
    private enum Loaded {
        case encoder(Forward)
        case generator(Step, PrefixCache)
    }

    /// Reads a bundle's folder, checks its files, and loads the model.
    ///
    /// - Throws: `BundleError` if a file is missing or was changed; `TokenizerError`, `ChatTemplateError`, `EngineError`.
    public static func open(_ folder: URL, engine: EngineOpener) async throws -> TextModel {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async { continuation.resume(with: Result { try TextModel(folder, engine: engine) }) }
        }
    }

    /// Like `open`, for programs without concurrency.
    public init(_ folder: URL, engine opener: EngineOpener) throws {
        bundle = try ModelBundle(folder: folder)
        for name in ["tokenizer.json", "tokenizer_config.json", "target_tokenizer.json"] where bundle.has(name) { _ = try bundle.file(name) }
        tokenizer = try Tokenizer(folder: folder)
        details = bundle.info
        let template = tokenizer.settings["chat_template"]
        chatTemplate = template.isNull ? nil : try ChatTemplate(template, tokenizer)
        var languages = details["languages"]["ids"].fields
        languages.sort { $0.value.int ?? 0 < $1.value.int ?? 0 }
        info = ModelInfo(
            task: details.text("task"), name: details.text("name"), modelType: details.text("model_type"),
            labels: details.list("labels").map { $0.string ?? "" }, maxLength: details["max_length"].int, capacity: bundle.capacity,
            languages: languages.map { $0.name }, maskToken: tokenizer.specialTokens["mask_token"],
            ignoredSettings: ignoredSettings(details["generation"].dictionary))
        let engine = try opener.open(bundle)
        self.engine = engine
        if bundle.ofRole("forward").isEmpty {
            let step = try stepOf(bundle, engine)
            loaded = .generator(step, PrefixCache(step))
        } else {
            loaded = .encoder(Forward(bundle, engine))
        }
    }

    /// Frees the engine, after the calls that were made before.
    public func close() {
        queue.async {
            self.loaded = nil
            self.engine = nil
        }
    }

    /// Carries out a call, after those that were made before.
    func perform<Value>(_ work: @escaping (Cancellation) throws -> Value) async throws -> Value {
        let cancellation = Cancellation()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Value, Error>) in
                queue.async {
                    continuation.resume(
                        with: Result {
                            try cancellation.check()
                            return try work(cancellation)
                        })
                }
            }
        } onCancel: {
            cancellation.cancel()
        }
    }

    /// Carries out a call that passes its result on in pieces.
    func stream(_ work: @escaping (Cancellation, @escaping (String) -> Void) throws -> FinishReason) -> GeneratedText {
        let cancellation = Cancellation()
        let pieces = AsyncThrowingStream<GeneratedPiece, Error> { continuation in
            continuation.onTermination = { _ in cancellation.cancel() }
            queue.async {
                do {
                    try cancellation.check()
                    let reason = try work(cancellation) { text in
                        if !text.isEmpty { continuation.yield(GeneratedPiece(text: text, finishReason: nil)) }
                    }
                    continuation.yield(GeneratedPiece(text: "", finishReason: reason))
                    continuation.finish()
                } catch {
                    continuation.finish(throwing: error)
                }
            }
        }
        return GeneratedText(pieces: pieces)
    }

    func encoder(for tasks: String...) throws -> Forward {
        try checkTask(tasks)
        if case .encoder(let forward)? = loaded { return forward }
        throw InputError("This model was closed. Open it again")
    }

    func generator(for tasks: String...) throws -> (step: Step, cache: PrefixCache) {
        try checkTask(tasks)
        if case .generator(let step, let cache)? = loaded { return (step: step, cache: cache) }
        throw InputError("This model was closed. Open it again")
    }

    private func checkTask(_ tasks: [String]) throws {
        if tasks.contains(info.task) { return }
        throw InputError("This bundle is for \(info.task). Received: a call for \(tasks.joined(separator: ", "))")
    }
}

/// A part of a generated text. The last one has no text, but the reason of the end.
public struct GeneratedPiece: Sendable {
    public let text: String
    public let finishReason: FinishReason?
}

/// A text that is generated while it is read, in pieces without incomplete characters. To end a generation, end the loop over
/// its pieces.
///
/// ```swift
/// for try await piece in model.generate("Once upon a time") { print(piece.text, terminator: "") }
/// ```
public struct GeneratedText: AsyncSequence, Sendable {
    public typealias Element = GeneratedPiece
    let pieces: AsyncThrowingStream<GeneratedPiece, Error>

    public func makeAsyncIterator() -> AsyncThrowingStream<GeneratedPiece, Error>.Iterator { pieces.makeAsyncIterator() }

    /// The whole text.
    public func text() async throws -> String {
        var result = ""
        for try await piece in pieces { result += piece.text }
        return result
    }
}

/// Whether a call was cancelled.
final class Cancellation: @unchecked Sendable {
    private let lock = NSLock()
    private var isCancelled = false

    func cancel() {
        lock.lock()
        isCancelled = true
        lock.unlock()
    }

    func check() throws {
        lock.lock()
        defer { lock.unlock() }
        if isCancelled { throw CancellationError() }
    }
}

extension JSON {
    /// The fields by name.
    var dictionary: [String: JSON] { Dictionary(fields.map { ($0.name, $0.value) }) { $1 } }
}
