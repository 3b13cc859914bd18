/// A generating model in ONNX: lengths are those of the call, and the caches grow with the text.
final class DynamicStep: Step {
    let isEncoderDecoder: Bool
    let capacity: Int
    let vocabularySize: Int
    private let engine: Engine
    private let decoder: Signature
    private let encoder: Signature?
    private let encoderCapacity: Int?
    private let logits: String
    private let caches: [String]
    private let states: [String]
    private let cross: [String]

    private struct Caches: State {
        let tensors: [String: Tensor]
        /// The encoded text.
        let memory: [String: Tensor]
        let length: Int
    }

    init(_ bundle: ModelBundle, _ engine: Engine) throws {
        self.engine = engine
        (decoder, logits, vocabularySize) = try logitsOf(bundle.ofRole("decode").first)
        encoder = bundle.ofRole("encode").first
        encoderCapacity = bundle.encoderCapacity
        isEncoderDecoder = encoder != nil
        guard let capacity = bundle.capacity else {
            throw BundleError("The manifest of a model that generates must have a capacity. Received: none")
        }
        self.capacity = capacity
        caches = decoder.inputs(of: "key", "value")
        states = decoder.inputs(of: "state")
        cross = decoder.inputs(of: "cross_key", "cross_value")
    }

    func start(_ ids: [Int]) throws -> State {
        if !isEncoderDecoder { try checkRoom(ids.count) }
        var tensors = empty(caches)
        for name in states { tensors[name] = Zeros(shape: shape(name, slots: decoder.inputs[name]?.shape[2] ?? 0)) }
        let state = Caches(tensors: tensors, memory: try encoded(ids), length: 0)
        return isEncoderDecoder ? state : try followed(Array(ids.dropLast()), state)
    }

    func resume(_ state: State, length: Int, _ ids: [Int]) throws -> State? {
        guard let state = state as? Caches else { return nil }
        try checkRoom(length + ids.count)
        if length == state.length { return try followed(ids, state) }
        // The states of a shorter text are gone, and caches of bytes cannot be read.
        if !states.isEmpty || caches.contains(where: { decoder.inputs[$0]?.dtype != "float32" }) { return nil }
        let shorter = try state.tensors.mapValues { try shortened($0, length) }
        return try followed(ids, Caches(tensors: shorter, memory: state.memory, length: length))
    }

    func step(_ token: Int, _ state: State, isLast: Bool) throws -> (logits: [Float], state: State) {
        guard let state = state as? Caches else { throw EngineError("The state belongs to another model") }
        try checkRoom(state.length + 1)
        let (values, next) = try read([token], state, wantsLogits: true, isLast: isLast)
        return (logits: Array(values.suffix(vocabularySize)), state: next)
    }

    private func followed(_ ids: [Int], _ state: Caches) throws -> State {
        ids.isEmpty ? state : try read(ids, state, wantsLogits: false, isLast: true).next
    }

    /// Encodes the text, and computes its keys and values once for all steps.
    private func encoded(_ ids: [Int]) throws -> [String: Tensor] {
        guard let encoder = encoder else { return [:] }
        if let most = encoderCapacity, ids.count > most {
            throw CapacityError(
                "The model reads at most \(most) tokens. Received: \(ids.count). Shorten the text", most: most, received: ids.count)
        }
        let mask = IntTensor([Int](repeating: 1, count: ids.count), shape: [1, ids.count])
        let inputs = encoder.named(["ids": IntTensor(ids, shape: [1, ids.count]), "mask": mask])
        let outputs = try engine.run(encoder.name, inputs: inputs, outputs: Array(encoder.outputs.keys), replaced: [])
        guard let hidden = outputs.values.first else { throw BundleError("The encoder has no output. Export the model again") }
        var memory = decoder.named(["memory": hidden, "memory_mask": mask])
        if cross.isEmpty { return memory }
        let all = memory.merging(integers([0], after: 0)) { $1 }.merging(empty(caches + cross)) { $1 }
        let projected = try engine.run(decoder.name, inputs: all, outputs: cross.map { decoder.next($0) }, replaced: [])
        for name in cross { memory[name] = projected[decoder.next(name)] }
        return memory
    }

    private func read(_ ids: [Int], _ state: Caches, wantsLogits: Bool, isLast: Bool) throws -> (logits: [Float], next: Caches) {
        let end = state.length + ids.count
        let inputs = integers(ids, after: state.length).merging(state.tensors) { $1 }.merging(state.memory) { $1 }
        let kept = (caches + states).map { (input: $0, output: decoder.next($0)) }
        let outputs = try engine.run(
            decoder.name, inputs: inputs, outputs: kept.map { $0.output } + (wantsLogits ? [logits] : []),
            replaced: isLast ? Set(state.tensors.keys) : [])
        var tensors: [String: Tensor] = [:]
        for (input, output) in kept { tensors[input] = outputs[output] }
        let next = Caches(tensors: tensors, memory: state.memory, length: end)
        return (logits: try outputs[logits]?.floats() ?? [], next: next)
    }

    /// The numbers that describe tokens to the decoder, after a number of others.
    private func integers(_ ids: [Int], after length: Int) -> [String: Tensor] {
        let end = length + ids.count
        let numbers: [String: [Int]] = [
            "ids": ids, "mask": [Int](repeating: 1, count: end), "positions": [Int](length..<end), "cache_length": [length],
            "logits_start": [ids.count - 1],  // the logits of one token take the least time
        ]
        var values: [String: Tensor] = [:]
        for (kind, list) in numbers {
            let isList = decoder.inputs(of: kind).contains { decoder.inputs[$0]?.shape.count == 1 }
            values[kind] = IntTensor(list, shape: isList ? [list.count] : [1, list.count])
        }
        return decoder.named(values)
    }

    private func shape(_ name: String, slots: Int) -> [Int] {
        let shape = decoder.inputs[name]?.shape ?? [1, 0, 0, 0]
        return [1, shape[1], slots, shape[3]]
    }

    private func empty(_ names: [String]) -> [String: Tensor] {
        var result: [String: Tensor] = [:]
        for name in names { result[name] = Zeros(shape: shape(name, slots: 0)) }
        return result
    }

    /// The first slots of a cache.
    private func shortened(_ cache: Tensor, _ length: Int) throws -> Tensor {
        let (heads, slots, size) = (cache.shape[1], cache.shape[2], cache.shape[3])
        let values = try cache.floats()
        let kept = (0..<heads).flatMap { values[($0 * slots * size)..<(($0 * slots + length) * size)] }
        return FloatTensor(kept, shape: [1, heads, length, size])
    }

    private func checkRoom(_ length: Int) throws {
        if length <= capacity { return }
        throw CapacityError(
            "The model holds \(capacity) tokens, including the prompt. Received: \(length). Shorten the prompt, request fewer tokens, or "
                + "export with a larger capacity",
            most: capacity, received: length)
    }
}
