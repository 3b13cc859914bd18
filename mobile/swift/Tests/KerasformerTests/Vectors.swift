import Foundation
import XCTest

@testable import Kerasformer

/// The vectors that all libraries share; their README describes them.
enum Vectors {
    static let folder: URL = {
        if let path = ProcessInfo.processInfo.environment["KERASFORMER_VECTORS"] { return URL(fileURLWithPath: path) }
        return URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../../vectors").standardizedFileURL
    }()

    static func folders(_ name: String) throws -> [URL] {
        let all = try FileManager.default.contentsOfDirectory(at: folder.appendingPathComponent(name), includingPropertiesForKeys: nil)
        return all.sorted { $0.path < $1.path }
    }

    static func json(_ file: URL) throws -> JSON { try JSON.parse(try Data(contentsOf: file)) }

    static func json(_ name: String) throws -> JSON { try json(folder.appendingPathComponent(name)) }

    static func lines(_ file: URL) throws -> [JSON] {
        try Data(contentsOf: file).split(separator: 10).map { try JSON.parse(Data($0)) }
    }

    static func ints(_ value: JSON) -> [Int] { (value.items ?? []).map { $0.int ?? 0 } }

    /// A list of which `[value, count, value, count, …]` is given.
    static func runs(_ value: JSON) -> [Int] {
        let all = ints(value)
        return stride(from: 0, to: all.count, by: 2).flatMap { [Int](repeating: all[$0], count: all[$0 + 1]) }
    }

    /// The name of an error, as in Python, and its message.
    static func described(_ error: Error) -> (name: String, message: String) {
        (name: String(describing: type(of: error)), message: (error as? KerasformerError)?.message ?? "\(error)")
    }

    /// Whether two results agree, numbers to 1e-5.
    static func agree(_ one: JSON, _ other: JSON) -> Bool {
        if let first = one.number, let second = other.number { return abs(first - second) <= 1e-5 + 1e-5 * abs(second) }
        switch (one, other) {
        case (.array(let first), .array(let second)): return first.count == second.count && zip(first, second).allSatisfy { agree($0, $1) }
        case (.object(let first), .object(let second)):
            return first.count == second.count && first.allSatisfy { field in other.has(field.name) && agree(field.value, other[field.name]) }
        case (.string(let first), .string(let second)): return first.codePoints == second.codePoints
        default: return one == other
        }
    }
}

/// The model of the vectors whose logits are a hash of the tokens so far.
struct MockModel {
    let seed: UInt32
    let order: Int
    let size: Int

    init(_ config: JSON) {
        seed = UInt32(config["seed"].int ?? 0)
        order = config["order"].int ?? 0
        size = config["vocab_size"].int ?? 0
    }

    private func mix(_ start: UInt32, _ value: UInt32) -> UInt32 {
        var hash = (start ^ value) &* 0x9E37_79B1
        hash = (hash ^ hash >> 15) &* 0x85EB_CA77
        return hash ^ hash >> 13
    }

    func logits(_ history: [Int], encoder: [Int]?) -> [Float] {
        var hash = seed
        if let ids = encoder { for id in ids.map({ UInt32($0) }) + [UInt32.max] { hash = mix(hash, id) } }
        for id in history.suffix(order) { hash = mix(hash, UInt32(id)) }
        return (0..<size).map { Float(mix(hash, UInt32($0)) >> 8) / 1_048_576 - 8 }
    }
}

/// A step of the mock model; its state is the history.
final class MockStep: Step {
    struct History: State {
        let ids: [Int]
    }

    let isEncoderDecoder: Bool
    let capacity: Int
    let vocabularySize: Int
    private let model: MockModel
    private var encoder: [Int]?

    init(_ config: JSON) {
        model = MockModel(config)
        isEncoderDecoder = config.has("encoder_capacity")
        capacity = config["capacity"].int ?? 0
        vocabularySize = model.size
    }

    func start(_ ids: [Int]) -> State {
        if isEncoderDecoder { encoder = ids }
        return History(ids: isEncoderDecoder ? [] : Array(ids.dropLast()))
    }

    func resume(_ state: State, length: Int, _ ids: [Int]) -> State? { History(ids: Array((state as! History).ids.prefix(length)) + ids) }

    func step(_ token: Int, _ state: State, isLast: Bool) -> (logits: [Float], state: State) {
        let ids = (state as! History).ids + [token]
        return (logits: model.logits(ids, encoder: encoder), state: History(ids: ids))
    }
}

/// A tensor that holds the tokens of a cache, or of an encoded text.
final class HistoryTensor: Tensor {
    let ids: [Int]

