raise ImportError("kerasformer.architectures has moved. Expected: kerasformer.bundle.architectures")
