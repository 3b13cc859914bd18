import Foundation

/// The folder of an exported model, with its manifest `kerasformer.json`.
public final class ModelBundle: @unchecked Sendable {
    public let folder: URL
    /// The functions of the model, by name.
    public let signatures: [String: Signature]
    /// `"tflite"`, `"onnx"` or `"table"`.
    public let format: String
    /// Number of slots of a decoder's cache, in tokens; `nil` for other models.
    public let capacity: Int?
    let encoderCapacity: Int?
    let info: JSON
    /// The id that fills the rest of a text's ids, which the mask hides.
    let padding: Int
    private let files: JSON

    private static let manifest = "kerasformer.json"
    private static let checksum = "manifest_sha256"
    private static let version = 2

    /// Reads and checks the manifest of a folder.
    ///
    /// - Throws: `BundleError` if the folder has no manifest, or one that was changed or written by a newer version.
    public init(folder: URL) throws {
        let name = ModelBundle.manifest
        guard let data = try? Data(contentsOf: folder.appendingPathComponent(name)) else {
            throw BundleError("\(name) cannot be read. A bundle folder was expected. Received: \(folder.path)")
        }
        guard let content = try? JSON.parse(data), case .object = content else {
            throw BundleError("\(name) is not a JSON object. A bundle folder was expected. Received: \(folder.path)")
        }
        try ModelBundle.check(content, folder)
        self.folder = folder
        info = content["info"]
        files = content["files"]
        format = content.text("format")
        capacity = content["capacity"].int
        encoderCapacity = content["encoder_capacity"].int
        var signatures: [String: Signature] = [:]
        for field in content["signatures"].fields { signatures[field.name] = Signature(field.name, field.value) }
        self.signatures = signatures
        let pad = info["pad_token_id"].int ?? 0
        padding = pad < info["vocab_size"].int ?? Int.max ? pad : 0
    }

    private static func check(_ content: JSON, _ folder: URL) throws {
        let here = "Received: version \(repr(content["format_version"])) in \(folder.path)"
        guard let found = content["format_version"].int, found >= 1 else {
            throw BundleError(
                "\(manifest): format_version must be a positive integer. Received: \(repr(content["format_version"])) in \(folder.path)")
        }
        if found > version {
            throw BundleError(
                "this bundle was written by a newer kerasformer: it has format version \(found), and this version supports versions up to "
                    + "\(version). Received: \(folder.path). Install a newer kerasformer")
        }
        if found < version {
            throw BundleError("this version supports bundles of format version \(version). \(here). Export the model again")
        }
        let missing = ["format", "info", "signatures", "files"].filter { content[$0].isNull }
        if !missing.isEmpty {
            throw BundleError("\(manifest): the fields \(missing.joined(separator: ", ")) are missing. Received: \(folder.path)")
        }
        guard let expected = content[checksum].string else {
            throw BundleError(
                "\(manifest) lacks the \(checksum) that every release of kerasformer writes: it was changed after its export, or written "
                    + "before the first release. Received: \(folder.path). Export the model again")
        }
        let rest = JSON.object(content.fields.filter { $0.name != checksum })
        let plain = rest.written(JSONStyle(ascii: true, comma: ",", colon: ":", sorted: true))
        if SHA256.hex(Array(plain.utf8)) != expected {
            throw BundleError(
                "\(manifest) was changed after its export: its fields do not match its \(checksum). Received: \(folder.path). Export the "
                    + "model again with the settings that you want")
        }
        for field in content["signatures"].fields where content["files"][field.value.text("file")].isNull {
            throw BundleError(
                "\(manifest): signatures.\(field.name).file must be one of files. Received: \(repr(field.value["file"])) in \(folder.path)")
        }
        for field in content["signatures"].fields {
            for input in field.value["inputs"].fields where input.value.text("kind") == "recurrent" {
                throw BundleError(
                    "A model with recurrent states cannot run here. Expected: one that keeps keys, values and the last inputs of "
                        + "convolutions alone. Received: \(input.name) in signatures.\(field.name) of \(folder.path). Run the bundle "
                        + "with Python")
            }
        }
    }

    func has(_ name: String) -> Bool { files.has(name) }

    /// The path of a file of the bundle, whose checksum is compared with that of the manifest.
    ///
    /// - Throws: `BundleError` if the file is missing, or was changed after the export.
    public func file(_ name: String) throws -> URL {
        guard let expected = files[name].string else {
            throw BundleError("the bundle has no \(name). Received: \(folder.path). Export it again from a model with a tokenizer")
        }
        if name.hasPrefix("/") || name.components(separatedBy: "/").contains("..") {
            throw BundleError("\(ModelBundle.manifest): files: \(name) is outside of the folder")
        }
        let file = folder.appendingPathComponent(name)
        guard let handle = try? FileHandle(forReadingFrom: file) else {
            throw BundleError("the bundle is incomplete: \(name) is missing. Received: \(folder.path). Export the model again")
        }
        var sum = SHA256()
        while true {
            let part = handle.readData(ofLength: 1 << 20)
            if part.isEmpty { break }
            sum.update([UInt8](part))
        }
        let received = sum.hex()
        if received == expected { return file }
        throw BundleError(
            "the bundle was changed after its export: \(name) must have sha256 \(expected). Received: \(received) in \(folder.path). "
                + "Export the model again")
    }

