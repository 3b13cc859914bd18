"""Swift program of a card, with LiteRT's `CompiledModel` on iOS and macOS."""

from __future__ import annotations

from kerasformer.bundle import Kind, Manifest
from kerasformer.export.card.program import (
    Program,
    ProgramFile,
    inputs,
    kind,
    main_file,
    prefills,
    rules,
    takes_segments,
    values,
)
from kerasformer.export.card.quoting import code, swift


def program(manifest: Manifest) -> ProgramFile | None:
    """Returns a class that runs the model on token ids."""
    if manifest.format != "tflite" or kind(manifest) not in _PROGRAMS:
        return None
    name, template = _PROGRAMS[kind(manifest)]
    lines = rules(manifest, _FORBIDDEN, _FIRST)
    source = Program(_SIGNATURE + template).substitute(
        values(manifest, swift, r"\($0)"),
        **lines,
        variable="var" if lines["forbidden"] else "let",
        prefills=prefills(manifest, '("{name}", {length})'),
        inputs=inputs(manifest, _INPUTS, swift, " " * 8),
        segments=", segments: [Int32] = []" if takes_segments(manifest) else "",
    )
    package = "package `https://github.com/google-ai-edge/LiteRT`, branch `release/2.3.0`, product `LiteRT`"
    needs = f"{package}; {code(main_file(manifest))} in the resources"
    return ProgramFile(f"{name}.swift", "Swift (iOS, macOS)", needs, source)


_INPUTS = {
    Kind.IDS: 'try forward.inputs["@name"]!.write(padded(ids, with: @pad))',
    Kind.MASK: 'try forward.inputs["@name"]!.write(padded(ids.map { _ in 1 }, with: 0))',
    Kind.SEGMENTS: 'try forward.inputs["@name"]!.write(padded(segments, with: 0))',
    Kind.OTHER: 'try forward.inputs["@name"]!.write(padded([], with: @default))',
}

_SIGNATURE = """import Foundation
import LiteRT

struct WrongLength: LocalizedError {
    let errorDescription: String?

    init(_ what: String, limit: Int, received: Int) {
        errorDescription = "A \\(what) can have 1 to \\(limit) tokens. Received: \\(received)"
    }
}

/// A signature of the model with its buffers, by name.
final class Signature {
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

"""

_ENCODER = """final class TextEncoder {
    private let model: CompiledModel
    private let lengths = [@lengths]  // signatures @{forward}N

    /// - Parameter path: Path of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        model = try CompiledModel(filePath: path, environment: Environment())
    }

    /// Returns the outputs for the token ids of a text, by name.
    func run(_ ids: [Int32]@segments) throws -> [String: [Float]] {
        guard 1...@limit ~= ids.count else { throw WrongLength("text", limit: @limit, received: ids.count) }
        let length = lengths.first { $0 >= ids.count }!
        func padded(_ values: [Int32], with pad: Int32) -> [Int32] {
            values + Array(repeating: pad, count: length - values.count)
        }
        let forward = try Signature(model, "@forward\\(length)")
        @inputs
        try forward.run()
        return try forward.outputs.mapValues { try $0.read() }  // @outputs
    }
}
"""

_FORBIDDEN = """            for never in [@ids] { scores[never] = -.infinity }
"""
_FIRST = """            if generated.isEmpty { token = @id }  // the first token of every answer
"""

