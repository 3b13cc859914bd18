raise ImportError("kerasformer.gguf has moved. Expected: kerasformer.tools.gguf")
