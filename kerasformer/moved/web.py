raise ImportError("kerasformer.web has moved. Expected: kerasformer.tools.web")
