/// A generating model in TFLite: shapes are fixed, and there is a function for each of several lengths.
final class StaticStep: Step {
    let isEncoderDecoder: Bool
    let capacity: Int
    let vocabularySize: Int
    private let engine: Engine
    private let steps: [Signature]
    /// Functions that read a prompt or encode a text, in ascending order of their lengths.
    private let readers: [Signature]
    private let caches: [String]
    private let logits: String
    private let padding: Int
    private let encoderCapacity: Int
    /// Caches of a sliding window have fewer slots than the text has tokens, and can discard only the last ones.
    private let margin: Int

    private struct Caches: State {
        var tensors: [String: Tensor]
        let memory: [String: Tensor]
        /// Number of tokens of the encoded text.
        let encodedLength: Int
        /// Number of tokens in the caches.
        let position: Int
        /// Number of these tokens that a step has read and that the caches of a sliding window can discard.
        let steps: Int
    }

    init(_ bundle: ModelBundle, _ engine: Engine) throws {
        self.engine = engine
        steps = bundle.ofRole("decode").filter { $0.rows == 1 }.sorted { $0.cacheLength ?? Int.max < $1.cacheLength ?? Int.max }
        // The step that attends to all slots, for texts that are too long for the others.
        let plain: Signature
        (plain, logits, vocabularySize) = try logitsOf(steps.last)
        caches = plain.inputs(of: "key", "value", "state")
        let slots = bundle.capacity ?? plain.inputs[caches.first ?? ""]?.shape[2] ?? 0
        capacity = slots
        margin = caches.map { plain.inputs[$0]?.margin ?? slots }.min() ?? slots
        isEncoderDecoder = bundle.info.flag("is_encoder_decoder")
        encoderCapacity = plain.inputs(of: "memory_mask").first.flatMap { plain.inputs[$0]?.shape[1] } ?? 0
        let isEncoder = isEncoderDecoder
        readers = bundle.ofRole(isEncoder ? "encode" : "prefill").filter { isEncoder || $0.cacheLength ?? slots == slots }
        padding = bundle.padding
    }

    func start(_ ids: [Int]) throws -> State {
        if !isEncoderDecoder && ids.count > capacity {
            throw CapacityError(
                "A prompt must have at most \(capacity) tokens. Received: \(ids.count). Shorten the prompt", most: capacity, received: ids.count)
        }
        var tensors: [String: Tensor] = [:]
        for name in caches { tensors[name] = Zeros(shape: steps[steps.count - 1].inputs[name]?.shape ?? []) }
        let memory = isEncoderDecoder ? try encoded(ids) : [:]
        let state = Caches(tensors: tensors, memory: memory, encodedLength: isEncoderDecoder ? ids.count : 0, position: 0, steps: 0)
        return isEncoderDecoder ? state : try prefilled(Array(ids.dropLast()), state)
    }

    func resume(_ state: State, length: Int, _ ids: [Int]) throws -> State? {
        guard let state = state as? Caches else { return nil }
        if margin < capacity && state.position - length > state.steps { return nil }
        let shorter = Caches(tensors: state.tensors, memory: state.memory, encodedLength: state.encodedLength, position: length, steps: 0)
        return try prefilled(ids, shorter)
    }

    func step(_ token: Int, _ state: State, isLast: Bool) throws -> (logits: [Float], state: State) {
        guard let state = state as? Caches else { throw EngineError("The state belongs to another model") }
        if state.position >= capacity {
            throw CapacityError(
                "The cache is full: it holds \(capacity) tokens, including the prompt. Request fewer tokens", most: capacity,
                received: capacity + 1)
        }
        var outputs = try read(stepFor(state), [token], state, isLast: isLast)
        let values = try outputs.removeValue(forKey: logits)?.floats() ?? []
        return (logits: values, state: advanced(state, by: 1, outputs, steps: min(state.steps + 1, margin)))
    }

