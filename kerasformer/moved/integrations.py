raise ImportError("kerasformer.integrations has moved. Expected: kerasformer.tools.integrations")
