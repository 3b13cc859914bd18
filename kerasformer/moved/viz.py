raise ImportError("kerasformer.viz has moved. Expected: kerasformer.tools.viz")
