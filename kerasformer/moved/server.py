raise ImportError("kerasformer.server has moved. Expected: kerasformer.tools.server")
