"""The Swift program of a card: LiteRT's compiled model on iOS and macOS."""

from __future__ import annotations

from kerasformer.bundle import Manifest
from kerasformer.export.card.program import Program, inputs, kind, main_file, prefills, takes_segments, values
from kerasformer.export.card.quoting import code, swift


def section(manifest: Manifest) -> str:
    """A class that takes the ids of a text and gives what the model answers."""
    program = _PROGRAMS.get(kind(manifest)) if manifest.format == "tflite" else None
    if program is None:
        return ""
    filled = Program(_SIGNATURE + program).substitute(
        values(manifest, swift),
        prefills=prefills(manifest, '("{name}", {length})'),
        inputs=inputs(manifest, _INPUTS, " " * 8),
        segments=", segments: [Int32] = []" if takes_segments(manifest) else "",
    )
    return f"""## Swift (iOS, macOS)

Swift package `https://github.com/google-ai-edge/LiteRT`, branch `release/2.3.0`, product `LiteRT`;
{code(main_file(manifest))} is a resource. Ids are those of `tokenizer.json`, which any library for Hugging Face's
tokenizers reads.

```swift
{filled}
```
"""


_INPUTS = {
    "input_ids": 'try forward.inputs["input_ids"]!.write(padded(ids, with: @pad))',
    "attention_mask": 'try forward.inputs["attention_mask"]!.write(padded(ids.map { _ in 1 }, with: 0))',
    "token_type_ids": 'try forward.inputs["token_type_ids"]!.write(padded(segments, with: 0))',
}

_SIGNATURE = """import Foundation
import LiteRT

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
        let given = try model.createInputBuffers(signatureIndex: index)
        let taken = try model.createOutputBuffers(signatureIndex: index)
        inputs = Dictionary(uniqueKeysWithValues: zip(inputNames, given))
        outputs = Dictionary(uniqueKeysWithValues: zip(outputNames, taken))
    }

    func run() throws {
        let (given, taken) = (inputNames.map { inputs[$0]! }, outputNames.map { outputs[$0]! })
        try model.run(inputs: given, outputs: taken, signatureIndex: index)
    }
}

"""

_ENCODER = """final class Reader {
    private let model: CompiledModel
    private let lengths = [@lengths]  // signatures forward_N

    /// - Parameter path: Of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        model = try CompiledModel(filePath: path, environment: Environment())
    }

    /// The outputs for a text's ids, by name.
    func read(_ ids: [Int32]@segments) throws -> [String: [Float]] {
        let length = lengths.first { $0 >= ids.count }!
        func padded(_ values: [Int32], with pad: Int32) -> [Int32] {
            values + Array(repeating: pad, count: length - values.count)
        }
        let forward = try Signature(model, "forward_\\(length)")
        @inputs
        try forward.run()
        return try forward.outputs.mapValues { try $0.read() }  // @outputs
    }
}"""

_DECODER = """final class Writer {
    private let prefills = [@prefills]
    private var signatures: [String: Signature] = [:]
    private let caches: [String: TensorBuffer]

    /// - Parameter path: Of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        let model = try CompiledModel(filePath: path, environment: Environment())
        let decode = try Signature(model, "decode")
        // One buffer is a cache's input and its output, in every signature: it is updated in place.
        let names = (0..<@layers).flatMap { ["kv_cache_k_\\($0)", "kv_cache_v_\\($0)"] }
        caches = Dictionary(uniqueKeysWithValues: names.map { ($0, decode.inputs[$0]!) })
        for (name, _) in prefills {
            let signature = name == "decode" ? decode : try Signature(model, name)
            signature.inputs.merge(caches) { $1 }
            signature.outputs.merge(caches) { $1 }
            signatures[name] = signature
        }
    }

    /// At most `count` ids that follow those of a prompt, the likeliest each.
    func write(_ prompt: [Int32], count: Int = 40) throws -> [Int32] {
        for cache in caches.values { try cache.write([Float](repeating: 0, count: @cache)) }
        var position = 0
        for (name, length) in prefills {
            while prompt.count - 1 - position >= length {
                try read(name, Array(prompt[position..<position + length]), at: position)
                position += length
            }
        }
        var written: [Int32] = []
        var token = prompt.last!
        while written.count < count && position < @capacity {
            try read("decode", [token], at: position)
            position += 1
            let scores: [Float] = try signatures["decode"]!.outputs["logits"]!.read()  // @vocabulary of them
            token = Int32(scores.indices.max { scores[$0] < scores[$1] }!)
            if ([@ends] as [Int32]).contains(token) { break }
            written.append(token)
        }
        return written
    }

    private func read(_ name: String, _ tokens: [Int32], at position: Int) throws {
        let signature = signatures[name]!
        try signature.inputs["tokens"]!.write(tokens)
        try signature.inputs["input_pos"]!.write(tokens.indices.map { Int32(position + $0) })
        try signature.run()
    }
}"""

_ENCODER_DECODER = """final class Rewriter {
    private let model: CompiledModel
    private let lengths = [@lengths]  // signatures encode_N
    private let decode: Signature
    private let caches: [String]

    /// - Parameter path: Of @file, such as Bundle.main.path(forResource: "model", ofType: "tflite")!
    init(path: String) throws {
        model = try CompiledModel(filePath: path, environment: Environment())
        decode = try Signature(model, "decode")
        // One buffer is a cache's input and its output: it is updated in place.
        caches = (0..<@layers).flatMap { ["kv_cache_k_\\($0)", "kv_cache_v_\\($0)"] }
        for name in caches { decode.outputs[name] = decode.inputs[name] }
    }

    /// At most `count` ids that answer those of a text, which begins with "@prefix" and ends with the end token.
    func rewrite(_ ids: [Int32], count: Int = 40) throws -> [Int32] {
        try encode(ids)
        for name in caches { try decode.inputs[name]!.write([Float](repeating: 0, count: @cache)) }
        try decode.inputs["encoder_mask"]!.write((0..<@encoder_capacity).map { $0 < ids.count ? Int32(1) : Int32(0) })
        var written: [Int32] = []
        var token: Int32 = @start
        while written.count < min(count, @capacity) {
            try decode.inputs["tokens"]!.write([token])
            try decode.inputs["input_pos"]!.write([Int32(written.count)])
            try decode.run()
            let scores: [Float] = try decode.outputs["logits"]!.read()  // @vocabulary of them
            token = Int32(scores.indices.max { scores[$0] < scores[$1] }!)
            if ([@ends] as [Int32]).contains(token) { break }
            written.append(token)
        }
        return written
    }

    private func encode(_ ids: [Int32]) throws {
        let length = lengths.first { $0 >= ids.count }!
        let encode = try Signature(model, "encode_\\(length)")
        let room = length - ids.count
        try encode.inputs["input_ids"]!.write(ids + [Int32](repeating: @pad, count: room))
        try encode.inputs["attention_mask"]!.write(ids.map { _ in Int32(1) } + [Int32](repeating: 0, count: room))
        for name in encode.outputs.keys { encode.outputs[name] = decode.inputs[name] }  // cross_k_0, cross_v_0, …
        try encode.run()
    }
}"""

_PROGRAMS: dict[str | None, str] = {"encoder": _ENCODER, "decoder": _DECODER, "encoder-decoder": _ENCODER_DECODER}
