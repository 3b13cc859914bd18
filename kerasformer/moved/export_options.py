raise ImportError("kerasformer.export_options has moved. Expected: kerasformer.bundle.export_options")
