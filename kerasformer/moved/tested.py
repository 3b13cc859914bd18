raise ImportError("kerasformer.tested has moved. Expected: kerasformer.bundle.tested")
