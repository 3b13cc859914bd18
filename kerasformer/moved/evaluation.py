raise ImportError("kerasformer.evaluation has moved. Expected: kerasformer.tools.evaluation")
