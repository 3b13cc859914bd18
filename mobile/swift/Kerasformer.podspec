Pod::Spec.new do |spec|
  spec.name = "Kerasformer"
  spec.version = "0.1.0"
  spec.summary = "Runs models exported by kerasformer, with their tokenizers."
  spec.license = { type: "Apache-2.0" }
  spec.author = "The authors of kerasformer"
  spec.source = { path: "." }
  spec.ios.deployment_target = "15.0"
  spec.swift_versions = ["5.7"]
  spec.source_files = "Sources/Kerasformer/**/*.swift"
  # LiteRT for Swift exists as a pod alone; the Swift package has ONNX Runtime.
  spec.dependency "TensorFlowLiteSwift", "~> 2.14"
end
