raise ImportError(
    "kerasformer.decoding has moved. Expected: kerasformer.generation (the protocols of engines: kerasformer.engines)"
)
