raise ImportError("kerasformer.sample_texts has moved. Expected: kerasformer.bundle.sample_texts")
