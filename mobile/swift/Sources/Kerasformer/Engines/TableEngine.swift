import Foundation

extension EngineOpener {
    /// Runs bundles of static embeddings, a table of token vectors and their mean, without a runtime.
    public static func table() -> EngineOpener {
        EngineOpener { try TableEngine($0) }
    }
}

/// The file is mapped into memory: only the rows of a text's tokens are read. It is a safetensors file.
private final class TableEngine: Engine {
    private let signature: Signature
    private let output: String
    private let size, count: Int
    private let normalized: Bool
    private let file: Data
    /// Bits of a number, and bytes of a row.
    private let bits, width: Int
    /// The first bytes of the rows and of their scales.
    private let levels, scales: Int
    private var skipped: Set<Int> = []

    init(_ bundle: ModelBundle) throws {
        if bundle.format != "table" { throw EngineError("A table was expected, of the format table. Received: the format \(bundle.format)") }
        guard let signature = bundle.ofRole("forward").first, let output = signature.outputs.first, let size = output.value.shape.last else {
            throw BundleError("A signature of the role forward was expected. Export the model again")
        }
        self.signature = signature
        self.output = output.key
        self.size = size
        let count = bundle.info["vocab_size"].int ?? 0
        self.count = count
        normalized = bundle.info["embedding"].flag("normalized")
        let path = try bundle.file(signature.file)
        func damaged(_ reason: String) -> BundleError {
            BundleError("\(signature.file) is not the table of this bundle: \(reason). Export the model again")
        }
        guard let file = try? Data(contentsOf: path, options: .alwaysMapped), file.count >= 8 else { throw damaged("it cannot be read") }
        self.file = file
        let length = file.prefix(8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard length <= UInt64(file.count - 8), let header = try? JSON.parse(file.subdata(in: 8..<8 + Int(length))) else {
            throw damaged("its header is incomplete")
        }
        let start = 8 + Int(length)
        func position(_ name: String, _ dtype: String, _ bytes: Int) throws -> Int {
            let range = header[name].list("data_offsets").compactMap { $0.int }
            guard range.count == 2, header[name].text("dtype") == dtype, range[1] - range[0] == bytes, start + range[1] <= file.count else {
                throw damaged("\(name) must be \(dtype) with \(bytes) bytes, since the vocabulary has \(count) tokens")
            }
            return start + range[0]
        }
        let bits = header.has("embeddings") ? 32 : header.has("embeddings_int8") ? 8 : 4
        let width = bits == 4 ? (size + 1) / 2 : size * bits / 8
        self.bits = bits
        self.width = width
        levels = try position(bits == 32 ? "embeddings" : "embeddings_int\(bits)", bits == 32 ? "F32" : "U8", count * width)
        scales = bits == 32 ? 0 : try position("scales", "F32", 4 * count)
        if let ids = header["skipped"].list("shape").first?.int {
            let first = try position("skipped", "I32", 4 * ids)
            skipped = Set((0..<ids).map { Int(Int32(bitPattern: word(first + 4 * $0))) })
        }
    }

    func run(_ signature: String, inputs: [String: Tensor], outputs: [String], replaced: Set<String>) throws -> [String: Tensor] {
        let ids = integers(inputs, "ids")
        if let wrong = ids.first(where: { $0 < 0 || $0 >= count }) {
            throw InputError("Ids must be from 0 to \(count - 1). Received: \(wrong)")
        }
        if output != "sentence_embedding" {
            var rows = [Float](repeating: 0, count: ids.count * size)
            for (index, id) in ids.enumerated() { add(id, to: &rows, from: index * size) }
            return [output: FloatTensor(rows, shape: [1, ids.count, size])]
        }
        let mask = integers(inputs, "mask")
        let counted = zip(ids, mask).filter { $0.1 != 0 && !skipped.contains($0.0) }.map { $0.0 }
        var mean = [Float](repeating: 0, count: size)
        for id in counted { add(id, to: &mean, from: 0) }
        mean = mean.map { $0 / Float(max(1, counted.count)) }
        if normalized {
            let length = max(mean.reduce(0.0) { $0 + Double($1) * Double($1) }.squareRoot(), 1e-12)
            mean = mean.map { Float(Double($0) / length) }
        }
        return [output: FloatTensor(mean, shape: [1, size])]
    }

    private func integers(_ inputs: [String: Tensor], _ kind: String) -> [Int] {
        signature.inputs(of: kind).first.flatMap { inputs[$0] as? IntTensor }?.values ?? []
    }

    /// Adds the vector of a token to the numbers from `start` on.
    private func add(_ id: Int, to sum: inout [Float], from start: Int) {
        let row = levels + id * width
        let scale = bits == 32 ? 1 : Float(bitPattern: word(scales + 4 * id))
        for index in 0..<size {
            switch bits {
            case 32: sum[start + index] += Float(bitPattern: word(row + 4 * index))
            case 8: sum[start + index] += Float(Int(file[row + index]) - 128) * scale
            default: sum[start + index] += Float(((Int(file[row + index / 2]) >> (4 * (index % 2))) & 15) - 8) * scale
            }
        }
    }

    /// Four bytes from an address, which need not be a multiple of four.
    private func word(_ address: Int) -> UInt32 {
        (0..<4).reduce(UInt32(0)) { $0 | UInt32(file[address + $1]) << UInt32(8 * $1) }
    }
}
