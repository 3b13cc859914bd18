// Runs a bundle on token ids with LiteRT's `CompiledModel` on iOS and macOS: a TextEncoder, a TextGenerator (a decoder)
// or a TextToTextGenerator (an encoder-decoder). All names, sizes and ids are read from kerasformer.json, which is
// beside the model file. An app with several bundles has a folder for each.

import Foundation
import LiteRT

/// Returns the outputs of an encoder.
final class TextEncoder {
    private let bundle: ModelBundle

    /// Names of the classes, in the order of their scores.
    var labels: [String] { bundle.manifest.info.labels }

    /// - Parameter folder: Folder with kerasformer.json and the model file; by default, the resources of the app.
    init(folder: URL = Bundle.main.resourceURL!) throws {
        bundle = try ModelBundle(folder)
    }

    /// Returns the outputs for the token ids of a text, by name; padding has the last entries.
    func run(_ ids: [Int32], segments: [Int32] = []) throws -> [String: [Float]] {
        let signature = try bundle.read("forward", ids, segments)
        return try signature.outputs.mapValues { try $0.read() }
    }
}

/// Continues texts with a decoder.
final class TextGenerator {
    private let bundle: ModelBundle
    private let steps: [(name: String, tokens: Int)]
    private var signatures: [String: Signature] = [:]
    private let caches: [String: TensorBuffer]

    /// - Parameter folder: Folder with kerasformer.json and the model file; by default, the resources of the app.
    init(folder: URL = Bundle.main.resourceURL!) throws {
        bundle = try ModelBundle(folder)
        steps = bundle.ofRole("prefill").reversed() + [(name: "decode", tokens: 1)]
        let decode = try Signature(bundle.model, "decode")
        // Each cache is one buffer, both input and output of every signature: it is updated in place.
        let names = bundle.decode.names(["key", "value", "state"])
        caches = Dictionary(uniqueKeysWithValues: names.map { ($0, decode.inputs[$0]!) })
        for (name, _) in steps {
            let signature = name == "decode" ? decode : try Signature(bundle.model, name)
            signature.inputs.merge(caches) { $1 }
            signature.outputs.merge(caches) { $1 }
            signatures[name] = signature
        }
    }

    /// Continues the token ids of a prompt by greedy search; returns at most `count` new ids.
    func generate(_ prompt: [Int32], count: Int = 40) throws -> [Int32] {
        let capacity = bundle.manifest.capacity ?? 0
        try checkLength("prompt", prompt.count, capacity)
        for cache in caches.values { try cache.write((cache.read() as [Float]).map { _ in Float(0) }) }
        var position = 0
        for (name, length) in steps {
            while prompt.count - 1 - position >= length {
                try step(name, Array(prompt[position..<position + length]), at: position)
                position += length
            }
        }
        var generated: [Int32] = []
        var token = prompt.last!
        while generated.count < count && position < capacity {
            try step("decode", [token], at: position)
            position += 1
            token = try bundle.best(signatures["decode"]!)
            if bundle.manifest.info.eos_token_id.contains(token) { break }
            generated.append(token)
        }
        return generated
    }

    private func step(_ name: String, _ tokens: [Int32], at position: Int) throws {
        let signature = signatures[name]!, described = bundle.manifest.signatures[name]!
        try signature.inputs[described.name("ids")]!.write(tokens)
        try signature.inputs[described.name("slots")]!.write(tokens.indices.map { Int32(position + $0) })
        try signature.run()
    }
}

/// Translates, summarizes or rewrites texts with an encoder-decoder.
final class TextToTextGenerator {
    private let bundle: ModelBundle
    private let decode: Signature
    private let caches: [String]

    /// What precedes a text, by task, such as "summarization": "summarize: "; empty for most models.
    var prefixes: [String: String] { bundle.manifest.info.task_prefixes }

    /// - Parameter folder: Folder with kerasformer.json and the model file; by default, the resources of the app.
    init(folder: URL = Bundle.main.resourceURL!) throws {
        bundle = try ModelBundle(folder)
        decode = try Signature(bundle.model, "decode")
        // Each cache is one buffer, both input and output: it is updated in place.
        caches = bundle.decode.names(["key", "value", "state"])
        for name in caches { decode.outputs[name] = decode.inputs[name] }
    }