    private func encoded(_ ids: [Int]) throws -> [String: Tensor] {
        let signature = try shortest(readers, ids.count, "input")
        let size = signature.tokens ?? ids.count
        let ones = [Int](repeating: 1, count: ids.count)
        let inputs = signature.named([
            "ids": IntTensor(padded(ids, size, padding), shape: [1, size]), "mask": IntTensor(padded(ones, size, 0), shape: [1, size]),
        ])
        var memory = try engine.run(signature.name, inputs: inputs, outputs: signature.outputs.keys.sorted(), replaced: [])
        for name in steps[steps.count - 1].inputs(of: "memory_mask") {
            memory[name] = IntTensor(padded(ones, encoderCapacity, 0), shape: [1, encoderCapacity])
        }
        return memory
    }

    /// Reads tokens of a prompt after those in the caches.
    private func prefilled(_ ids: [Int], _ start: Caches) throws -> State {
        var state = start
        let lengths = readers.map { $0.tokens ?? 0 }
        for size in prefillPlan(ids.count, capacity: capacity, lengths: lengths, start: start.position) {
            let from = state.position - start.position
            let part = Array(ids[from..<min(from + size, ids.count)])
            let signature = size == 1 ? stepFor(state) : readers[lengths.firstIndex(of: size) ?? 0]
            var outputs = try read(signature, padded(part, size, padding), state, isLast: true)
            outputs.removeValue(forKey: logits)
            state = advanced(state, by: part.count, outputs, steps: 0)
        }
        return state
    }

    private func advanced(_ state: Caches, by count: Int, _ tensors: [String: Tensor], steps: Int) -> Caches {
        Caches(tensors: tensors, memory: state.memory, encodedLength: state.encodedLength, position: state.position + count, steps: steps)
    }

    /// The step with the smallest sufficient cache length.
    private func stepFor(_ state: Caches) -> Signature {
        let reach = max(state.position + 1, state.encodedLength)
        return steps.first { $0.cacheLength ?? Int.max >= reach } ?? steps[steps.count - 1]
    }

    /// The outputs of a function, with the caches by the names of the inputs that they continue.
    private func read(_ signature: Signature, _ tokens: [Int], _ state: Caches, isLast: Bool) throws -> [String: Tensor] {
        let slots = [Int](state.position..<(state.position + tokens.count))
        var inputs = signature.named(["ids": IntTensor(tokens, shape: [1, tokens.count]), "slots": IntTensor(slots, shape: [tokens.count])])
        inputs.merge(state.tensors) { $1 }
        for (name, tensor) in state.memory where signature.inputs[name] != nil { inputs[name] = tensor }
        let outputs = try engine.run(
            signature.name, inputs: inputs, outputs: signature.outputs.keys.sorted(), replaced: isLast ? Set(state.tensors.keys) : [])
        var result: [String: Tensor] = [:]
        for (name, tensor) in outputs { result[signature.outputs[name]?.continues ?? name] = tensor }
        return result
    }
}

/// The sizes of the calls that read a prompt: prefill lengths, and 1 for a step.
///
/// The last call may be up to two and a half times longer than the remaining tokens, because the additional slots are
/// overwritten before they are read. It must not exceed the cache: the runtime would then move the whole write back and
/// overwrite older tokens.
func prefillPlan(_ count: Int, capacity: Int, lengths: [Int], start: Int) -> [Int] {
    var sizes: [Int] = []
    var position = start
    while position < start + count {
        let left = start + count - position
        let fitting = lengths.filter { position + $0 <= capacity }
        let whole = fitting.last { $0 <= left }
        var size = whole ?? 1
        if let enough = fitting.first(where: { $0 >= left }), Double(enough) <= 2.5 * Double(left) || whole == nil { size = enough }
        if left == 1 { size = 1 }
        sizes.append(size)
        position += min(size, left)
    }
    return sizes
}
