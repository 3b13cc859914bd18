// swift-tools-version:5.7
import PackageDescription

// ONNX Runtime exists as a Swift package for Apple's systems alone; elsewhere the library is built without an engine.
#if canImport(Darwin)
let engines: [Package.Dependency] = [
    .package(url: "https://github.com/microsoft/onnxruntime-swift-package-manager", from: "1.20.0")
]
let engineProducts: [Target.Dependency] = [
    .product(name: "onnxruntime", package: "onnxruntime-swift-package-manager")
]
#else
let engines: [Package.Dependency] = []
let engineProducts: [Target.Dependency] = []
#endif

let package = Package(
    name: "Kerasformer",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "Kerasformer", targets: ["Kerasformer"])],
    dependencies: engines,
    targets: [
        .target(name: "Kerasformer", dependencies: engineProducts),
        .testTarget(name: "KerasformerTests", dependencies: ["Kerasformer"]),
    ]
)