    /// Generates at most `count` token ids from those of a text with its prefix before it and the end token after it.
    ///
    /// - Parameter language: Code of the language of a translation, such as "deu_Latn"; the default is in the settings.
    func generate(_ ids: [Int32], count: Int = 40, language: String? = nil) throws -> [Int32] {
        let described = bundle.decode, manifest = bundle.manifest
        let (start, first) = try bundle.firstTokens(language)
        let crossCaches = described.names(["cross_key", "cross_value"])
        let buffers = Dictionary(uniqueKeysWithValues: crossCaches.map { ($0, decode.inputs[$0]!) })
        _ = try bundle.read("encode", ids, into: buffers)
        for name in caches {
            let cache = decode.inputs[name]!
            try cache.write((cache.read() as [Float]).map { _ in Float(0) })
        }
        let mask = (0..<(manifest.encoder_capacity ?? 0)).map { $0 < ids.count ? Int32(1) : Int32(0) }
        try decode.inputs[described.name("memory_mask")]!.write(mask)
        var generated: [Int32] = []
        var token = start
        while generated.count < min(count, manifest.capacity ?? 0) {
            try decode.inputs[described.name("ids")]!.write([token])
            try decode.inputs[described.name("slots")]!.write([Int32(generated.count)])
            try decode.run()
            token = try bundle.best(decode)
            if let first, generated.isEmpty { token = first }
            if manifest.info.eos_token_id.contains(token) { break }
            generated.append(token)
        }
        return generated
    }
}

struct InputError: LocalizedError {
    let errorDescription: String?
}

private func checkLength(_ what: String, _ count: Int, _ limit: Int) throws {
    if count < 1 || count > limit {
        throw InputError(errorDescription: "A \(what) can have 1 to \(limit) tokens. Received: \(count)")
    }
}

/// What kerasformer.json says about a model; the properties have the names of the file.
private struct Manifest: Decodable {
    let info: ModelInfo
    let signatures: [String: SignatureInfo]
    let capacity: Int?
    let encoder_capacity: Int?
}

private struct ModelInfo: Decodable {
    let labels: [String]
    let vocab_size: Int32?
    let pad_token_id: Int32?
    let bos_token_id: Int32?
    let decoder_start_token_id: Int32?
    let eos_token_id: [Int32]
    let task_prefixes: [String: String]
    let generation: GenerationInfo
    let languages: LanguageInfo?
}

private struct GenerationInfo: Decodable {
    let suppress_tokens: [Int32]?
    let bad_words_ids: [[Int32]]?
    let forced_bos_token_id: Int32?
    let decoder_start_token_id: Int32?
}

private struct LanguageInfo: Decodable {
    let ids: [String: Int32]
    let setting: String
}

private struct SignatureInfo: Decodable {
    let file: String
    let role: String
    let tokens: Int?
    let inputs: [String: TensorInfo]
    let outputs: [String: TensorInfo]

    /// Returns the names of the inputs of some kinds.
    func names(_ kinds: [String]) -> [String] {
        inputs.filter { kinds.contains($0.value.kind ?? "") }.map { $0.key }
    }

    func name(_ kind: String) -> String { names([kind])[0] }
}

private struct TensorInfo: Decodable {
    let kind: String?
    let `default`: Int32?
}

/// The model of a bundle, and its manifest.
private final class ModelBundle {
    let manifest: Manifest
    let model: CompiledModel
    var decode: SignatureInfo { manifest.signatures["decode"]! }

    init(_ folder: URL) throws {
        let data = try Data(contentsOf: folder.appendingPathComponent("kerasformer.json"))
        manifest = try JSONDecoder().decode(Manifest.self, from: data)
        let file = manifest.signatures.values.first { $0.role != "tokenize" }!.file
        model = try CompiledModel(filePath: folder.appendingPathComponent(file).path, environment: Environment())
    }

    /// Returns the signatures of a role, the shortest first.
    func ofRole(_ role: String) -> [(name: String, tokens: Int)] {
        manifest.signatures.filter { $0.value.role == role }
            .map { (name: $0.key, tokens: $0.value.tokens ?? 0) }
            .sorted { $0.tokens < $1.tokens }
    }