    init(_ ids: [Int]) { self.ids = ids }

    var shape: [Int] { [1, 1, ids.count, 1] }

    func floats() -> [Float] { ids.map { Float($0) } }

    static func ids(_ tensor: Tensor?) throws -> [Int] {
        if tensor is Zeros { return [] }
        return try tensor?.floats().map { Int($0) } ?? []
    }
}

/// Runs the functions of a bundle of the vectors with the mock model, or with recorded outputs.
final class TestEngine: Engine {
    private let bundle: ModelBundle
    private let config: JSON
    private let model: MockModel

    init(_ bundle: ModelBundle, _ config: JSON) {
        self.bundle = bundle
        self.config = config
        model = MockModel(config["mock"])
    }

    func run(_ name: String, inputs: [String: Tensor], outputs: [String], replaced: Set<String>) throws -> [String: Tensor] {
        let signature = try XCTUnwrap(bundle.signatures[name])
        XCTAssertEqual(Set(inputs.keys), Set(signature.inputs.keys), "inputs of \(name)")
        func integers(_ kind: String) -> [Int]? { signature.inputs(of: kind).first.flatMap { (inputs[$0] as? IntTensor)?.values } }
        var ids = integers("ids") ?? []
        let mask = integers("mask")
        if signature.role == "forward" {
            let slots = ["word_slots", "label_slots"].map { (integers($0) ?? []).filter { $0 >= 0 } }
            return try recorded(signature, ids, mask, integers("segments"), slots, outputs)
        }
        if signature.role == "encode" {
            if let mask = mask { ids = Array(ids.prefix(mask.reduce(0, +))) }
            return Dictionary(uniqueKeysWithValues: outputs.map { ($0, HistoryTensor(ids) as Tensor) })
        }
        func history(_ kinds: String...) throws -> [Int] {
            for kind in kinds { if let input = signature.inputs(of: kind).first { return try HistoryTensor.ids(inputs[input]) } }
            return []
        }
        let encoder = try history("memory").isEmpty ? try history("cross_key") : try history("memory")
        var before = try history("key")
        if let first = integers("slots")?.first { before = Array(before.prefix(first)) }
        let all = before + ids
        var results: [String: Tensor] = [:]
        for output in outputs {
            let kind = signature.outputs[output]?.kind ?? ""
            let isEncoderDecoder = config["mock"].has("encoder_capacity")
            if kind == "logits" {
                results[output] = FloatTensor(model.logits(all, encoder: isEncoderDecoder ? encoder : nil), shape: [1, 1, model.size])
            } else {
                results[output] = HistoryTensor(kind.hasPrefix("cross") ? encoder : all)
            }
        }
        return results
    }

    /// Scores of spans with zeros for padding, up to the fixed numbers of words and labels.
    private func spans(_ values: [Float], _ shape: [Int], _ fixed: [Int]) -> Tensor {
        let sizes = zip(shape, fixed).map { $1 < 0 ? $0 : $1 }
        var padded = [Float](repeating: 0, count: sizes[1] * sizes[2] * sizes[3])
        for (index, value) in values.enumerated() { padded[index / shape[3] * sizes[3] + index % shape[3]] = value }
        return FloatTensor(padded, shape: sizes)
    }

    private func recorded(
        _ signature: Signature, _ padded: [Int], _ mask: [Int]?, _ segments: [Int]?, _ slots: [[Int]], _ outputs: [String]
    ) throws -> [String: Tensor] {
        let count = mask?.reduce(0, +) ?? padded.count
        let ids = Array(padded.prefix(count))
        let types = segments.map { Array($0.prefix(count)) }
        let record = config.list("recorded").first { each in
            Vectors.ints(each["ids"]) == ids && (types == nil || !each.has("types") || Vectors.ints(each["types"]) == types)
                && ["word_slots", "label_slots"].map { Vectors.ints(each[$0]) } == slots
        }
        let found = try XCTUnwrap(record, "no recorded call has the ids \(ids)")
        var results: [String: Tensor] = [:]
        for name in outputs {
            let shape = Vectors.ints(found["outputs"][name]["shape"])
            var values = found["outputs"][name].list("values").map { Float($0.number ?? 0) }
            if let info = signature.outputs[name], !slots[0].isEmpty {
                results[name] = spans(values, shape, info.shape)
                continue
            }
            let isPerToken = shape.count > 2 || bundle.info.text("task") == "question-answering"
            if isPerToken { values += [Float](repeating: 0, count: (padded.count - count) * values.count / count) }
            results[name] = FloatTensor(values, shape: isPerToken ? [1, padded.count] + shape.dropFirst(2) : shape)
        }
        return results
    }
}