_DECODER = """final class TextGenerator {
    private let prefills = [@prefills]
    private var signatures: [String: Signature] = [:]
    private let caches: [String: TensorBuffer]

    /// - Parameter path: Path of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        let model = try CompiledModel(filePath: path, environment: Environment())
        let decode = try Signature(model, "@step")
        // Each cache is one buffer, both input and output of every signature: it is updated in place.
        let names = (0..<@layers).flatMap { [@caches] }
        caches = Dictionary(uniqueKeysWithValues: names.map { ($0, decode.inputs[$0]!) })
        for (name, _) in prefills {
            let signature = name == "@step" ? decode : try Signature(model, name)
            signature.inputs.merge(caches) { $1 }
            signature.outputs.merge(caches) { $1 }
            signatures[name] = signature
        }
    }

    /// Continues the token ids of a prompt by greedy search; returns at most `count` new ids.
    func generate(_ prompt: [Int32], count: Int = 40) throws -> [Int32] {
        guard 1...@limit ~= prompt.count else { throw WrongLength("prompt", limit: @limit, received: prompt.count) }
        for cache in caches.values { try cache.write((cache.read() as [Float]).map { _ in Float(0) }) }
        var position = 0
        for (name, length) in prefills {
            while prompt.count - 1 - position >= length {
                try step(name, Array(prompt[position..<position + length]), at: position)
                position += length
            }
        }
        var generated: [Int32] = []
        var token = prompt.last!
        while generated.count < count && position < @capacity {
            try step("@step", [token], at: position)
            position += 1
            @variable scores: [Float] = try signatures["@step"]!.outputs["@logits"]!.read()  // of @vocabulary tokens
@{forbidden}            token = Int32(scores.indices.max { scores[$0] < scores[$1] }!)
            if ([@ends] as [Int32]).contains(token) { break }
            generated.append(token)
        }
        return generated
    }

    private func step(_ name: String, _ tokens: [Int32], at position: Int) throws {
        let signature = signatures[name]!
        try signature.inputs["@ids"]!.write(tokens)
        try signature.inputs["@slots"]!.write(tokens.indices.map { Int32(position + $0) })
        try signature.run()
    }
}
"""

_ENCODER_DECODER = """final class TextToTextGenerator {
    private let model: CompiledModel
    private let lengths = [@lengths]  // signatures @{encode}N
    private let decode: Signature
    private let caches: [String]

    /// - Parameter path: Path of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        model = try CompiledModel(filePath: path, environment: Environment())
        decode = try Signature(model, "@step")
        // Each cache is one buffer, both input and output: it is updated in place.
        caches = (0..<@layers).flatMap { [@caches] }
        for name in caches { decode.outputs[name] = decode.inputs[name] }
    }

    /// Generates at most `count` token ids from those of a text with @{with_prefix}the end token after it.
    func generate(_ ids: [Int32], count: Int = 40) throws -> [Int32] {
        guard 1...@limit ~= ids.count else { throw WrongLength("text", limit: @limit, received: ids.count) }
        try encode(ids)
        for name in caches {
            let cache = decode.inputs[name]!
            try cache.write((cache.read() as [Float]).map { _ in Float(0) })
        }
        try decode.inputs["@memory_mask"]!.write((0..<@encoder_capacity).map { $0 < ids.count ? Int32(1) : Int32(0) })
        var generated: [Int32] = []
        var token: Int32 = @start
        while generated.count < min(count, @capacity) {
            try decode.inputs["@ids"]!.write([token])
            try decode.inputs["@slots"]!.write([Int32(generated.count)])
            try decode.run()
            @variable scores: [Float] = try decode.outputs["@logits"]!.read()  // of @vocabulary tokens
@{forbidden}            token = Int32(scores.indices.max { scores[$0] < scores[$1] }!)
@{first}            if ([@ends] as [Int32]).contains(token) { break }
            generated.append(token)
        }
        return generated
    }

    private func encode(_ ids: [Int32]) throws {
        let length = lengths.first { $0 >= ids.count }!
        let encode = try Signature(model, "@encode\\(length)")
        let padding = length - ids.count
        try encode.inputs["@text_ids"]!.write(ids + [Int32](repeating: @pad, count: padding))
        try encode.inputs["@text_mask"]!.write(ids.map { _ in Int32(1) } + [Int32](repeating: 0, count: padding))
        for name in encode.outputs.keys { encode.outputs[name] = decode.inputs[name] }  // keys and values of the text
        try encode.run()
    }
}
"""

_PROGRAMS: dict[str | None, tuple[str, str]] = {
    "encoder": ("TextEncoder", _ENCODER),
    "decoder": ("TextGenerator", _DECODER),
    "encoder-decoder": ("TextToTextGenerator", _ENCODER_DECODER),
}