    /// The signatures of a role, in ascending order of the number of tokens that they read.
    func ofRole(_ role: String) -> [Signature] {
        signatures.values.filter { $0.role == role }.sorted { ($0.tokens ?? 0, $0.name) < ($1.tokens ?? 0, $1.name) }
    }
}

/// A function of a model.
public struct Signature: Sendable {
    public let name: String
    /// The file of the model, relative to the folder of the bundle.
    public let file: String
    public let inputs: [String: TensorInfo]
    public let outputs: [String: TensorInfo]
    /// Number of texts of a call, of tokens of each, and of slots of the cache that they attend to; `nil` for any number.
    public let rows, tokens, cacheLength: Int?
    let role: String

    init(_ name: String, _ config: JSON) {
        func tensors(_ field: String) -> [String: TensorInfo] {
            var result: [String: TensorInfo] = [:]
            for each in config[field].fields { result[each.name] = TensorInfo(each.value) }
            return result
        }
        self.name = name
        file = config.text("file")
        role = config.text("role")
        inputs = tensors("inputs")
        outputs = tensors("outputs")
        rows = config["rows"].int
        tokens = config["tokens"].int
        cacheLength = config["cache_length"].int
    }

    func inputs(of kinds: String...) -> [String] { inputs.filter { kinds.contains($0.value.kind) }.keys.sorted() }

    func output(of kind: String) -> String? { outputs.first { $0.value.kind == kind }?.key }

    /// The output that has the next state of an input.
    func next(_ input: String) -> String { outputs.first { $0.value.continues == input }?.key ?? input }

    /// Tensors by name, from tensors by kind; kinds that the signature does not take are left out.
    func named(_ values: [String: Tensor]) -> [String: Tensor] {
        var result: [String: Tensor] = [:]
        for (name, info) in inputs { if let tensor = values[info.kind] { result[name] = tensor } }
        return result
    }
}

/// A tensor of a function.
public struct TensorInfo: Sendable {
    /// Its dimensions; -1 for one that differs from call to call.
    public let shape: [Int]
    /// `"int32"`, `"int64"`, `"float32"` or `"int8"`.
    public let dtype: String
    /// For an output: the input whose next state it is, with which it may share memory.
    public let continues: String?
    let kind: String
    let margin: Int?
    /// Of an input of integers: what fills the rest of a fixed length.
    let fill: Int

    init(_ config: JSON) {
        shape = config.list("shape").map { $0.int ?? -1 }
        dtype = config.text("dtype")
        continues = config["continues"].string
        kind = config.text("kind")
        margin = config["margin"].int
        fill = config["default"].int ?? 0
    }
}

/// The checksum of FIPS 180-4, which Foundation lacks.
struct SHA256 {
    private var state: [UInt32] = [
        0x6A09_E667, 0xBB67_AE85, 0x3C6E_F372, 0xA54F_F53A, 0x510E_527F, 0x9B05_688C, 0x1F83_D9AB, 0x5BE0_CD19,
    ]
    private var rest: [UInt8] = []
    private var length: UInt64 = 0
    /// The first bits of the fractions of the cube roots of the first 64 primes.
    private static let constants: [UInt32] = {
        let primes = (2...311).filter { number in !(2..<number).contains { number % $0 == 0 } }
        return primes.map { prime in
            let root = pow(Double(prime), 1.0 / 3)
            return UInt32((root - root.rounded(.down)) * 4_294_967_296)
        }
    }()

    static func hex(_ bytes: [UInt8]) -> String {
        var sum = SHA256()
        sum.update(bytes)
        return sum.hex()
    }

    mutating func update(_ bytes: [UInt8]) {
        length += UInt64(bytes.count)
        let all = rest + bytes
        let whole = all.count / 64 * 64
        all.withUnsafeBufferPointer { pointer in
            for start in stride(from: 0, to: whole, by: 64) { mix(pointer, start) }
        }
        rest = Array(all[whole...])
    }

    mutating func hex() -> String {
        let bits = length * 8
        update([0x80] + [UInt8](repeating: 0, count: (119 - rest.count) % 64) + (0..<8).map { UInt8(truncatingIfNeeded: bits >> (56 - 8 * $0)) })
        return state.map { String(format: "%08x", Int($0)) }.joined()
    }

    private mutating func mix(_ bytes: UnsafeBufferPointer<UInt8>, _ start: Int) {
        func turned(_ word: UInt32, _ count: UInt32) -> UInt32 { word >> count | word << (32 - count) }
        var words = [UInt32](repeating: 0, count: 64)
        for index in 0..<16 {
            for byte in 0..<4 { words[index] = words[index] << 8 | UInt32(bytes[start + 4 * index + byte]) }
        }
        for index in 16..<64 {
            let (first, last) = (words[index - 15], words[index - 2])
            let early = turned(first, 7) ^ turned(first, 18) ^ first >> 3
            let late = turned(last, 17) ^ turned(last, 19) ^ last >> 10
            words[index] = words[index - 16] &+ early &+ words[index - 7] &+ late
        }
        var (a, b, c, d, e, f, g, h) = (state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7])
        for index in 0..<64 {
            let sum = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)
            let one = h &+ sum &+ (e & f ^ ~e & g) &+ SHA256.constants[index] &+ words[index]
            let other = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) &+ (a & b ^ a & c ^ b & c)
            (h, g, f, e, d, c, b, a) = (g, f, e, d &+ one, c, b, a, one &+ other)
        }
        for (index, word) in [a, b, c, d, e, f, g, h].enumerated() { state[index] = state[index] &+ word }
    }
}
