raise ImportError("kerasformer.arguments has moved. Expected: kerasformer.basics.arguments")
