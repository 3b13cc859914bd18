import Foundation
import Kerasformer

/// The models in the app's resources. One is open at a time, because a phone's memory may not hold two language models;
/// opening a small one takes less than a second.
actor Models {
    private var open: (name: String, model: TextModel)?

    /// Names of the bundles: the folders in `bundles`.
    nonisolated let names: [String]
    private let folder: URL?

    init() {
        folder = Bundle.main.url(forResource: "bundles", withExtension: nil)
        let found = folder.flatMap { try? FileManager.default.contentsOfDirectory(atPath: $0.path) }
        names = found ?? []
    }

    /// Returns a model, which stays open until another one is needed.
    func get(_ name: String) async throws -> TextModel {
        if let open, open.name == name { return open.model }
        close()
        guard let folder else { throw InputError("The app has no bundles. Build it with BUNDLES=FOLDER, see README.md") }
        let model = try await TextModel.open(folder.appendingPathComponent(name), engine: .onnxRuntime())
        open = (name, model)
        return model
    }

    /// Closes the open model, which is opened again when it is used.
    func close() {
        open?.model.close()
        open = nil
    }
}
