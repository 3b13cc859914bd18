raise ImportError("kerasformer.options has moved. Expected: kerasformer.basics.options")
