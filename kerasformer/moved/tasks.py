raise ImportError("kerasformer.tasks has moved. Expected: kerasformer.basics.tasks")
