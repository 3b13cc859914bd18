raise ImportError("kerasformer.fidelity has moved. Expected: kerasformer.engines.fidelity")
