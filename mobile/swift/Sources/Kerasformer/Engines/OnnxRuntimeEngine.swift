#if canImport(OnnxRuntimeBindings)
import Foundation
import OnnxRuntimeBindings

extension EngineOpener {
    /// Runs bundles of the format `onnx` with ONNX Runtime.
    ///
    /// - Parameter threads: Number of threads; that of the fast cores is a good one.
    public static func onnxRuntime(threads: Int = 2) -> EngineOpener {
        EngineOpener { try OnnxRuntimeEngine($0, threads: threads) }
    }
}

private final class OnnxRuntimeEngine: Engine {
    private let environment: ORTEnv
    private var sessions: [String: ORTSession] = [:]
    private let signatures: [String: Signature]

    init(_ bundle: ModelBundle, threads: Int) throws {
        if bundle.format != "onnx" { throw EngineError("ONNX Runtime runs bundles of the format onnx. Received: the format \(bundle.format)") }
        signatures = bundle.signatures
        // From 1.29 on, ONNX Runtime sends usage data from its start on, unless this is set. The choice of the app holds.
        setenv("ORT_DISABLE_TELEMETRY", "1", 0)
        do {
            environment = try ORTEnv(loggingLevel: .error)
            let options = try ORTSessionOptions()
            try options.setIntraOpNumThreads(Int32(threads))
            try options.setGraphOptimizationLevel(.all)
            for file in Set(bundle.signatures.values.map { $0.file }) {
                sessions[file] = try ORTSession(env: environment, modelPath: try bundle.file(file).path, sessionOptions: options)
            }
        } catch let error as BundleError {
            throw error
        } catch {
            throw EngineError("ONNX Runtime cannot load \(bundle.folder.path): \(error.localizedDescription)")
        }
    }

    func run(_ signature: String, inputs: [String: Tensor], outputs: [String], replaced: Set<String>) throws -> [String: Tensor] {
        guard let known = signatures[signature], let session = sessions[known.file] else {
            throw EngineError("The bundle has no signature \(signature). Export the model again")
        }
        do {
            var given: [String: ORTValue] = [:]
            for (name, tensor) in inputs { given[name] = try value(tensor, known.inputs[name]?.dtype ?? "float32") }
            let results = try session.run(withInputs: given, outputNames: Set(outputs), runOptions: nil)
            return try results.mapValues { try OnnxTensor($0) }
        } catch {
            throw EngineError("ONNX Runtime cannot run \(signature): \(error.localizedDescription)")
        }
    }

    private func value(_ tensor: Tensor, _ dtype: String) throws -> ORTValue {
        if let own = tensor as? OnnxTensor { return own.value }
        let (data, type) = try tensor.data(dtype)
        let kinds: [String: ORTTensorElementDataType] = ["int32": .int32, "int64": .int64, "float32": .float, "int8": .int8]
        return try ORTValue(
            tensorData: NSMutableData(data: data), elementType: kinds[type] ?? .float, shape: tensor.shape.map { NSNumber(value: $0) })
    }
}

/// A tensor in the memory of the runtime.
private final class OnnxTensor: Tensor {
    let value: ORTValue
    let shape: [Int]

    init(_ value: ORTValue) throws {
        self.value = value
        shape = try value.tensorTypeAndShapeInfo().shape.map { $0.intValue }
    }

    func floats() throws -> [Float] { floatsOf(try value.tensorData() as Data) }
}
#endif