    /// Runs the shortest signature of a role that has room for a text, with the passed buffers for its outputs.
    func read(
        _ role: String, _ ids: [Int32], _ segments: [Int32] = [], into buffers: [String: TensorBuffer] = [:]
    ) throws -> Signature {
        let lengths = ofRole(role), info = manifest.info
        try checkLength("text", ids.count, lengths.last!.tokens)
        let (name, length) = lengths.first { $0.tokens >= ids.count }!
        let signature = try Signature(model, name)
        // A token of only the vocabulary that the model writes is no id of a text.
        let size = info.vocab_size ?? 0, pad = info.pad_token_id ?? 0
        let ones = [Int32](repeating: 1, count: ids.count)
        let texts: [String: ([Int32], Int32)] = [
            "ids": (ids, size > 0 && pad >= size ? 0 : pad), "mask": (ones, 0), "segments": (segments, 0),
        ]
        for (input, tensor) in manifest.signatures[name]!.inputs {
            let (values, fill) = texts[tensor.kind ?? ""] ?? ([], tensor.default ?? 0)
            try signature.inputs[input]!.write(values + [Int32](repeating: fill, count: length - values.count))
        }
        signature.outputs.merge(buffers) { $1 }
        try signature.run()
        return signature
    }

    /// Returns the most probable token of those that no setting forbids.
    func best(_ signature: Signature) throws -> Int32 {
        let logits = decode.outputs.first { $0.value.kind == "logits" }!.key
        var scores: [Float] = try signature.outputs[logits]!.read()
        let settings = manifest.info.generation
        let words = (settings.bad_words_ids ?? []).filter { $0.count == 1 }.flatMap { $0 }
        for never in (settings.suppress_tokens ?? []) + words { scores[Int(never)] = -.infinity }
        return Int32(scores.indices.max { scores[$0] < scores[$1] }!)
    }

    /// Returns the first token that the decoder reads, and the first one of every answer, or nil for any.
    func firstTokens(_ language: String?) throws -> (Int32, Int32?) {
        let info = manifest.info, settings = info.generation
        var start = info.decoder_start_token_id ?? info.bos_token_id ?? info.pad_token_id ?? 0
        var first = settings.forced_bos_token_id
        if let languages = info.languages {
            let chosen = [settings.decoder_start_token_id, settings.forced_bos_token_id].compactMap { $0 }
            if let language, let id = languages.ids[language] {
                if languages.setting == "forced_bos_token_id" { first = id } else { start = id }
            } else if language != nil || !chosen.contains(where: { languages.ids.values.contains($0) }) {
                let codes = languages.ids.keys.sorted().joined(separator: ", ")
                let message = "Pass the language of the output, one of \(codes). Received: \(language ?? "none")"
                throw InputError(errorDescription: message)
            }
        }
        return (start, first)
    }
}

/// A signature of the model with its buffers, by name.
private final class Signature {
    private let model: CompiledModel, index: Int
    private let inputNames: [String], outputNames: [String]
    var inputs: [String: TensorBuffer], outputs: [String: TensorBuffer]

    init(_ model: CompiledModel, _ name: String) throws {
        let index = try model.signatureKeys().firstIndex(of: name)!
        self.model = model
        self.index = index
        inputNames = try (0..<model.inputCount(signatureIndex: index)).map {
            try model.inputName(inputIndex: $0, signatureIndex: index)
        }
        outputNames = try (0..<model.outputCount(signatureIndex: index)).map {
            try model.outputName(outputIndex: $0, signatureIndex: index)
        }
        let inputBuffers = try model.createInputBuffers(signatureIndex: index)
        let outputBuffers = try model.createOutputBuffers(signatureIndex: index)
        inputs = Dictionary(uniqueKeysWithValues: zip(inputNames, inputBuffers))
        outputs = Dictionary(uniqueKeysWithValues: zip(outputNames, outputBuffers))
    }

    func run() throws {
        let inputBuffers = inputNames.map { inputs[$0]! }, outputBuffers = outputNames.map { outputs[$0]! }
        try model.run(inputs: inputBuffers, outputs: outputBuffers, signatureIndex: index)
    }
}
