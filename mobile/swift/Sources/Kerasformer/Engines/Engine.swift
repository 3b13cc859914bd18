import Foundation

/// Values in the memory of this process or of an engine, which are freed when nothing refers to them.
public protocol Tensor: AnyObject {
    /// Its dimensions.
    var shape: [Int] { get }

    /// A copy of the values, in row-major order.
    func floats() throws -> [Float]
}

/// Integers, which an engine converts to the type of the model's input.
public final class IntTensor: Tensor {
    public let shape: [Int]
    public let values: [Int]

    public init(_ values: [Int], shape: [Int]) {
        self.shape = shape
        self.values = values
    }

    public func floats() -> [Float] { values.map { Float($0) } }
}

/// Numbers in float32.
public final class FloatTensor: Tensor {
    public let shape: [Int]
    public let values: [Float]

    public init(_ values: [Float], shape: [Int]) {
        self.shape = shape
        self.values = values
    }

    public func floats() -> [Float] { values }
}

/// Zeros of any type, such as those of an empty cache.
public final class Zeros: Tensor {
    public let shape: [Int]

    public init(shape: [Int]) { self.shape = shape }

    public func floats() -> [Float] { [Float](repeating: 0, count: shape.reduce(1, *)) }
}

extension Tensor {
    /// The values as bytes of a type, for an engine, and the type.
    public func data(_ dtype: String) throws -> (data: Data, type: String) {
        if self is Zeros { return (data: Data(count: shape.reduce(dtype == "int64" ? 8 : dtype == "int8" ? 1 : 4, *)), type: dtype) }
        if let integers = self as? IntTensor {
            let bytes = dtype == "int64" ? integers.values.flatMap { littleEndian(Int64($0)) } : integers.values.flatMap { littleEndian(Int32($0)) }
            return (data: Data(bytes), type: dtype)
        }
        return (data: try floats().withUnsafeBytes { Data($0) }, type: "float32")
    }
}

private func littleEndian<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] { withUnsafeBytes(of: number.littleEndian) { Array($0) } }

/// The numbers in bytes of float32.
public func floatsOf(_ data: Data) -> [Float] {
    var result = [Float](repeating: 0, count: data.count / 4)
    _ = result.withUnsafeMutableBytes { data.copyBytes(to: $0) }
    return result
}

/// Runs the functions of a model. Calls come one after another, from any thread. A test or another runtime implements it.
public protocol Engine: AnyObject {
    /// Runs a function.
    ///
    /// - Parameters:
    ///   - signature: Its name in the manifest.
    ///   - inputs: Tensors by name.
    ///   - outputs: Names of the wanted outputs.
    ///   - replaced: Names of inputs that the caller will not use again: their memory may become that of the outputs that
    ///     continue them.
    /// - Returns: The wanted outputs, which may remain in the memory of the engine.
    /// - Throws: `EngineError` if the function cannot be run.
    func run(_ signature: String, inputs: [String: Tensor], outputs: [String], replaced: Set<String>) throws -> [String: Tensor]
}

/// The slots of the first tokens of words, and of the tokens that mark labels, for a model that finds spans.
struct SpanSlots {
    let words: [Int]
    let labels: [Int]
}

/// An encoder: reads a text of any length in ONNX, and of some lengths in TFLite.
final class Forward {
    private let engine: Engine
    private let signatures: [Signature]
    private let padding: Int
    /// Outputs with an entry for each token have a third axis, except the scores of tokens as the start or end of an answer.
    private let scoresTokens: Bool

    init(_ bundle: ModelBundle, _ engine: Engine) {
        self.engine = engine
        signatures = bundle.ofRole("forward")
        padding = bundle.padding
        scoresTokens = bundle.info.text("task") == "question-answering"
    }

