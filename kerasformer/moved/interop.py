raise ImportError("kerasformer.interop has moved. Expected: kerasformer.tools.interop")
