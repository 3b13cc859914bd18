import Foundation

/// An error of this library. Its message says what is wrong, what was expected, what was received, and what to do.
public protocol KerasformerError: LocalizedError, CustomStringConvertible, Sendable {
    var message: String { get }
}

extension KerasformerError {
    public var errorDescription: String? { message }
    public var description: String { message }
}

/// A bundle that is incomplete, changed, or written by a newer version.
public struct BundleError: KerasformerError {
    public let message: String

    init(_ message: String) { self.message = message }
}

/// An invalid argument or text.
public struct InputError: KerasformerError {
    public let message: String

    init(_ message: String) { self.message = message }
}

/// More tokens than the model or its cache can hold.
public struct CapacityError: KerasformerError {
    public let message: String
    /// The allowed number of tokens.
    public let most: Int
    /// The received number of tokens.
    public let received: Int

    init(_ message: String, most: Int, received: Int) {
        self.message = message
        self.most = most
        self.received = received
    }
}

/// Generation settings that contradict each other or that are unsupported.
public struct GenerationError: KerasformerError {
    public let message: String

    init(_ message: String) { self.message = message }
}

/// A tokenizer that is missing, damaged or unsupported.
public struct TokenizerError: KerasformerError {
    public let message: String

    init(_ message: String) { self.message = message }
}

/// A chat template that is missing, damaged, unsupported or exceeds a limit, or a conversation that it refuses.
public struct ChatTemplateError: KerasformerError {
    public let message: String

    init(_ message: String) { self.message = message }
}

/// An engine that cannot load or run a model on this device.
public struct EngineError: KerasformerError {
    public let message: String

    public init(_ message: String) { self.message = message }
}