    /// The outputs for a text by name; those with an entry for each token, word or label have none for padding.
    ///
    /// - Throws: `CapacityError` if the text is longer than the model reads, `InputError` if an output is not finite.
    func run(_ tokens: Encoding, _ slots: SpanSlots? = nil) throws -> [String: [Float]] {
        var values = ["ids": tokens.ids, "mask": [Int](repeating: 1, count: tokens.count), "segments": tokens.typeIds]
        values["word_slots"] = slots?.words
        values["label_slots"] = slots?.labels
        let further = values.filter { ["word_slots", "label_slots"].contains($0.key) }
        let fitting = signatures.filter { each in further.allSatisfy { holds(each, $0.key, $0.value) } }
        let signature = try shortest(fitting, tokens.count, "text")
        let size = signature.tokens ?? tokens.count
        var inputs: [String: Tensor] = [:]
        for (name, info) in signature.inputs { if let row = values[info.kind] { inputs[name] = tensor(info, row) } }
        let outputs = try engine.run(signature.name, inputs: inputs, outputs: signature.outputs.keys.sorted(), replaced: [])
        var result: [String: [Float]] = [:]
        for (name, output) in outputs {
            var values = try output.floats()
            let perToken = scoresTokens || (signature.outputs[name]?.shape.count ?? 0) > 2
            if let slots = slots {
                values = withoutPadding(values, output.shape, slots)
            } else if perToken, signature.tokens != nil {
                values = Array(values.prefix(values.count / size * tokens.count))
            }
            if let wrong = values.first(where: { !$0.isFinite }) {
                throw InputError(
                    "The model's output for a text is not finite. Expected: finite numbers. Received: \(repr(.double(Double(wrong)))) in "
                        + "\(name). Its weights are so large that sums of them exceed the range of its numbers, or the question has more "
                        + "tokens than a model with global tokens accepts.")
            }
            result[name] = values
        }
        return result
    }

    /// Whether the inputs of a kind have room for values.
    private func holds(_ signature: Signature, _ kind: String, _ values: [Int]) -> Bool {
        signature.inputs.values.allSatisfy { info in
            let size = info.shape.last ?? 0
            return info.kind != kind || size < 0 || size >= values.count
        }
    }

    /// Integers, padded to the length of an input.
    private func tensor(_ info: TensorInfo, _ values: [Int]) -> Tensor {
        let size = max(info.shape.last ?? 0, values.count)
        return IntTensor(padded(values, size, info.kind == "ids" ? padding : info.fill), shape: [1, size])
    }

    /// The scores `(W, K, C)` of spans that begin with one of the words, for the labels.
    private func withoutPadding(_ scores: [Float], _ shape: [Int], _ slots: SpanSlots) -> [Float] {
        let labels = slots.labels.count
        return (0..<slots.words.count * shape[2] * labels).map { scores[$0 / labels * shape[3] + $0 % labels] }
    }
}

/// The shortest signature for a number of tokens; `signatures` are in ascending order of their lengths.
func shortest(_ signatures: [Signature], _ count: Int, _ what: String) throws -> Signature {
    guard let last = signatures.last else { throw BundleError("The bundle has no signature that reads a \(what). Export the model again") }
    if let signature = signatures.first(where: { $0.tokens ?? count >= count }) { return signature }
    let most = last.tokens ?? 0
    throw CapacityError("The \(what) must have at most \(most) tokens. Received: \(count). Shorten the \(what)", most: most, received: count)
}

func padded(_ values: [Int], _ size: Int, _ fill: Int) -> [Int] {
    values + [Int](repeating: fill, count: max(size - values.count, 0))
}

/// The step of a bundle that generates.
func stepOf(_ bundle: ModelBundle, _ engine: Engine) throws -> Step {
    bundle.format == "onnx" ? try DynamicStep(bundle, engine) : try StaticStep(bundle, engine)
}

/// The signature of one-token steps, and the name of its logits.
func logitsOf(_ signature: Signature?) throws -> (signature: Signature, logits: String, size: Int) {
    if let signature = signature, let logits = signature.output(of: "logits"), let size = signature.outputs[logits]?.shape.last {
        return (signature: signature, logits: logits, size: size)
    }
    throw BundleError("A step with caches and logits was expected. Received: none. Export the model again")
}
