raise ImportError("kerasformer.bench has moved. Expected: kerasformer.tools.bench")
