raise ImportError("kerasformer.progress has moved. Expected: kerasformer.basics.progress")
