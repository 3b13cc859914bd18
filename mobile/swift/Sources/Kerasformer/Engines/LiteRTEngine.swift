#if canImport(TensorFlowLite)
import Foundation
import TensorFlowLite

extension EngineOpener {
    /// Runs bundles of the format `tflite` with LiteRT, whose pod for Swift is called `TensorFlowLiteSwift`.
    ///
    /// - Parameter threads: Number of threads; that of the fast cores is a good one.
    public static func liteRT(threads: Int = 2) -> EngineOpener {
        EngineOpener { try LiteRTEngine($0, threads: threads) }
    }
}

private final class LiteRTEngine: Engine {
    private var runners: [String: SignatureRunner] = [:]
    private let signatures: [String: Signature]

    init(_ bundle: ModelBundle, threads: Int) throws {
        if bundle.format != "tflite" { throw EngineError("LiteRT runs bundles of the format tflite. Received: the format \(bundle.format)") }
        signatures = bundle.signatures
        do {
            var options = Interpreter.Options()
            options.threadCount = threads
            var interpreters: [String: Interpreter] = [:]
            for signature in bundle.signatures.values {
                let file = signature.file
                let interpreter = try interpreters[file] ?? Interpreter(modelPath: try bundle.file(file).path, options: options)
                interpreters[file] = interpreter
                runners[signature.name] = try interpreter.signatureRunner(with: signature.name)
            }
        } catch let error as BundleError {
            throw error
        } catch {
            throw EngineError("LiteRT cannot load \(bundle.folder.path): \(error)")
        }
    }

    func run(_ signature: String, inputs: [String: Kerasformer.Tensor], outputs: [String], replaced: Set<String>) throws -> [String: Kerasformer.Tensor] {
        guard let runner = runners[signature], let known = signatures[signature] else {
            throw EngineError("The bundle has no signature \(signature). Export the model again")
        }
        do {
            var given: [String: Data] = [:]
            for (name, tensor) in inputs { given[name] = try (tensor as? DataTensor)?.data ?? tensor.data(known.inputs[name]?.dtype ?? "float32").data }
            try runner.invoke(with: given)
            var results: [String: Kerasformer.Tensor] = [:]
            for name in outputs {
                let output = try runner.output(named: name)
                results[name] = DataTensor(output.data, shape: output.shape.dimensions)
            }
            return results
        } catch {
            throw EngineError("LiteRT cannot run \(signature): \(error)")
        }
    }
}

/// A copy of an output of the runtime.
private final class DataTensor: Kerasformer.Tensor {
    let data: Data
    let shape: [Int]

    init(_ data: Data, shape: [Int]) {
        self.data = data
        self.shape = shape
    }

    func floats() -> [Float] { floatsOf(data) }
}
#endif
