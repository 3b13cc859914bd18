raise ImportError("kerasformer.interpretability has moved. Expected: kerasformer.tools.interpretability")
