/// The state of a text in a model: its caches and number of tokens. Its memory is freed when nothing refers to it.
protocol State {}

/// A model that generates. A step leaves its input state valid, so that several hypotheses can continue from one.
protocol Step: AnyObject {
    /// Whether `start` takes the input of an encoder.
    var isEncoderDecoder: Bool { get }
    /// Number of slots of the decoder's cache, for the prompt and generated tokens.
    var capacity: Int { get }
    /// Number of logits.
    var vocabularySize: Int { get }

    /// Reads all but the last token of a prompt, or encodes a text.
    func start(_ ids: [Int]) throws -> State

    /// Keeps the first `length` tokens of a text, at least one, and reads others after them; `nil` if the caches no longer have
    /// the keys of these tokens.
    func resume(_ state: State, length: Int, _ ids: [Int]) throws -> State?

    /// The logits after one more token, and the state after it. `isLast` tells that the given state is not used again.
    func step(_ token: Int, _ state: State, isLast: Bool) throws -> (logits: [Float], state: State)
}

/// Reuse of the caches of a text for a text that starts with the same tokens, as the turns of a conversation do.
final class PrefixCache {
    private let step: Step
    private var kept: State?
    private var ids: [Int] = []

    init(_ step: Step) { self.step = step }

    /// Reads a prompt, or only its last part; see `Step.start`.
    func start(_ prompt: [Int]) throws -> State {
        guard let state = kept else { return try step.start(prompt) }
        kept = nil  // a state can be resumed once
        let read = prompt.dropLast()
        var common = 0
        while common < read.count && common < ids.count && read[common] == ids[common] { common += 1 }
        if common > 0, let resumed = try step.resume(state, length: common, Array(read[common...])) { return resumed }
        return try step.start(prompt)
    }

    /// Keeps a state, with the tokens in its caches.
    func keep(_ state: State, _ tokens: [Int]) {
        kept = state
        ids = tokens
    }
}
